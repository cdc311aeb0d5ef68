// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Config of a Supervisor. Only Dir is required.
type Config struct {
	// Dir keeps the sockets and, with Persistent, one file for each volume. It is on the file system of the agents'
	// directories.
	Dir string
	// Persistent: the volumes are served again by the next Supervisor (Restore).
	Persistent bool
	// ReadyTimeout is how long an agent may take for preparing and recovering its volume.
	ReadyTimeout time.Duration
	// StopTimeout is how long it may take to end after SIGTERM before it is killed; ReplaceTimeout the same when another
	// one is to follow.
	StopTimeout, ReplaceTimeout time.Duration
	// MinBackoff and MaxBackoff bound the pause before a restart: none after an agent that was well, then it doubles while
	// agents keep dying.
	MinBackoff, MaxBackoff time.Duration
	// Hold is how long programs wait for an agent that does not come before they are let go.
	Hold time.Duration
	// OnDeath is told, outside any lock, when an agent ended without being asked to. It must not call Stop for the same
	// volume.
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
	set(&c.ReplaceTimeout, 300*time.Millisecond)
	set(&c.MinBackoff, 100*time.Millisecond)
	set(&c.MaxBackoff, 30*time.Second)
	set(&c.Hold, 2*time.Second)
	return c
}

// Supervisor runs agents until Shutdown.
type Supervisor struct {
	config   Config
	instance string
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	// reserve is for sockets: what is in use must be served also where nothing new can be begun.
	reserve *volume.Reserve

	// change is held while the volumes that are served change, on disk and here. It is taken before writing and mu.
	change     sync.Mutex
	handedOver bool       // another supervisor has the volumes
	writing    sync.Mutex // held while the file of a volume that is served changes

	mu       sync.Mutex
	agents   map[string]*worker
	revision int64
	changed  chan struct{} // closed and replaced at every change of a state
}

// New returns a Supervisor. Its agents carry ctx's logger and are stopped when ctx is done.
func New(ctx context.Context, config Config) (*Supervisor, error) {
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of the agents' sockets: %w", err)
	}
	reserve := volume.NewReserve(config.Dir)
	if err := reserve.Keep(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	return &Supervisor{
		config: config.withDefaults(), instance: rand.Text(), ctx: ctx, cancel: cancel, agents: map[string]*worker{},
		changed: make(chan struct{}), reserve: reserve,
	}, nil
}

var (
	// errStopping: another supervisor is to be asked, or the same a moment later.
	errStopping = errors.New("the supervisor of the agents is being replaced")
	// errEnding: the same is to be asked a moment later.
	errEnding = errors.New("its agent is being ended")
)

// Watch keeps a volume served and returns at once. When it is served with another program or other options, the agent
// is replaced.
func (s *Supervisor) Watch(id string, v Volume) error {
	_, err := s.watch(id, entry{Wanted: v})
	return err
}

func (s *Supervisor) watch(id string, e entry) (*worker, error) {
	if err := errors.Join(e.Wanted.check(), checkID(id)); err != nil {
		return nil, err
	}
	s.change.Lock()
	defer s.change.Unlock()
	if s.ctx.Err() != nil || s.handedOver {
		return nil, errStopping
	}
	if w, ok := s.worker(id); ok {
		if w.stopped {
			return nil, fmt.Errorf("volume %s: %w", id, errEnding)
		}
		if root := w.root(); root != e.Wanted.Root {
			return nil, fmt.Errorf("an agent serves volume %s at %s already", id, root)
		}
		before := w.remembered()
		err := w.want(e.Wanted)
		if after := w.remembered(); !reflect.DeepEqual(before, after) {
			err = errors.Join(err, s.remember(w))
		}
		return w, err
	}
	if err := s.save(id, e); err != nil {
		return nil, err
	}
	return s.begin(id, e, nil, nil), nil
}

// begin serves a volume, behind a socket and a gate that are there or that are to be made. s.change is held.
func (s *Supervisor) begin(id string, e entry, behind *socket, g *gate) *worker {
	ctx, cancel := context.WithCancel(
		klog.NewContext(s.ctx, klog.LoggerWithValues(klog.FromContext(s.ctx), "volume-id", id)))
	w := newWorker(s, id, e, cancel)
	w.socket, w.gate = behind, g
	s.mu.Lock()
	s.agents[id] = w
	s.bump()
	s.mu.Unlock()
	s.wg.Go(func() {
		defer close(w.done)
		w.keep(ctx)
		s.drop(w)
	})
	return w
}

// drop takes a worker away that was stopped, whether or not anybody waits for that.
func (s *Supervisor) drop(w *worker) {
	s.writing.Lock()
	stopped := w.stopped
	s.writing.Unlock()
	if !stopped {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.agents, w.id)
	s.bump()
}

func (s *Supervisor) worker(id string) (*worker, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.agents[id]
	return w, ok
}

// remember writes down what a worker serves, unless it was stopped meanwhile.
func (s *Supervisor) remember(w *worker) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if w.stopped {
		return nil
	}
	return s.save(w.id, w.remembered())
}

// Update is Watch: that the volume is shown to those it is to be shown to is done when it returns.
func (s *Supervisor) Update(_ context.Context, id string, v Volume) error { return s.Watch(id, v) }

// Start keeps a volume served and waits until its agent is ready. When the first agent fails the volume is not kept,
// and the error says how it failed: the caller must be able to say why a volume cannot be used.
func (s *Supervisor) Start(ctx context.Context, id string, v Volume) error {
	w, err := s.watch(id, entry{Wanted: v})
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
			return errors.Join(fmt.Errorf("agent of volume %s is not ready: %w", id, ctx.Err()),
				s.Stop(context.WithoutCancel(ctx), id))
		}
	}
}

// WaitReady waits until a watched volume's agent is ready.
func (s *Supervisor) WaitReady(ctx context.Context, id string) error {
	return waitReady(ctx, id, func() (State, bool, <-chan struct{}) {
		w, ok := s.worker(id)
		if !ok {
			return State{}, false, nil
		}
		state, changed := w.snapshot()
		return state, true, changed
	})
}

// waitReady waits for an agent whose state, and the end of it, look returns.
func waitReady(ctx context.Context, id string, look func() (State, bool, <-chan struct{})) error {
	for {
		state, ok, changed := look()
		if !ok {
			return fmt.Errorf("volume %s has no agent", id)
		}
		if state.Ready {
			return nil
		}
		select {
		case <-changed:
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
	w, err := s.giveUp(id)
	if w == nil || err != nil {
		return err
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the agent of volume %s: %w", id, ctx.Err())
	}
}

// giveUp forgets a volume and tells its agent to end; nil when there is none.
func (s *Supervisor) giveUp(id string) (*worker, error) {
	s.change.Lock()
	defer s.change.Unlock()
	if s.handedOver {
		return nil, errStopping
	}
	w, ok := s.worker(id)
	if !ok {
		return nil, nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	// First: a supervisor that is killed now must not start the agent again.
	if err := s.forget(id); err != nil {
		return nil, err
	}
	w.stopped = true
	w.cancel()
	return w, nil
}

// State returns the state of a volume's agent; ok is false when the volume is not watched.
func (s *Supervisor) State(id string) (state State, ok bool) {
	w, ok := s.worker(id)
	if !ok {
		return State{}, false
	}
	state, _ = w.snapshot()
	return state, true
}

// Ready says whether a volume's agent serves it now.
func (s *Supervisor) Ready(_ context.Context, id string) (bool, error) {
	state, _ := s.State(id)
	return state.Ready, nil
}

// Shutdown ends all agents and waits for them. What is persistent stays.
func (s *Supervisor) Shutdown() {
	s.change.Lock()
	s.cancel()
	s.change.Unlock()
	s.wg.Wait()
}

// snapshot is the state of all agents, and a channel that is closed when it changes.
func (s *Supervisor) snapshot() (snapshot, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := snapshot{Instance: s.instance, Revision: s.revision, Volumes: map[string]stateOnWire{}}
	for id, w := range s.agents {
		state, _ := w.snapshot()
		all.Volumes[id] = state.toWire()
	}
	return all, s.changed
}

// bump tells those who wait for a change. s.mu is held.
func (s *Supervisor) bump() {
	s.revision++
	close(s.changed)
	s.changed = make(chan struct{})
}
