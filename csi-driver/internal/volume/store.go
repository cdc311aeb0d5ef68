// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/google/renameio/v2"
)

const recordSuffix = ".json"

// Store keeps one state file per volume in a directory. A write that returned is on the medium; a reader sees the old
// or the new record, never half of one. Callers hold the volume's lock.
type Store struct {
	dir   string
	what  string
	valid func(id string) bool
	// reserve is for PutReleasing.
	reserve *Reserve
}

// OpenStore opens the store of volumes in dir, which is created when it is not there.
func OpenStore(dir string) (*Store, error) { return openStore(dir, "volume", ValidID) }

// OpenSnapshots opens the store of snapshots, whose records are those of volumes nobody can use.
func OpenSnapshots(dir string) (*Store, error) { return openStore(dir, "snapshot", ValidSnapshotID) }

func openStore(dir, what string, valid func(id string) bool) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	if err := RemoveUnfinished(dir); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, what: what, valid: valid, reserve: NewReserve(dir)}
	return s, s.reserve.Keep()
}

func (s *Store) path(id string) string { return filepath.Join(s.dir, id+recordSuffix) }

// Get returns a volume's record, or ErrNotFound.
func (s *Store) Get(id string) (*Record, error) {
	if !s.valid(id) {
		return nil, fmt.Errorf("%s %q: %w on this node", s.what, id, ErrNotFound)
	}
	raw, err := os.ReadFile(s.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s %s: %w on this node", s.what, id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of %s %s: %w", s.what, id, err)
	}
	var r Record
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("state file %s is damaged: %w", s.path(id), err)
	}
	if r.Version < 1 || r.Version > recordVersion {
		return nil, fmt.Errorf("%w: state file %s has the format version %d, this driver knows 1 to %d; the volume is left "+
			"alone until the driver that wrote it, or a newer one, runs again",
			ErrPrecondition, s.path(id), r.Version, recordVersion)
	}
	if r.ID != id {
		return nil, fmt.Errorf("state file %s describes volume %q", s.path(id), r.ID)
	}
	if r.read, err = decodeTree(raw); err != nil {
		return nil, fmt.Errorf("state file %s is damaged: %w", s.path(id), err)
	}
	return &r, nil
}

// encode returns a record as it is stored, with what an other driver's version had added to it.
func encode(r *Record) ([]byte, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	tree, err := decodeTree(raw)
	if err != nil {
		return nil, err
	}
	carryUnknown(r.read, tree, reflect.TypeFor[Record]())
	return json.MarshalIndent(tree, "", "  ")
}

// Put makes r durable: a temporary file is written and synced, renamed over the old record, and the directory is
// synced. On a file system that is full it fails with ErrExhausted, and the old record stays.
func (s *Store) Put(r *Record) error {
	if err := s.put(r); err != nil {
		return err
	}
	return s.reserve.Keep()
}

// PutReleasing is Put for a record by which something is used no more, or is about to go. It has room also on a file
// system that is full.
func (s *Store) PutReleasing(r *Record) error {
	return s.reserve.Use(func() error { return s.put(r) })
}

func (s *Store) put(r *Record) error {
	r.Version = firstVersion
	if r.Erase.Wanted() {
		r.Version = eraseVersion
	}
	if r.Cut && r.Phase == PhaseCreating {
		r.Version = cutVersion
	}
	raw, err := encode(r)
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
	if err := RemoveIfThere(s.path(id)); err != nil {
		return fmt.Errorf("remove the state of volume %s: %w", id, err)
	}
	if err := SyncDir(s.dir); err != nil {
		return fmt.Errorf("remove the state of volume %s: %w", id, err)
	}
	return s.reserve.Keep()
}

// IDs returns the IDs of all records, also of those that cannot be read.
func (s *Store) IDs() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list the state directory: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), recordSuffix); ok && s.valid(id) {
			ids = append(ids, id) // all else are temporary files of an interrupted write
		}
	}
	return ids, nil
}

// List returns all records that can be read, and an error that joins what is wrong with the others.
func (s *Store) List() ([]*Record, error) {
	ids, err := s.IDs()
	if err != nil {
		return nil, err
	}
	var records []*Record
	var errs []error
	for _, id := range ids {
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

// unfinished are the names of files that are not in their place yet: what renameio calls those of WriteFileDurable, and
// SetSymlink and older drivers theirs.
var unfinished = regexp.MustCompile(`^\..*(\D\d+|\.tmp)$`)

// RemoveUnfinished removes from a directory what WriteFileDurable and SetSymlink left when their process was killed.
// Called before anything is written there.
func RemoveUnfinished(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for unfinished files in %s: %w", dir, err)
	}
	for _, entry := range entries {
		if entry.IsDir() || !unfinished.MatchString(entry.Name()) {
			continue
		}
		if err := RemoveIfThere(filepath.Join(dir, entry.Name())); err != nil {
			return fmt.Errorf("remove an unfinished file: %w", err)
		}
	}
	return nil
}

// RemoveIfThere removes a file. It is no error when there is none.
func RemoveIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// WriteFileDurable replaces a file as a whole; when it returns the new content survives a power loss.
func WriteFileDurable(path string, content []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithStaticPermissions(mode))
	if err != nil {
		return RoomError(dir, err)
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.CloseAtomicallyReplace()
	}
	if err != nil {
		return RoomError(dir, errors.Join(err, file.Cleanup()))
	}
	return SyncDir(dir) // renameio syncs the file alone
}

// SetSymlink makes path a symbolic link to target, in place of what was there, durably and at once.
func SetSymlink(target, path string) error {
	dir := filepath.Dir(path)
	tmp := filepath.Join(dir, "."+filepath.Base(path)+".link.tmp")
	if err := RemoveIfThere(tmp); err != nil {
		return err
	}
	if err := os.Symlink(target, tmp); err != nil {
		return RoomError(dir, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return SyncDir(dir)
}

// SyncDir makes renames and removals in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
