// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestStartAndStop(t *testing.T) {
	w := newWorld(t)
	s := w.supervisor(nil)
	v := w.volume("serve")
	for range 2 {
		if err := s.Start(w.ctx, "v", v); err != nil {
			t.Fatal(err)
		}
	}
	state, ok := s.State("v")
	if !ok || !state.Ready || state.PID == 0 || state.Restarts != 0 || state.Program != w.program {
		t.Fatalf("state %+v", state)
	}
	if answer, err := w.ask(); err != nil || answer != fmt.Sprint(state.PID) {
		t.Errorf("the socket answers %q, %v", answer, err)
	}
	if err := s.Start(w.ctx, "v", w.volume("other")); err == nil {
		t.Error("one volume was served at two places")
	}
	for range 2 {
		if err := s.Stop(w.ctx, "v"); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := s.State("v"); ok || !gone(state.PID) {
		t.Error("the agent is still there")
	}
	if _, err := os.Lstat(w.socket()); err == nil {
		t.Error("the socket is still there")
	}
}

func TestStubbornAgentIsKilled(t *testing.T) {
	w := newWorld(t)
	s := w.supervisor(func(c *Config) { c.StopTimeout = 100 * time.Millisecond })
	if err := s.Start(w.ctx, "v", w.volume("stubborn")); err != nil {
		t.Fatal(err)
	}
	state, _ := s.State("v")
	if err := s.Stop(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
	if !gone(state.PID) {
		t.Error("the agent is still there")
	}
}

// TestImpatientCaller: who asks for the end of an agent and does not wait for it leaves nothing behind, and the volume
// can be served again.
func TestImpatientCaller(t *testing.T) {
	w := newWorld(t)
	s := w.supervisor(func(c *Config) { c.StopTimeout = 200 * time.Millisecond })
	v := w.volume("stubborn")
	if err := s.Start(w.ctx, "v", v); err != nil {
		t.Fatal(err)
	}
	first, _ := s.State("v")
	w.stopAndLeave(s, "v")
	if err := s.Watch("v", v); !errors.Is(err, errEnding) {
		t.Errorf("a volume is to be served by an agent that is being ended: %v", err)
	}
	w.eventually("nothing is left", func() bool { _, ok := s.State("v"); return !ok })
	if err := s.Watch("v", v); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitReady(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
	if now, _ := s.State("v"); now.PID == first.PID {
		t.Errorf("state %+v, at first %+v", now, first)
	}
	if err := s.Stop(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
}

func TestStartSaysWhyItFailed(t *testing.T) {
	w := newWorld(t)
	s := w.supervisor(func(c *Config) { c.ReadyTimeout = 200 * time.Millisecond })
	for action, want := range map[string]string{
		"fail": "the volume is on fire; call somebody", "mute": "not ready after 200ms",
	} {
		err := s.Start(w.ctx, action, w.volume(action))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %q", action, err, want)
		}
		if _, ok := s.State(action); ok {
			t.Errorf("%s is still watched after a failed start", action)
		}
	}
}

func TestDeadAgentsAreRestarted(t *testing.T) {
	var deaths atomic.Int64
	w := newWorld(t)
	s := w.supervisor(func(c *Config) {
		c.OnDeath = func(_ context.Context, id string, err error) {
			if id != "v" || err == nil {
				t.Errorf("death of %q: %v", id, err)
			}
			deaths.Add(1)
		}
	})
	if err := s.Watch("v", w.volume("die")); err != nil {
		t.Fatal(err)
	}
	w.eventually("three deaths", func() bool { return deaths.Load() >= 3 })
	if state, _ := s.State("v"); state.Restarts < 3 || state.LastError == nil {
		t.Errorf("state %+v", state)
	}
	if err := s.Stop(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
	after := deaths.Load()
	time.Sleep(100 * time.Millisecond)
	if deaths.Load() != after {
		t.Error("it was restarted after Stop")
	}
}

// TestNobodyNoticesADeath kills agents under programs that connect all the time: each is answered, by an agent that
// lives.
func TestNobodyNoticesADeath(t *testing.T) {
	w := newWorld(t)
	s := w.supervisor(nil)
	if err := s.Start(w.ctx, "v", w.volume("serve")); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		state, _ := s.State("v")
		if err := syscall.Kill(state.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		w.eventually("the end of the agent", func() bool { return gone(state.PID) })
		for range 20 {
			if answer, err := w.ask(); err != nil || answer == fmt.Sprint(state.PID) {
				t.Fatalf("after a death the socket answers %q, %v", answer, err)
			}
		}
	}
}

// TestProgramsAreLetGo: those who wait for an agent that does not come go on without one, and find it when it is back.
func TestProgramsAreLetGo(t *testing.T) {
	w := newWorld(t)
	s := w.supervisor(func(c *Config) { c.Hold = 200 * time.Millisecond })
	v := w.volume("serve")
	v.Program = w.install("broken")
	if err := s.Watch("v", v); err != nil {
		t.Fatal(err)
	}
	w.eventually("a first failure", func() bool { state, _ := s.State("v"); return state.Restarts > 0 })
	began := time.Now()
	if _, err := w.ask(); err == nil {
		t.Error("an agent answers that never started")
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %s to be let go", took)
	}
	w.eventually("no socket", func() bool { _, err := os.Lstat(w.socket()); return err != nil })
	v.Program = w.program
	if err := s.Watch("v", v); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitReady(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ask(); err != nil {
		t.Error(err)
	}
}

// generations are what the agents of a volume say, one after the other.
func (w *world) generations(v Volume) (next func(want string)) {
	n := 0
	return func(want string) {
		w.t.Helper()
		var lines []string
		w.eventually("another agent", func() bool {
			said, err := os.ReadFile(filepath.Join(v.Root, "said"))
			lines = strings.Split(string(said), "\n")
			return err == nil && len(lines) > n+1
		})
		if lines[n] != want {
			w.t.Fatalf("an agent has %q, not %q: %q", lines[n], want, lines)
		}
		n++
	}
}

// TestGate: one agent after another has the same gate, also with another supervisor, unless its program knows none.
func TestGate(t *testing.T) {
	g, err := newGate()
	if err != nil {
		t.Skip("no fanotify: ", err)
	}
	if err := g.close(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	s := w.supervisor(func(c *Config) { c.Persistent = true })
	v := w.volume("gate")
	next := w.generations(v)
	v.Gate = true
	if err := s.Start(w.ctx, "v", v); err != nil {
		t.Fatal(err)
	}
	next("generation 1")
	w.kill(s)
	next("generation 2")
	if err := s.WaitReady(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}

	ended, _ := w.heir(w.ctx, s)
	heir := w.supervisor(func(c *Config) { c.Persistent = true })
	conn, err := heir.TakeOver(filepath.Join(w.dir, "handover.sock"))
	if err != nil || conn == nil {
		t.Fatalf("taking over: %v, %v", conn, err)
	}
	next("generation 3")
	s.Shutdown()
	if err := errors.Join(conn.Close(), <-ended); err != nil {
		t.Fatal(err)
	}
	if err := heir.WaitReady(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}

	v.Gate = false
	if err := heir.Watch("v", v); err != nil {
		t.Fatal(err)
	}
	next("none")
	if err := heir.WaitReady(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
	v.Gate = true
	if err := heir.Watch("v", v); err != nil {
		t.Fatal(err)
	}
	next("generation 1")
	if err := heir.WaitReady(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
}

// TestGateIsGivenUp: nobody waits for an agent that does not get ready and dies after all have been let go.
func TestGateIsGivenUp(t *testing.T) {
	w := newWorld(t)
	s := w.supervisor(func(c *Config) { c.Hold, c.ReadyTimeout = 100*time.Millisecond, 300*time.Millisecond })
	v := w.volume("mute-gate")
	next := w.generations(v)
	if g, err := newGate(); err != nil {
		t.Skip("no fanotify: ", err)
	} else if err := g.close(); err != nil {
		t.Fatal(err)
	}
	v.Gate = true
	if err := s.Watch("v", v); err != nil {
		t.Fatal(err)
	}
	next("generation 1")
	next("generation 1")
}

func (w *world) kill(s *Supervisor) {
	w.t.Helper()
	state, _ := s.State("v")
	if err := syscall.Kill(state.PID, syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
}

// TestReplaced: with another program or other options an agent is replaced, and no program sees an error. One that does
// not get ready is not kept.
func TestReplaced(t *testing.T) {
	w := newWorld(t)
	s := w.supervisor(func(c *Config) {
		c.OnDeath = func(_ context.Context, _ string, err error) { t.Logf("death: %v", err) }
	})
	v := w.volume("serve")
	if err := s.Start(w.ctx, "v", v); err != nil {
		t.Fatal(err)
	}
	first, _ := s.State("v")
	for _, change := range []func(){
		func() { v.Program = w.install("newer") }, func() { v.Options = []string{"--pool-bytes", "1"} },
	} {
		before, _ := s.State("v")
		change()
		if err := s.Watch("v", v); err != nil {
			t.Fatal(err)
		}
		w.eventually("another agent", func() bool { now, _ := s.State("v"); return now.Ready && now.PID != before.PID })
		if answer, err := w.ask(); err != nil || answer == fmt.Sprint(before.PID) {
			t.Errorf("the socket answers %q, %v", answer, err)
		}
	}
	now, _ := s.State("v")
	if now.Program != v.Program || now.Restarts != first.Restarts {
		t.Errorf("state %+v", now)
	}
	good := v.Program
	v.Program = w.install("broken")
	if err := s.Watch("v", v); err != nil {
		t.Fatal(err)
	}
	w.eventually("the program before", func() bool {
		state, _ := s.State("v")
		return state.Ready && state.Restarts == 1 && state.Program == good
	})
	if _, err := w.ask(); err != nil {
		t.Error(err)
	}
}

// TestShown: the socket is in the directories of those who have the volume, and in no others, whatever becomes of the
// agent.
func TestShown(t *testing.T) {
	w := newWorld(t)
	s := w.supervisor(nil)
	v := w.volume("serve")
	pods := map[string]string{"one": w.mkdir("one"), "two": w.mkdir("two")}
	shown := func() (names []string) {
		for _, name := range []string{"one", "two"} {
			if _, err := net.Dial("unixpacket", filepath.Join(pods[name], filepath.Base(w.socket()))); err == nil {
				names = append(names, name)
			}
		}
		return names
	}
	if err := s.Start(w.ctx, "v", v); err != nil {
		t.Fatal(err)
	}
	first, _ := s.State("v")
	for _, want := range [][]string{nil, {"one"}, {"one", "two"}, {"two"}, nil, {"two"}} {
		v.Shown = []string{filepath.Join(w.dir, "of a pod that is gone")}
		for _, name := range want {
			v.Shown = append(v.Shown, pods[name])
		}
		if err := s.Update(w.ctx, "v", v); err != nil {
			t.Fatal(err)
		}
		if got := shown(); !slices.Equal(got, want) {
			t.Errorf("shown to %v, wanted %v", got, want)
		}
	}
	if now, _ := s.State("v"); now.PID != first.PID {
		t.Error("the agent was replaced")
	}
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.eventually("another agent", func() bool { now, _ := s.State("v"); return now.Ready && now.PID != first.PID })
	if got := shown(); !slices.Equal(got, []string{"two"}) {
		t.Errorf("after a death shown to %v", got)
	}
	if err := s.Stop(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
	if got := shown(); len(got) != 0 {
		t.Errorf("after its end shown to %v", got)
	}
}

func TestShutdown(t *testing.T) {
	w := newWorld(t)
	s := w.supervisor(nil)
	if err := s.Start(w.ctx, "v", w.volume("serve")); err != nil {
		t.Fatal(err)
	}
	state, _ := s.State("v")
	s.Shutdown()
	if !gone(state.PID) {
		t.Error("the agent outlives the supervisor")
	}
	if err := s.Watch("w", w.volume("serve")); err == nil {
		t.Error("an agent was started after Shutdown")
	}
}
