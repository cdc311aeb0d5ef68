// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Report is everything an operator may want to know of the module on a node.
type Report struct {
	Status
	Lockdown   string `json:"lockdown,omitempty"`
	SecureBoot bool   `json:"secureBoot"`
	Enforced   bool   `json:"signaturesEnforced"`
	// Providers says what volumes of each file system type relink with.
	Providers map[string]string `json:"providers"`
}

// Providers returns, for each file system type, what volumes that are staged on this node now relink with. Names are
// those of `splitfs status`.
func (m *Manager) Providers() map[string]string { return providers(m.Status().State) }

// providers: XFS volumes are made with reflink, which the library takes before exchange-range.
func providers(state State) map[string]string {
	p := map[string]string{volume.Ext4: "copy", volume.XFS: "reflink"}
	if state == Ready {
		p[volume.Ext4] = "ext4-relink"
	}
	return p
}

// saved is the status as it outlives the process, for `splitfs-csi module status`. In another boot it says nothing.
type saved struct {
	BootID string `json:"bootID"`
	Status Status `json:"status"`
}

func (m *Manager) savedPath() string { return filepath.Join(m.config.StateDir, "status.json") }

func (m *Manager) save(s Status) error {
	raw, err := json.MarshalIndent(saved{m.attempt.boot, s}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.config.StateDir, 0o755); err != nil {
		return err
	}
	return volume.WriteFileDurable(m.savedPath(), append(raw, '\n'), 0o644)
}

// saved returns what was saved last; nothing when nothing was.
func (m *Manager) saved() (s saved, err error) {
	raw, err := os.ReadFile(m.savedPath())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read what the node service found: %w", err)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("what the node service found, %s, is damaged; remove it: %w", m.savedPath(), err)
	}
	return s, nil
}

// Inspect reports without changing anything: what the node service found in this boot, or what it would find.
func (m *Manager) Inspect(ctx context.Context) (Report, error) {
	r := Report{Status: Status{State: Pending, Release: m.config.Kernel.Release}}
	p, err := m.config.Kernel.policy()
	if err != nil {
		return r, err
	}
	r.Lockdown, r.SecureBoot, r.Enforced = p.Lockdown, p.SecureBoot, p.Enforced
	found, err := m.saved()
	if err != nil {
		return r, err
	}
	if found.BootID == m.attempt.boot {
		r.Status = found.Status
	} else if err := m.foresee(&r.Status); err != nil {
		return r, err
	}
	m.observe(ctx, &r.Status)
	r.Providers = providers(r.State)
	return r, nil
}

// foresee says what Ensure would find, as far as that can be known without loading anything.
func (m *Manager) foresee(s *Status) error {
	present, err := m.config.Kernel.registered()
	if err != nil {
		return err
	}
	if present {
		s.Message = "the module is loaded, and nobody has tried it in this boot; `splitfs-csi module load` does"
		return nil
	}
	c, _, err := m.choose(s)
	var o *outcome
	switch {
	case errors.As(err, &o):
		s.State, s.Why, s.Message = o.state, o.why, err.Error()
		return nil
	case err != nil:
		return err
	}
	s.Message = "a module for this kernel is there, and nobody has loaded it in this boot; `splitfs-csi module load` does"
	return c.close()
}
