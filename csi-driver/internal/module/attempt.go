// SPDX-License-Identifier: Apache-2.0

package module

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// attempt remembers, across a crash of the machine, that a module is being loaded. Without it a module that brings the
// kernel down would do so again after each boot, as soon as the node service starts.
type attempt struct {
	path string
	boot string
}

type attemptRecord struct {
	SHA256 string `json:"sha256"`
	BootID string `json:"bootID"`
}

// begin is durable before anything is loaded.
func (a attempt) begin(sha256 string) error {
	raw, err := json.Marshal(attemptRecord{SHA256: sha256, BootID: a.boot})
	if err != nil {
		return fmt.Errorf("encode the note of an attempt: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(a.path), 0o755); err != nil {
		return fmt.Errorf("note an attempt to load the module: %w", err)
	}
	if err := volume.WriteFileDurable(a.path, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("note an attempt to load the module: %w", err)
	}
	return nil
}

// end forgets it: the kernel survived.
func (a attempt) end() error {
	if err := volume.RemoveIfThere(a.path); err != nil {
		return fmt.Errorf("forget an attempt to load the module: %w", err)
	}
	return nil
}

// died returns the hash of the module whose loading an earlier boot did not survive, "" when there is none. An attempt
// of this boot tells nothing: the node service was restarted, not the machine.
func (a attempt) died() (string, error) {
	raw, err := os.ReadFile(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the note of an attempt: %w", err)
	}
	var r attemptRecord
	if err := json.Unmarshal(raw, &r); err != nil {
		return "", fmt.Errorf(
			"the note of an attempt, %s, is damaged; look into the machine's log for a crash, then remove the file: %w", a.path,
			err)
	}
	if r.BootID == a.boot {
		return "", nil
	}
	return r.SHA256, nil
}
