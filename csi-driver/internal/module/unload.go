// SPDX-License-Identifier: Apache-2.0

package module

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
)

// Unload removes the module from the kernel, for an operator who asks for it. Nothing else in the driver calls it. It
// refuses while anything uses the module, and names the mounts it can see; the kernel's reference count also knows
// those of other namespaces.
func Unload(k Kernel) error { return unload(k, realSystem{}) }

func unload(k Kernel, s system) error {
	loaded, err := k.loaded()
	if err != nil {
		return err
	}
	if loaded == "" {
		return fmt.Errorf("module %s is not loaded", Name)
	}
	users, err := k.users()
	if err != nil {
		return err
	}
	mounts, err := k.mounts()
	if err != nil {
		return err
	}
	if users > 0 || len(mounts) > 0 {
		where := "in other mount namespaces"
		if len(mounts) > 0 {
			where = "at " + strings.Join(mounts, ", ")
		}
		return fmt.Errorf(
			"module %s is in use by %d file systems, mounted %s; it is not unloaded. Delete the pods that use them first", Name,
			max(users, 1), where)
	}
	err = s.unload()
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("module %s came into use meanwhile; it is not unloaded: %w", Name, err)
	}
	if err != nil {
		return fmt.Errorf("unload module %s: %w", Name, err)
	}
	return nil
}

// mounts returns where file systems of the module's type are mounted, as the node and this process see it.
func (k Kernel) mounts() ([]string, error) {
	var paths []string
	for _, process := range []string{"1", "self"} {
		list, err := mountutils.ParseMountInfo(k.Proc + "/" + process + "/mountinfo")
		if err != nil {
			return nil, fmt.Errorf("look for mounts of type %s: %w", FileSystemType, err)
		}
		for _, m := range list {
			if m.FsType == FileSystemType && !slices.Contains(paths, m.MountPoint) {
				paths = append(paths, m.MountPoint)
			}
		}
	}
	return paths, nil
}
