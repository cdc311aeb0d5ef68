// SPDX-License-Identifier: Apache-2.0

// Package agent keeps one `splitfs agent` process running for each staged volume. A Supervisor starts agents, restarts
// those that died, and owns the sockets that programs connect to, so that these wait, and see no error, while one agent
// follows another. The node service reaches the Supervisor of its node through a Client: agents outlive it.
package agent

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// Volume is what it takes to serve a volume.
type Volume struct {
	// Root is where it is mounted.
	Root string `json:"root"`
	// AgentsDir is a directory in which its socket is always shown; pods do not see it.
	AgentsDir string `json:"agentsDir"`
	// Shown are further directories that show it: one for each pod that has the volume. One that is not there is left out.
	Shown []string `json:"shown,omitempty"`
	// Program is the splitfs program. When it does not get ready, the last one that did serves the volume.
	Program string `json:"program"`
	// Gate: the program takes the descriptors of a gate.
	Gate bool `json:"gate,omitempty"`
	// Options are further arguments of `splitfs agent`.
	Options []string `json:"options,omitempty"`
}

func (v Volume) check() error {
	for what, path := range map[string]string{"root": v.Root, "agents' directory": v.AgentsDir, "program": v.Program} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("the %s %q is not an absolute path", what, path)
		}
	}
	return nil
}

// sameAgent says whether the same agent can serve both.
func (v Volume) sameAgent(w Volume) bool {
	return v.Root == w.Root && v.AgentsDir == w.AgentsDir && v.Program == w.Program && v.Gate == w.Gate &&
		slices.Equal(v.Options, w.Options)
}

// dirs are all directories that show the socket.
func (v Volume) dirs() []string { return append([]string{v.AgentsDir}, v.Shown...) }

// The numbers of the listening socket and of the gate in an agent: exec.Cmd's ExtraFiles begin with 3.
const (
	listenFD = 3
	gateFD   = 4
)

func (v Volume) arguments(g *gate) []string {
	args := []string{"agent", v.Root, "--agents-dir", v.AgentsDir, "--listen-fd", strconv.Itoa(listenFD)}
	if g != nil {
		args = append(args, "--gate-fd", strconv.Itoa(gateFD))
	}
	return append(args, v.Options...)
}

// State of a volume's agent.
type State struct {
	Ready bool
	PID   int
	// Program is the one that runs, or ran last.
	Program  string
	Restarts int64
	// LastError is how the last agent ended; nil while the first one runs.
	LastError error
}

// stateOnWire is a State as JSON.
type stateOnWire struct {
	Ready     bool   `json:"ready"`
	PID       int    `json:"pid"`
	Program   string `json:"program"`
	Restarts  int64  `json:"restarts"`
	LastError string `json:"lastError,omitempty"`
}

func (s State) toWire() stateOnWire {
	w := stateOnWire{Ready: s.Ready, PID: s.PID, Program: s.Program, Restarts: s.Restarts}
	if s.LastError != nil {
		w.LastError = s.LastError.Error()
	}
	return w
}

func (w stateOnWire) toState() State {
	s := State{Ready: w.Ready, PID: w.PID, Program: w.Program, Restarts: w.Restarts}
	if w.LastError != "" {
		s.LastError = errors.New(w.LastError)
	}
	return s
}

// snapshot is everything a Supervisor knows, as of a revision. Revisions of two instances cannot be compared.
type snapshot struct {
	Instance string                 `json:"instance"`
	Revision int64                  `json:"revision"`
	Volumes  map[string]stateOnWire `json:"volumes"`
}
