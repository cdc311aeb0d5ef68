// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const recordSuffix = ".json"

// Store keeps one state file per volume in a directory. A write that returned is on the medium; a reader sees the old or the new
// record, never half of one. Callers hold the volume's lock.
type Store struct{ dir string }

// OpenStore opens the store in dir, which is created when it is not there.
func OpenStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	return &Store{dir: dir}, nil
}

func (s *Store) path(id string) string { return filepath.Join(s.dir, id+recordSuffix) }

// Get returns a volume's record, or ErrNotFound.
func (s *Store) Get(id string) (*Record, error) {
	if !ValidID(id) {
		return nil, fmt.Errorf("volume %q: %w on this node", id, ErrNotFound)
	}
	raw, err := os.ReadFile(s.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("volume %s: %w on this node", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of volume %s: %w", id, err)
	}
	var r Record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("state file %s is damaged: %w", s.path(id), err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("state file %s has format version %d, this driver knows %d; run a newer driver", s.path(id), r.Version, recordVersion)
	}
	if r.ID != id {
		return nil, fmt.Errorf("state file %s describes volume %q", s.path(id), r.ID)
	}
	return &r, nil
}

// Put makes r durable: a temporary file is written and synced, renamed over the old record, and the directory is synced.
func (s *Store) Put(r *Record) error {
	r.Version = recordVersion
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the state of volume %s: %w", r.ID, err)
	}
	if err := WriteFileDurable(s.path(r.ID), append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the state of volume %s: %w", r.ID, err)
	}
	return nil
}

// Remove forgets a volume. It is no error when the store does not know it.
func (s *Store) Remove(id string) error {
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the state of volume %s: %w", id, err)
	}
	if err := SyncDir(s.dir); err != nil {
		return fmt.Errorf("remove the state of volume %s: %w", id, err)
	}
	return nil
}

// List returns all records that can be read, and an error that joins what is wrong with the others.
func (s *Store) List() ([]*Record, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list the state directory: %w", err)
	}
	var records []*Record
	var errs []error
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok || !ValidID(id) {
			continue // temporary files of an interrupted write
		}
		r, err := s.Get(id)
		if errors.Is(err, ErrNotFound) {
			continue // removed while we were reading
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		records = append(records, r)
	}
	return records, errors.Join(errs...)
}

// WriteFileDurable replaces a file as a whole; when it returns the new content survives a power loss.
func WriteFileDurable(path string, content []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = writeAndClose(tmp, content, mode)
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return SyncDir(dir)
}

func writeAndClose(f *os.File, content []byte, mode fs.FileMode) error {
	_, err := f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// SyncDir makes renames and removals in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
