// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const entrySuffix = ".json"

// entry is what the next Supervisor has to know of a volume. Fields that a future one adds are lost when this one
// writes the file, and the node service, which asks for all its volumes when it starts, brings them back.
type entry struct {
	Wanted Volume `json:"wanted"`
	// Proven is what got ready last; its program is run when that of Wanted does not get ready.
	Proven Volume `json:"proven,omitzero"`
}

// IDs become names of files.
var validID = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,127}$`)

func checkID(id string) error {
	if !validID.MatchString(id) {
		return fmt.Errorf("%q is no volume ID", id)
	}
	return nil
}

func (s *Supervisor) entryPath(id string) string { return filepath.Join(s.config.Dir, id+entrySuffix) }

func (s *Supervisor) save(id string, e entry) error {
	if !s.config.Persistent {
		return nil
	}
	content, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("remember the agent of volume %s: %w", id, err)
	}
	// A supervisor that takes over finds the file as it is to be, and programs are waiting.
	if have, err := os.ReadFile(s.entryPath(id)); err == nil && bytes.Equal(have, content) {
		return nil
	}
	if err := volume.WriteFileDurable(s.entryPath(id), content, 0o600); err != nil {
		return fmt.Errorf("remember the agent of volume %s: %w", id, err)
	}
	return nil
}

func (s *Supervisor) forget(id string) error {
	if err := remove(s.entryPath(id)); err != nil {
		return fmt.Errorf("forget the agent of volume %s: %w", id, err)
	}
	return nil
}

// Restore serves the volumes again that the Supervisor before this one served, without waiting for their agents. One
// that is not mounted any more is forgotten: the node was rebooted.
func (s *Supervisor) Restore() error {
	files, err := os.ReadDir(s.config.Dir)
	if err != nil {
		return fmt.Errorf("look for volumes to serve again: %w", err)
	}
	var errs []error
	for _, file := range files {
		id, ok := strings.CutSuffix(file.Name(), entrySuffix)
		if !ok || checkID(id) != nil {
			continue
		}
		if err := s.restore(id); err != nil {
			errs = append(errs, fmt.Errorf("serve volume %s again: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Supervisor) restore(id string) error {
	content, err := os.ReadFile(s.entryPath(id))
	if err != nil {
		return err
	}
	var e entry
	if err := json.Unmarshal(content, &e); err != nil {
		return errors.Join(err, s.forget(id))
	}
	mounted, err := mounts.At(e.Wanted.Root)
	if err != nil {
		return err
	}
	if mounted == nil {
		klog.FromContext(s.ctx).Info("Volume is not mounted any more", "volume-id", id, "root", e.Wanted.Root)
		return s.forget(id)
	}
	_, err = s.watch(id, e)
	return err
}
