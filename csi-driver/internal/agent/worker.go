// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// worker keeps one volume served.
type worker struct {
	supervisor *Supervisor
	id         string
	cancel     context.CancelFunc
	done       chan struct{}
	socket     *socket // of the goroutine in keep
	stopped    bool    // changes under supervisor.change and supervisor.writing

	mu      sync.Mutex
	state   State
	changed chan struct{} // closed and replaced at every change of state
	entry   entry
	// refused: the wanted program did not get ready, the proven one serves.
	refused bool
	// replace ends the agent that runs, so that another one follows; nil: none runs.
	replace context.CancelFunc
	// replacing: that is under way; handing: another supervisor is to start the next one.
	replacing, handing bool

	nameMu sync.Mutex  // held while the socket's name is shown or hidden
	hold   *time.Timer // runs while there is no agent
	letGo  bool        // it has ended: programs do without
	// running: an agent may have the gate.
	running bool
	named   bool  // the socket is shown
	gate    *gate // of the agents that follow one another; nil: they have their own
}

func newWorker(s *Supervisor, id string, e entry, cancel context.CancelFunc) *worker {
	return &worker{
		supervisor: s, id: id, entry: e, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}),
	}
}

func (w *worker) root() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.entry.Wanted.Root
}

// want changes what the volume is served with, and to whom it is shown.
func (w *worker) want(v Volume) error {
	w.nameMu.Lock()
	defer w.nameMu.Unlock()
	before := w.remembered().Wanted
	w.mu.Lock()
	w.entry.Wanted = v
	if !before.sameAgent(v) {
		w.refused = false
		if w.replace != nil {
			w.replacing = true
			w.replace()
		}
	}
	w.mu.Unlock()
	if !w.named {
		return nil // there is no socket yet, or its names are away
	}
	gone := slices.DeleteFunc(before.dirs(), func(dir string) bool { return slices.Contains(v.dirs(), dir) })
	return errors.Join(w.socket.hide(gone...), w.show(v))
}

// name shows the socket. nameMu is held.
func (w *worker) name(ctx context.Context) {
	w.named = true
	if err := w.show(w.remembered().Wanted); err != nil {
		klog.FromContext(ctx).Error(err, "Programs do not find the agent")
	}
}

func (w *worker) show(v Volume) error {
	return w.supervisor.reserve.Use(func() error { return w.socket.show(v.dirs()...) })
}

// unname hides the socket, from those too who wait in it. nameMu is held.
func (w *worker) unname() error {
	w.named = false
	return errors.Join(w.socket.hide(w.remembered().Wanted.dirs()...), w.socket.letGo())
}

// remembered is what the next Supervisor has to know.
func (w *worker) remembered() entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.entry
}

// choose returns what the next agent is run with.
func (w *worker) choose() Volume {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replacing = false
	if w.refused {
		return w.entry.Proven
	}
	return w.entry.Wanted
}

// wellAfter is how long an agent has to serve until its death is no sign that the next one will die too.
const wellAfter = 5 * time.Second

// keep runs agents for the volume, one after the other, until ctx is done.
func (w *worker) keep(ctx context.Context) {
	logger, config := klog.FromContext(ctx), w.supervisor.config
	defer w.closeSocket(ctx)
	pause := time.Duration(0)
	for {
		began := time.Now()
		v := w.choose()
		err := w.serve(ctx, v)
		wasReady := w.ended()
		if ctx.Err() != nil {
			logger.V(2).Info("Agent stopped", "err", err)
			return
		}
		if w.wasReplaced() {
			logger.Info("Agent ended to be replaced", "program", v.Program)
			pause = 0
			continue
		}
		if err == nil {
			err = errors.New("it ended although nobody asked it to (exit status 0)")
		}
		w.update(func(st *State) {
			st.LastError = err
			st.Restarts++
		})
		switch {
		case w.fallBack(v, wasReady):
			logger.Error(nil, "Agent did not get ready: the program before serves", "program", v.Program)
			pause = 0
		case wasReady && time.Since(began) > wellAfter:
			pause = 0
		default:
			pause = min(max(2*pause, config.MinBackoff), config.MaxBackoff)
		}
		logger.Error(err, "Agent died, starting it again", "pause", pause)
		if config.OnDeath != nil {
			config.OnDeath(ctx, w.id, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// ended says whether the agent that has just ended had been ready.
func (w *worker) ended() (wasReady bool) {
	w.update(func(st *State) {
		wasReady = st.Ready
		st.Ready, st.PID = false, 0
	})
	return wasReady
}

// serve runs one agent to its end, behind the volume's socket.
func (w *worker) serve(ctx context.Context, v Volume) error {
	if w.socket == nil {
		var s *socket
		err := w.supervisor.reserve.Use(func() (err error) {
			s, err = listen(w.supervisor.config.Dir, w.id, v)
			return err
		})
		if err != nil {
			return err
		}
		w.socket = s
	}
	w.expectAgent(ctx)
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	w.replace = cancel
	again := w.replacing
	w.mu.Unlock()
	if again {
		cancel()
	}
	err := w.run(run, v, w.openGate(ctx, v))
	w.mu.Lock()
	w.replace = nil
	w.mu.Unlock()
	w.nameMu.Lock()
	defer w.nameMu.Unlock()
	w.running = false
	if w.letGo {
		w.closeGate(ctx)
	}
	return err
}

// openGate returns what the next agent is given of a gate; nil: it makes its own.
func (w *worker) openGate(ctx context.Context, v Volume) *gate {
	w.nameMu.Lock()
	defer w.nameMu.Unlock()
	w.running = true
	if !v.Gate {
		w.closeGate(ctx) // nobody would answer
		return nil
	}
	if w.gate == nil {
		g, err := newGate()
		if err != nil {
			klog.FromContext(ctx).Error(err, "Opens do not wait while one agent follows another")
			return nil
		}
		w.gate = g
	}
	return w.gate
}

// closeGate lets those go on who open files. nameMu is held.
func (w *worker) closeGate(ctx context.Context) {
	if err := w.gate.close(); err != nil {
		klog.FromContext(ctx).Error(err, "Opens go on waiting for an agent")
	}
	w.gate = nil
}

func (w *worker) wasReplaced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replacing
}

// succeeded: an agent follows the one that is being ended, so programs are waiting.
func (w *worker) succeeded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replacing || w.handing
}

// fallBack says whether the program before has to serve instead, because this one did not get ready.
func (w *worker) fallBack(v Volume, wasReady bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wasReady || w.refused || w.entry.Proven.Root == "" || w.entry.Proven.Program == v.Program ||
		w.entry.Proven.Root != v.Root {
		return false
	}
	if _, err := os.Stat(w.entry.Proven.Program); err != nil {
		return false
	}
	w.refused = true
	return true
}

// ready is called when an agent says that it serves.
func (w *worker) ready(ctx context.Context, v Volume) {
	w.nameMu.Lock()
	w.stopHolding()
	w.letGo = false
	w.name(ctx)
	w.update(func(st *State) { st.Ready = true })
	w.nameMu.Unlock()

	w.mu.Lock()
	changed := !w.entry.Proven.sameAgent(v)
	w.entry.Proven = v
	w.mu.Unlock()
	if changed {
		if err := w.supervisor.remember(w); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remember which program works")
		}
	}
}

// expectAgent lets programs wait for the agent that is about to be started, but not for ever: without one for
// config.Hold they are let go, and the name comes back when an agent is ready.
func (w *worker) expectAgent(ctx context.Context) {
	w.nameMu.Lock()
	defer w.nameMu.Unlock()
	if w.letGo || w.hold != nil {
		return
	}
	w.name(ctx)
	w.hold = time.AfterFunc(w.supervisor.config.Hold, func() {
		w.nameMu.Lock()
		defer w.nameMu.Unlock()
		if state, _ := w.snapshot(); state.Ready || ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Info("No agent for too long: programs do without it",
			"seconds", w.supervisor.config.Hold.Seconds())
		w.letGo = true
		if err := w.unname(); err != nil {
			klog.FromContext(ctx).Error(err, "Programs go on waiting for an agent")
		}
		if !w.running {
			w.closeGate(ctx) // one that runs answers, or ends
		}
	})
}

// stopHolding: nobody waits in vain any more. nameMu is held.
func (w *worker) stopHolding() {
	if w.hold != nil {
		w.hold.Stop()
	}
	w.hold = nil
}

func (w *worker) closeSocket(ctx context.Context) {
	w.nameMu.Lock()
	defer w.nameMu.Unlock()
	w.stopHolding()
	w.mu.Lock()
	handing := w.handing
	w.mu.Unlock()
	if handing {
		return
	}
	w.closeGate(ctx)
	if w.socket == nil {
		return
	}
	if err := errors.Join(w.unname(), w.socket.close()); err != nil {
		klog.FromContext(ctx).Error(err, "The agent's socket is left")
	}
}

func (w *worker) snapshot() (State, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, w.changed
}

func (w *worker) update(change func(*State)) {
	w.mu.Lock()
	change(&w.state)
	close(w.changed)
	w.changed = make(chan struct{})
	w.mu.Unlock()
	w.supervisor.mu.Lock()
	w.supervisor.bump()
	w.supervisor.mu.Unlock()
}
