// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const (
	// programsName is below the directory of the agents' supervisor.
	programsName = "program"
	programName  = "splitfs"
)

// program is the splitfs program of this image, as agents run it.
type program struct {
	source string
	// dir: the program is copied there, into a directory named by its content, for a supervisor in another container,
	// whose image is older or newer; "": agents run source.
	dir string
	// installed is the copy.
	installed string
}

// path is what agents are to be run with. Until the copy is there it is the program at the same place in the
// supervisor's image.
func (p *program) path() string {
	if p.installed == "" {
		return p.source
	}
	return p.installed
}

// install makes the copy.
func (p *program) install() error {
	if p.dir == "" {
		return nil
	}
	content, err := os.ReadFile(p.source)
	if err != nil {
		return fmt.Errorf("the splitfs program of this image: %w", err)
	}
	version := digest(content)
	file := filepath.Join(p.dir, version, programName)
	if have, err := os.ReadFile(file); err != nil || digest(have) != version {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return fmt.Errorf("install the splitfs program: %w", err)
		}
		if err := volume.WriteFileDurable(file, content, 0o755); err != nil {
			return fmt.Errorf("install the splitfs program: %w", err)
		}
	}
	p.installed = file
	return nil
}

// removeUnused removes copies of other versions when no agent runs one of them any more.
func (p *program) removeUnused(running []string) error {
	if p.dir == "" || p.installed == "" {
		return nil
	}
	for _, path := range running {
		if path != p.installed {
			return nil
		}
	}
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return fmt.Errorf("look for unused programs: %w", err)
	}
	for _, entry := range entries {
		if filepath.Join(p.dir, entry.Name(), programName) == p.installed || !versionName.MatchString(entry.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(p.dir, entry.Name())); err != nil {
			return fmt.Errorf("remove an unused program: %w", err)
		}
	}
	return nil
}
