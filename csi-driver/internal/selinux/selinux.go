// SPDX-License-Identifier: Apache-2.0

// Package selinux gives what the driver makes and programs of pods use a label that these may use, on nodes with
// SELinux. Without one it would have the label of the directory that it is made in, which is a service's and nothing to
// containers. Elsewhere it does nothing.
package selinux

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// The types are those of container-selinux and of the reference policy. Neither label has categories, so containers of
// all pods may use it: what they reach is decided by what is mounted.
const (
	// ReadOnly lets containers read and execute.
	ReadOnly = "system_u:object_r:container_ro_file_t:s0"
	// ReadWrite lets containers do everything with a file, and connect to a socket.
	ReadWrite = "system_u:object_r:container_file_t:s0"
)

const attribute = "security.selinux"

// Enabled says whether the node has SELinux, as libselinux finds out.
var Enabled = sync.OnceValue(func() bool { return knows("/proc/filesystems") })

func knows(fileSystems string) bool {
	content, err := os.ReadFile(fileSystems)
	return err == nil && strings.Contains(string(content), "\tselinuxfs\n")
}

var warnOnce sync.Once

// Label gives a file, a directory or a socket a label, unless it has that. Where a file system is mounted with one
// label for all its files there is nothing to do. A policy that does not know the label is reported, once: whether
// containers may use the file is the policy's business then, and a program that may not says so.
func Label(path, label string) error {
	if !Enabled() {
		return nil
	}
	have := make([]byte, 256)
	n, err := unix.Lgetxattr(path, attribute, have)
	if err == nil && string(bytes.TrimRight(have[:n], "\x00")) == label {
		return nil
	}
	switch err := unix.Lsetxattr(path, attribute, append([]byte(label), 0), 0); {
	case err == nil, errors.Is(err, unix.ENOTSUP):
		return nil
	case errors.Is(err, unix.EINVAL):
		warnOnce.Do(func() {
			klog.Warningf("The SELinux policy of this node does not know the label %q, so %s and other files keep theirs; "+
				"programs of pods may not be allowed to use them", label, path)
		})
		return nil
	default:
		return fmt.Errorf("give the SELinux label %s: %w", label, &os.PathError{Op: "lsetxattr", Path: path, Err: err})
	}
}

// LabelTree gives a directory and everything below it a label. What goes away meanwhile needs none.
func LabelTree(dir, label string) error {
	if !Enabled() {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = Label(path, label)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}
