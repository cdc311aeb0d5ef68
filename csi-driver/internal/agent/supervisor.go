// SPDX-License-Identifier: Apache-2.0

// Package agent supervises one `splitfs agent` process per staged volume: it starts them, restarts those that died, and stops them.
package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Config of a Supervisor. Only Binary and Args are required.
type Config struct {
	Binary string
	// Args returns the arguments that serve a volume.
	Args func(v Volume) []string
	// ReadyTimeout is how long an agent may take for preparing and recovering its volume.
	ReadyTimeout time.Duration
	// StopTimeout is how long it may take to end after SIGTERM before it is killed.
	StopTimeout time.Duration
	// MinBackoff and MaxBackoff bound the pause before a restart; it doubles while an agent keeps dying.
	MinBackoff, MaxBackoff time.Duration
	// OnDeath is told, outside any lock, when an agent ended without being asked to. It must not call Stop for the same volume.
	OnDeath func(ctx context.Context, id string, err error)
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&c.ReadyTimeout, 100*time.Second)
	set(&c.StopTimeout, 20*time.Second)
	set(&c.MinBackoff, 500*time.Millisecond)
	set(&c.MaxBackoff, 30*time.Second)
	return c
}

// Volume is what an agent needs to know of the volume it serves.
type Volume struct {
	// Root is where it is mounted.
	Root string
	// Pool is the size of its staging pool in bytes.
	Pool int64
}

// State of a volume's agent.
type State struct {
	Ready    bool
	PID      int
	Restarts int64
	// LastError is how the last agent ended; nil while the first one runs.
	LastError error
}

// Supervisor runs agents until Shutdown.
type Supervisor struct {
	config Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	agents map[string]*worker
}

// worker keeps one volume served.
type worker struct {
	id     string
	volume Volume
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	state   State
	changed chan struct{} // closed and replaced at every change of state
}

// New returns a Supervisor. Its agents carry ctx's logger and are stopped when ctx is done.
func New(ctx context.Context, config Config) *Supervisor {
	ctx, cancel := context.WithCancel(ctx)
	return &Supervisor{config: config.withDefaults(), ctx: ctx, cancel: cancel, agents: map[string]*worker{}}
}

// Watch keeps a volume served and returns at once. Watching a volume that is watched changes nothing.
func (s *Supervisor) Watch(id string, v Volume) error {
	_, err := s.watch(id, v)
	return err
}

func (s *Supervisor) watch(id string, v Volume) (*worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, errors.New("the node service is stopping")
	}
	if w, ok := s.agents[id]; ok {
		if w.volume != v {
			return nil, fmt.Errorf("an agent serves volume %s at %s already, with a pool of %d bytes", id, w.volume.Root, w.volume.Pool)
		}
		return w, nil
	}
	ctx, cancel := context.WithCancel(klog.NewContext(s.ctx, klog.LoggerWithValues(klog.FromContext(s.ctx), "volume-id", id)))
	w := &worker{id: id, volume: v, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	s.agents[id] = w
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer close(w.done)
		s.keep(ctx, w)
	}()
	return w, nil
}

// Start keeps a volume served and waits until its agent is ready. When the first agent fails the volume is not kept, and the
// error says how it failed: the caller must be able to say why a volume cannot be used.
func (s *Supervisor) Start(ctx context.Context, id string, v Volume) error {
	w, err := s.watch(id, v)
	if err != nil {
		return err
	}
	before, _ := w.snapshot()
	for {
		state, changed := w.snapshot()
		if state.Ready {
			return nil
		}
		if state.Restarts > before.Restarts {
			return errors.Join(fmt.Errorf("agent of volume %s: %w", id, state.LastError), s.Stop(ctx, id))
		}
		select {
		case <-changed:
		case <-w.done:
			return fmt.Errorf("agent of volume %s was stopped", id)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("agent of volume %s is not ready: %w", id, ctx.Err()), s.Stop(context.WithoutCancel(ctx), id))
		}
	}
}

// WaitReady waits until a watched volume's agent is ready.
func (s *Supervisor) WaitReady(ctx context.Context, id string) error {
	s.mu.Lock()
	w, ok := s.agents[id]
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("volume %s has no agent", id)
	}
	for {
		state, changed := w.snapshot()
		if state.Ready {
			return nil
		}
		select {
		case <-changed:
		case <-w.done:
			return fmt.Errorf("agent of volume %s was stopped", id)
		case <-ctx.Done():
			if state.LastError != nil {
				return fmt.Errorf("agent of volume %s keeps failing: %w", id, state.LastError)
			}
			return fmt.Errorf("agent of volume %s is not ready: %w", id, ctx.Err())
		}
	}
}

// Stop ends a volume's agent and returns when its process is gone. It is no error when there is none.
func (s *Supervisor) Stop(ctx context.Context, id string) error {
	s.mu.Lock()
	w, ok := s.agents[id]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	w.cancel()
	select {
	case <-w.done:
	case <-ctx.Done():
		return fmt.Errorf("stop the agent of volume %s: %w", id, ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents[id] == w {
		delete(s.agents, id)
	}
	return nil
}

// State returns the state of a volume's agent; ok is false when the volume is not watched.
func (s *Supervisor) State(id string) (state State, ok bool) {
	s.mu.Lock()
	w, ok := s.agents[id]
	s.mu.Unlock()
	if !ok {
		return State{}, false
	}
	state, _ = w.snapshot()
	return state, true
}

// Shutdown ends all agents and waits for them.
func (s *Supervisor) Shutdown() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
}

// keep runs agents for a volume, one after the other, until ctx is done.
func (s *Supervisor) keep(ctx context.Context, w *worker) {
	logger := klog.FromContext(ctx)
	pause := s.config.MinBackoff
	for {
		started := time.Now()
		err := s.run(ctx, w)
		if ctx.Err() != nil {
			w.update(func(st *State) { st.Ready, st.PID = false, 0 })
			logger.V(2).Info("Agent stopped", "err", err)
			return
		}
		if err == nil {
			err = errors.New("it ended although nobody asked it to (exit status 0)")
		}
		w.update(func(st *State) {
			st.Ready, st.PID, st.LastError = false, 0, err
			st.Restarts++
		})
		if time.Since(started) > 2*s.config.MaxBackoff {
			pause = s.config.MinBackoff // it was well for a while: this is a new story
		}
		logger.Error(err, "Agent died, starting it again", "pause", pause)
		if s.config.OnDeath != nil {
			s.config.OnDeath(ctx, w.id, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, s.config.MaxBackoff)
	}
}

func (w *worker) snapshot() (State, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, w.changed
}

func (w *worker) update(change func(*State)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.state)
	close(w.changed)
	w.changed = make(chan struct{})
}
