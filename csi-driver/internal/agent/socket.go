// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/selinux"
)

// backlog is how many programs may wait for an agent that is being replaced.
const backlog = 4096

// socket is the listening socket of a volume. It is bound where only root gets, and shown to programs under further
// names as long as an agent serves it or is about to.
type socket struct {
	file *os.File
	// bound is where it is bound, name is what programs look for.
	bound, name string
}

// listen makes the socket of a volume, in place of one that a supervisor before us left.
func listen(dir, id string, v Volume) (*socket, error) {
	var st unix.Stat_t
	if err := unix.Stat(v.Root, &st); err != nil {
		return nil, fmt.Errorf("socket of volume %s: %w", id, &os.PathError{Op: "stat", Path: v.Root, Err: err})
	}
	dev := uint64(st.Dev) //nolint:unconvert // its type differs between machines
	s := &socket{
		bound: filepath.Join(dir, id+".sock"),
		name:  fmt.Sprintf("%d-%d.sock", unix.Major(dev), unix.Minor(dev)),
	}
	if err := remove(s.bound); err != nil {
		return nil, fmt.Errorf("socket of volume %s: %w", id, err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket of volume %s: %w", id, err)
	}
	if s.file, err = socketFile(fd, s.bound); err != nil {
		return nil, fmt.Errorf("socket of volume %s: %w", id, err)
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: s.bound})
	if err == nil {
		// Every user of a pod may connect; what they may lease the agent decides.
		err = os.Chmod(s.bound, 0o666)
	}
	if err == nil {
		err = selinux.Label(s.bound, selinux.ReadWrite)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", s.bound, err), s.close())
	}
	return s, nil
}

// socketFile makes a file of a socket, whose calls never wait. A file that is made of a descriptor that does not wait
// already would make it wait later, for the agent too (os.File.Fd).
func socketFile(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, false); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), name)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// show gives the socket its name in each of the directories that are there.
func (s *socket) show(dirs ...string) error {
	var errs []error
	for _, dir := range dirs {
		if err := s.showIn(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("show socket %s in %s: %w", s.name, dir, err))
		}
	}
	return errors.Join(errs...)
}

func (s *socket) showIn(dir string) error {
	path := filepath.Join(dir, s.name)
	fresh := path + ".new"
	if err := remove(fresh); err != nil {
		return err
	}
	if err := os.Link(s.bound, fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	// When both were names of this socket already, rename has left the first.
	return remove(fresh)
}

// hide takes the names away.
func (s *socket) hide(dirs ...string) error {
	var errs []error
	for _, dir := range dirs {
		if err := remove(filepath.Join(dir, s.name)); err != nil {
			errs = append(errs, fmt.Errorf("hide socket %s: %w", s.name, err))
		}
	}
	return errors.Join(errs...)
}

// letGo ends the waiting of those who have connected: they do without an agent then, as if there had never been one.
func (s *socket) letGo() error {
	for {
		fd, _, err := unix.Accept4(int(s.file.Fd()), unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
			_ = unix.Close(fd) // nothing was written
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
		case errors.Is(err, unix.EAGAIN):
			return nil
		default:
			return fmt.Errorf("empty the queue of socket %s: %w", s.bound, err)
		}
	}
}

func (s *socket) close() error {
	return errors.Join(s.file.Close(), remove(s.bound))
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
