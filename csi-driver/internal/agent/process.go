// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// readyLine is what an agent prints when it serves.
const readyLine = "ready"

// run runs one agent to its end. It ends when ctx is done (SIGTERM, then SIGKILL) or by itself.
func (w *worker) run(ctx context.Context, v Volume, g *gate) error {
	// An agent must not outlive its supervisor: the next one's could not take the volume's lock. The kernel sends the
	// parent-death signal when the *thread* that started a process ends, so this thread stays with the agent. A dead agent
	// loses nothing.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	logger, config := klog.FromContext(ctx), w.supervisor.config
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, v.Program, v.arguments(g)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.ExtraFiles = append([]*os.File{w.socket.file}, g.files()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error {
		if w.succeeded() {
			time.AfterFunc(config.ReplaceTimeout, func() { _ = cmd.Process.Kill() }) // it may have ended
		}
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = config.StopTimeout

	var late lateness
	timer := time.AfterFunc(config.ReadyTimeout, func() {
		if late.expire() {
			cancel()
		}
	})
	defer timer.Stop()

	var complaint tail
	cmd.Stderr = &lines{each: func(line string) {
		complaint.add(line)
		logger.Info("Agent", "stderr", line)
	}}
	cmd.Stdout = &lines{each: func(line string) {
		if line == readyLine && late.arrive() {
			logger.V(2).Info("Agent is ready", "pid", cmd.Process.Pid)
			w.ready(ctx, v)
			return
		}
		logger.V(4).Info("Agent", "stdout", line)
	}}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	w.update(func(st *State) { st.PID, st.Program = cmd.Process.Pid, v.Program })
	err := cmd.Wait()
	if late.expired() {
		err = errors.Join(fmt.Errorf("not ready after %s", config.ReadyTimeout), err)
	}
	if said := complaint.String(); err != nil && said != "" {
		err = fmt.Errorf("%s (%w)", said, err)
	}
	return err
}

// lateness decides once between "ready in time" and "too late".
type lateness struct {
	mu             sync.Mutex
	ready, tooLate bool
}

func (l *lateness) arrive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = l.ready || !l.tooLate
	return l.ready
}

func (l *lateness) expire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tooLate = l.tooLate || !l.ready
	return l.tooLate
}

func (l *lateness) expired() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tooLate
}

// lines is a writer that hands on whole lines. A line without an end is cut off at maxLine bytes.
type lines struct {
	each    func(line string)
	pending []byte
}

const maxLine = 4096

func (l *lines) Write(p []byte) (int, error) {
	l.pending = append(l.pending, p...)
	for {
		end := bytes.IndexByte(l.pending, '\n')
		if end < 0 && len(l.pending) < maxLine {
			return len(p), nil
		}
		if end < 0 {
			l.each(string(l.pending))
			l.pending = l.pending[:0]
			return len(p), nil
		}
		l.each(string(l.pending[:end]))
		l.pending = l.pending[end+1:]
	}
}

// tail keeps the last lines of a complaint.
type tail struct {
	mu   sync.Mutex
	kept []string
}

const tailLines = 4

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, line)
	if len(t.kept) > tailLines {
		t.kept = t.kept[1:]
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.kept, "; ")
}
