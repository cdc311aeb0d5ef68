// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"splitfs.io/splitfs/internal/contract"
)

// mounts adds the mounts of the library's volume to a container, or refuses a container whose own leave no room for
// them: the directory with the library, and, for programs that the container's variables do not reach, the files by
// which they find it.
func (m *mutation) mounts(at []any, c *corev1.Container) error {
	wanted := []corev1.VolumeMount{
		{Name: m.libraryVolume, MountPath: contract.LibraryDir, ReadOnly: true},
		{Name: m.libraryVolume, MountPath: contract.ConfigFile, SubPath: path.Join(contract.ConfigSubPath, c.Name),
			ReadOnly: true},
		{Name: m.libraryVolume, MountPath: contract.PreloadFile, SubPath: contract.PreloadSubPath, ReadOnly: true},
	}
	there := map[string]bool{}
	for i := range c.VolumeMounts {
		mount := &c.VolumeMounts[i]
		where := path.Clean("/" + mount.MountPath)
		earlier := slices.IndexFunc(wanted, func(w corev1.VolumeMount) bool { return w.MountPath == where })
		if mount.Name == m.libraryVolume && m.libraryIndex >= 0 && earlier >= 0 {
			there[where] = true
			if err := m.renew(append(at[:len(at):len(at)], "volumeMounts", i), wanted[earlier]); err != nil {
				return fmt.Errorf("container %s: change mount: %w", contract.Name(c.Name), err)
			}
			continue
		}
		if err := leavesRoom(c, mount, where); err != nil {
			return err
		}
		// What the container mounts at or around the dynamic linker's file is its own business.
		if where == contract.PreloadFile || where == path.Dir(contract.PreloadFile) {
			there[contract.PreloadFile] = true
			m.warnings = append(m.warnings,
				fmt.Sprintf("container %s mounts volume %s at %s, so SplitFS does not put its %s there: programs that lose "+
					"LD_PRELOAD run without the library",
					contract.Name(c.Name), contract.Name(mount.Name), contract.Quote(mount.MountPath), contract.PreloadFile))
		}
	}
	count := len(c.VolumeMounts)
	for _, mount := range wanted {
		if there[mount.MountPath] {
			continue
		}
		if err := m.doc.Insert(mount, append(at[:len(at):len(at)], "volumeMounts", count)...); err != nil {
			return fmt.Errorf("container %s: add mount: %w", contract.Name(c.Name), err)
		}
		count++
	}
	return nil
}

// renew makes a mount of an earlier invocation what is wanted. A pod may have been made from the text of another that
// was injected, with containers of other names.
func (m *mutation) renew(at []any, wanted corev1.VolumeMount) error {
	if err := m.doc.Set(true, append(at[:len(at):len(at)], "readOnly")...); err != nil {
		return err
	}
	if wanted.SubPath == "" {
		return nil
	}
	return m.doc.Set(wanted.SubPath, append(at[:len(at):len(at)], "subPath")...)
}

// leavesRoom refuses a mount of a container's own where the library has to be.
func leavesRoom(c *corev1.Container, mount *corev1.VolumeMount, where string) error {
	switch {
	case where == contract.LibraryDir, strings.HasPrefix(where, contract.LibraryDir+"/"):
		return denied(ReasonConflict,
			"container %s mounts volume %s at %s, where SplitFS puts its library; choose a mountPath outside %s or set "+
				"annotation %s: \"false\"",
			contract.Name(c.Name), contract.Name(mount.Name), contract.Quote(mount.MountPath), contract.LibraryDir,
			contract.AnnotationInject)
	case where == path.Dir(contract.LibraryDir) && mount.ReadOnly:
		return denied(ReasonConflict,
			"container %s mounts volume %s read-only at %s, so that %s cannot be created in it; choose another mountPath or "+
				"set annotation %s: \"false\"",
			contract.Name(c.Name), contract.Name(mount.Name), contract.Quote(mount.MountPath), contract.LibraryDir,
			contract.AnnotationInject)
	}
	return nil
}
