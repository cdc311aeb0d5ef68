// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// As an agent, this test binary does what its one argument says; a second one is a file it creates when it may be ready.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "agent-double" {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "serve":
		terminate := make(chan os.Signal, 1)
		signal.Notify(terminate, syscall.SIGTERM)
		fmt.Println("ready")
		<-terminate
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		select {}
	case "mute":
		select {}
	case "fail":
		fmt.Fprintln(os.Stderr, "splitfs: the volume is on fire; call somebody")
		os.Exit(1)
	case "die":
		fmt.Println("ready")
	}
	os.Exit(0)
}

func newSupervisor(t *testing.T, change func(*Config)) (*Supervisor, context.Context) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "agent-double")
	if err := os.Symlink(self, binary); err != nil {
		t.Fatal(err)
	}
	logger, _ := ktesting.NewTestContext(t)
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), logger), 30*time.Second)
	t.Cleanup(cancel)
	config := Config{
		Binary: binary, Args: func(v Volume) []string { return []string{v.Root} },
		ReadyTimeout: 5 * time.Second, StopTimeout: 2 * time.Second, MinBackoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
	}
	if change != nil {
		change(&config)
	}
	s := New(ctx, config)
	t.Cleanup(s.Shutdown)
	return s, ctx
}

func gone(pid int) bool { return syscall.Kill(pid, 0) != nil }

func TestStartAndStop(t *testing.T) {
	s, ctx := newSupervisor(t, nil)
	for range 2 {
		if err := s.Start(ctx, "v", Volume{Root: "serve"}); err != nil {
			t.Fatal(err)
		}
	}
	state, ok := s.State("v")
	if !ok || !state.Ready || state.PID == 0 || state.Restarts != 0 {
		t.Fatalf("state %+v", state)
	}
	if err := s.Start(ctx, "v", Volume{Root: "other root"}); err == nil {
		t.Error("one volume was served at two places")
	}
	for range 2 {
		if err := s.Stop(ctx, "v"); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := s.State("v"); ok || !gone(state.PID) {
		t.Error("the agent is still there")
	}
}

func TestStubbornAgentIsKilled(t *testing.T) {
	s, ctx := newSupervisor(t, func(c *Config) { c.StopTimeout = 100 * time.Millisecond })
	if err := s.Start(ctx, "v", Volume{Root: "stubborn"}); err != nil {
		t.Fatal(err)
	}
	state, _ := s.State("v")
	if err := s.Stop(ctx, "v"); err != nil {
		t.Fatal(err)
	}
	if !gone(state.PID) {
		t.Error("the agent is still there")
	}
}

func TestStartSaysWhyItFailed(t *testing.T) {
	s, ctx := newSupervisor(t, func(c *Config) { c.ReadyTimeout = 200 * time.Millisecond })
	for root, want := range map[string]string{"fail": "the volume is on fire; call somebody", "mute": "not ready after 200ms"} {
		err := s.Start(ctx, root, Volume{Root: root})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %q", root, err, want)
		}
		if _, ok := s.State(root); ok {
			t.Errorf("%s is still watched after a failed start", root)
		}
	}
}

func TestDeadAgentsAreRestarted(t *testing.T) {
	var deaths atomic.Int64
	s, ctx := newSupervisor(t, func(c *Config) {
		c.OnDeath = func(_ context.Context, id string, err error) {
			if id != "v" || err == nil {
				t.Errorf("death of %q: %v", id, err)
			}
			deaths.Add(1)
		}
	})
	if err := s.Watch("v", Volume{Root: "die"}); err != nil {
		t.Fatal(err)
	}
	for deaths.Load() < 3 {
		if ctx.Err() != nil {
			t.Fatalf("only %d deaths", deaths.Load())
		}
		time.Sleep(5 * time.Millisecond)
	}
	if state, _ := s.State("v"); state.Restarts < 3 || state.LastError == nil {
		t.Errorf("state %+v", state)
	}
	if err := s.Stop(ctx, "v"); err != nil {
		t.Fatal(err)
	}
	after := deaths.Load()
	time.Sleep(100 * time.Millisecond)
	if deaths.Load() != after {
		t.Error("it was restarted after Stop")
	}
}

func TestShutdown(t *testing.T) {
	s, ctx := newSupervisor(t, nil)
	if err := s.Start(ctx, "v", Volume{Root: "serve"}); err != nil {
		t.Fatal(err)
	}
	state, _ := s.State("v")
	s.Shutdown()
	if !gone(state.PID) {
		t.Error("the agent outlives the supervisor")
	}
	if err := s.Watch("w", Volume{Root: "serve"}); err == nil {
		t.Error("an agent was started after Shutdown")
	}
}
