// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func (w *world) endpoint() string { return filepath.Join(w.dir, "supervisor.sock") }

// serve lets clients reach a supervisor, until the function that it returns is called.
func (w *world) serve(s *Supervisor) (stop func()) {
	w.t.Helper()
	if err := remove(w.endpoint()); err != nil {
		w.t.Fatal(err)
	}
	listener, err := net.Listen("unix", w.endpoint())
	if err != nil {
		w.t.Fatal(err)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	w.t.Cleanup(func() { _ = server.Close() })
	return func() { _ = server.Close() }
}

func (w *world) client(deaths *atomic.Int64) *Client {
	c := NewClient(w.ctx, w.endpoint(), func(context.Context, string, error) { deaths.Add(1) })
	w.t.Cleanup(c.Shutdown)
	return c
}

func TestClient(t *testing.T) {
	var deaths atomic.Int64
	w := newWorld(t)
	s := w.supervisor(nil)
	w.serve(s)
	c := w.client(&deaths)
	v := w.volume("serve")
	if err := c.Start(w.ctx, "v", v); err != nil {
		t.Fatal(err)
	}
	if ready, err := c.Ready(w.ctx, "v"); err != nil || !ready {
		t.Fatalf("ready: %t, %v", ready, err)
	}
	if err := c.WaitReady(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
	state, ok := c.State("v")
	if !ok || !state.Ready || state.PID == 0 || state.Program != w.program {
		t.Fatalf("state %+v", state)
	}
	if err := syscall.Kill(state.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.eventually("one death", func() bool { return deaths.Load() == 1 })
	w.eventually("a new agent", func() bool {
		now, _ := c.State("v")
		return now.Ready && now.PID != state.PID && now.Restarts == 1
	})
	if err := c.Start(w.ctx, "v", w.volume("other")); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("one volume at two places: %v", err)
	}
	if err := c.Start(w.ctx, "../v", v); err == nil {
		t.Error("a path was taken for an ID")
	}
	if err := c.Start(w.ctx, "f", w.volume("fail")); err == nil ||
		!strings.Contains(err.Error(), "the volume is on fire") {
		t.Errorf("a failed start: %v", err)
	}
	if _, ok := s.State("f"); ok {
		t.Error("a volume is still watched after a failed start")
	}
	for range 2 {
		if err := c.Stop(w.ctx, "v"); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := s.State("v"); ok {
		t.Error("the agent was not stopped")
	}
}

// TestAgentsOutliveTheNodeService: a client that goes takes no agent with it, and the next one finds them.
func TestAgentsOutliveTheNodeService(t *testing.T) {
	var deaths atomic.Int64
	w := newWorld(t)
	s := w.supervisor(nil)
	w.serve(s)
	c := w.client(&deaths)
	if err := c.Start(w.ctx, "v", w.volume("serve")); err != nil {
		t.Fatal(err)
	}
	before, _ := s.State("v")
	c.Shutdown()
	c = w.client(&deaths)
	if err := c.Watch("v", w.volume("serve")); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
	if now, _ := c.State("v"); now.PID != before.PID || deaths.Load() != 0 {
		t.Errorf("state %+v, before %+v, %d deaths", now, before, deaths.Load())
	}
}

// TestSupervisorIsReplaced: while it is away nothing hangs, and one that has lost its memory is asked again.
func TestSupervisorIsReplaced(t *testing.T) {
	var deaths atomic.Int64
	w := newWorld(t)
	c := w.client(&deaths)
	v := w.volume("serve")
	if err := c.Watch("v", v); err != nil {
		t.Fatalf("while nobody answers: %v", err)
	}
	if _, err := c.Ready(w.ctx, "v"); err == nil {
		t.Error("Ready knows what nobody told")
	}
	s := w.supervisor(nil)
	stop := w.serve(s)
	if err := c.WaitReady(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
	stop()
	s.Shutdown()
	w.eventually("the supervisor is missed", func() bool {
		state, ok := c.State("v")
		return ok && !state.Ready && state.LastError != nil
	})
	w.serve(w.supervisor(nil))
	if err := c.WaitReady(w.ctx, "v"); err != nil {
		t.Fatal(err)
	}
	if deaths.Load() != 0 {
		t.Errorf("%d agents are said to have died with their supervisor", deaths.Load())
	}
}

// TestAskedForMeanwhile: what a volume is to be served with stays so when an older request is answered late.
func TestAskedForMeanwhile(t *testing.T) {
	var deaths atomic.Int64
	w := newWorld(t)
	s := w.supervisor(nil)
	listener, err := net.Listen("unix", w.endpoint())
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	asked, release := make(chan struct{}), make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(
		func(answer http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				switch requests.Add(1) {
				case 1: // it is being replaced
					http.Error(answer, errStopping.Error(), http.StatusServiceUnavailable)
					return
				case 2: // that volume is missing
					close(asked)
					<-release
				}
			}
			s.Handler().ServeHTTP(answer, r)
		})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	v := w.volume("serve")
	c := w.client(&deaths)
	w.eventually("the supervisor is heard", func() bool { state, _ := c.State("v"); return state.LastError == nil })
	if err := c.Watch("v", v); err != nil {
		t.Fatal(err)
	}
	if _, err := s.watch("other", entry{Wanted: w.volume("of/serve")}); err != nil { // something changes
		t.Fatal(err)
	}
	<-asked
	v.Shown = []string{w.mkdir("pod")}
	if err := c.Update(w.ctx, "v", v); err != nil {
		t.Fatal(err)
	}
	close(release)
	w.eventually("all requests are answered", func() bool { return requests.Load() >= 4 })
	w.eventually("the volume is shown to its pod", func() bool {
		worker, ok := s.worker("v")
		return ok && len(worker.remembered().Wanted.Shown) == 1
	})
}

// TestRestore: what is persistent is served again by the next supervisor; what is not mounted any more is not.
func TestRestore(t *testing.T) {
	w := newWorld(t)
	persistent := func(c *Config) { c.Persistent = true }
	s := w.supervisor(persistent)
	v := w.volume("serve")
	if err := s.Start(w.ctx, "v", v); err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	again := w.supervisor(persistent)
	if err := again.Restore(); err != nil {
		t.Fatal(err)
	}
	if _, ok := again.State("v"); ok {
		t.Error("a volume is served that is not mounted")
	}
	again.Shutdown()

	// The machine's own root is always mounted.
	mounted := Volume{Root: "/", AgentsDir: v.AgentsDir, Program: w.program}
	s = w.supervisor(persistent)
	if err := s.Watch("m", mounted); err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	again = w.supervisor(persistent)
	if err := again.Restore(); err != nil {
		t.Fatal(err)
	}
	if _, ok := again.State("m"); !ok {
		t.Error("a mounted volume is not served again")
	}
	if err := again.Stop(w.ctx, "m"); err != nil {
		t.Fatal(err)
	}
	last := w.supervisor(persistent)
	if err := last.Restore(); err != nil {
		t.Fatal(err)
	}
	if _, ok := last.State("m"); ok {
		t.Error("a volume that was stopped is served again")
	}
}
