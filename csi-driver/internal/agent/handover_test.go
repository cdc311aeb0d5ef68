// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// heir waits for a successor of s.
func (w *world) heir(ctx context.Context, s *Supervisor) (ended chan error, begun *atomic.Bool) {
	w.t.Helper()
	listener, err := ListenForSuccessor(filepath.Join(w.dir, "handover.sock"))
	if err != nil {
		w.t.Fatal(err)
	}
	ended, begun = make(chan error, 1), &atomic.Bool{}
	go func() { ended <- s.ServeHandover(ctx, listener, func() { begun.Store(true) }) }()
	return ended, begun
}

func (w *world) takeOver(next *Supervisor) io.Closer {
	w.t.Helper()
	conn, err := next.TakeOver(filepath.Join(w.dir, "handover.sock"))
	if err != nil || conn == nil {
		w.t.Fatalf("taking over: %v, %v", conn, err)
	}
	return conn
}

// TestHandover: one supervisor after another takes the volume over, under programs that connect all the time. The one
// that was taken over from changes nothing any more, and learns of its successor's end.
func TestHandover(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(w.dir, "handover.sock")
	persistent := func(c *Config) { c.Persistent = true }
	s := w.supervisor(persistent)
	if conn, err := s.TakeOver(path); conn != nil || err != nil {
		t.Fatalf("taking over from nobody: %v, %v", conn, err)
	}
	v := w.volume("serve")
	if err := s.Start(w.ctx, "v", v); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	var slowest atomic.Int64
	asked := make(chan error, 1)
	go func() {
		var n int
		for ; ctx.Err() == nil; n++ {
			began := time.Now()
			if _, err := w.ask(); err != nil {
				asked <- err
				return
			}
			slowest.Store(max(slowest.Load(), int64(time.Since(began))))
		}
		if n < 10 {
			asked <- errors.New("nobody asked")
		}
		close(asked)
	}()
	for range 5 {
		ended, begun := w.heir(w.ctx, s)
		next := w.supervisor(persistent)
		conn := w.takeOver(next)
		if err := next.WaitReady(w.ctx, "v"); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.State("v"); ok || !begun.Load() {
			t.Error("the supervisor before knows the volume still")
		}
		if err := s.Watch("v", v); !errors.Is(err, errStopping) {
			t.Errorf("the supervisor before still serves: %v", err)
		}
		if err := s.Stop(w.ctx, "v"); !errors.Is(err, errStopping) {
			t.Errorf("the supervisor before still stops: %v", err)
		}
		s.Shutdown()
		select {
		case err := <-ended:
			t.Errorf("its successor is said to have ended: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the handover: %v", err)
		}
		s = next
	}
	cancel()
	if err := <-asked; err != nil {
		t.Errorf("a program: %v", err)
	}
	if slowest := time.Duration(slowest.Load()); slowest > time.Second {
		t.Errorf("a program waited %s", slowest)
	}
	if err := s.Stop(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
}

// TestHandoverOfAStoppedVolume: a volume whose agent is being ended, or was by a caller that has gone, is not handed
// over, and does not keep the others from being.
func TestHandoverOfAStoppedVolume(t *testing.T) {
	for what, stubborn := range map[string]bool{"ended": false, "being ended": true} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			persistent := func(c *Config) { c.Persistent, c.StopTimeout = true, 500*time.Millisecond }
			s := w.supervisor(persistent)
			action := map[bool]string{false: "serve", true: "stubborn"}[stubborn]
			for id, v := range map[string]Volume{"kept": w.volume("serve"), "stopped": w.volume("of/" + action)} {
				if err := s.Start(w.ctx, id, v); err != nil {
					t.Fatal(err)
				}
			}
			state, _ := s.State("stopped")
			w.stopAndLeave(s, "stopped")
			if !stubborn {
				w.eventually("the agent ends", func() bool { return gone(state.PID) })
				time.Sleep(100 * time.Millisecond)
			}
			ended, _ := w.heir(w.ctx, s)
			next := w.supervisor(persistent)
			conn := w.takeOver(next)
			if err := next.WaitReady(w.ctx, "kept"); err != nil {
				t.Error(err)
			}
			if _, ok := next.State("stopped"); ok {
				t.Error("the next supervisor serves what was to be ended")
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("the handover: %v", err)
			}
		})
	}
}

// TestForeignConnection: who connects and asks for nothing changes nothing.
func TestForeignConnection(t *testing.T) {
	w := newWorld(t)
	s := w.supervisor(nil)
	if err := s.Start(w.ctx, "v", w.volume("serve")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	ended, begun := w.heir(ctx, s)
	for _, say := range []string{"", "tak", "look"} {
		conn, err := net.Dial("unixpacket", filepath.Join(w.dir, "handover.sock"))
		if err != nil {
			t.Fatal(err)
		}
		if say != "" {
			if _, err := conn.Write([]byte(say)); err != nil {
				t.Fatal(err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if state, ok := s.State("v"); !ok || !state.Ready || begun.Load() {
		t.Errorf("state %+v", state)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
