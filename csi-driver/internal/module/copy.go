// SPDX-License-Identifier: Apache-2.0

package module

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Copy takes the module of one kernel release out of an image into the node's directory of prebuilt modules. An image
// without one for this release is no error: it says so, and the node service reports it.
func Copy(from, to, release string) (found bool, err error) {
	if found, err = copyModule(from, to, release); err == nil {
		return found, nil
	}
	record := buildRecord{Release: release, Time: time.Now().UTC().Truncate(time.Second), Error: err.Error()}
	return found, errors.Join(err, os.MkdirAll(to, 0o755), record.write(to))
}

func copyModule(from, to, release string) (found bool, err error) {
	source, place := filepath.Join(from, release), filepath.Join(to, release)
	c, err := open(source, release)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if have, err := open(place, release); err == nil {
		same := have.sha256 == c.sha256
		if err := have.close(); err != nil || same {
			return true, err
		}
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return true, fmt.Errorf("copy the module: %w", err)
	}
	work, err := os.MkdirTemp(to, ".copy-")
	if err != nil {
		return true, fmt.Errorf("copy the module: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	fresh := filepath.Join(work, release)
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return true, fmt.Errorf("copy the module: %w", err)
	}
	for _, name := range []string{FileName, manifestName} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err == nil {
			err = volume.WriteFileDurable(filepath.Join(fresh, name), content, 0o644)
		}
		if err != nil {
			return true, fmt.Errorf("copy the module: %w", err)
		}
	}
	copied, err := open(fresh, release) // what arrived, not what was sent
	if err != nil {
		return true, err
	}
	if err := copied.close(); err != nil {
		return true, err
	}
	return true, replaceDir(fresh, place)
}
