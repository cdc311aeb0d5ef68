// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"path"
	"strings"

	"splitfs.io/splitfs/internal/contract"
)

// maxMountPath is Linux' PATH_MAX without the final zero: no longer path can be opened.
const maxMountPath = 4095

// checkMountPath returns the absolute path a container runtime makes of a mount path, or refuses what SPLITFS_CONFIG
// cannot hold.
func checkMountPath(container, volume, mountPath string) (string, error) {
	container, volume = contract.Name(container), contract.Name(volume)
	if len(mountPath) > maxMountPath {
		return "", denied(ReasonMountPath,
			"container %s: the mountPath of volume %s has %d bytes; the longest allowed has %d",
			container, volume, len(mountPath), maxMountPath)
	}
	if strings.ContainsAny(mountPath, ":;") {
		return "", denied(ReasonMountPath,
			"container %s: the mountPath of volume %s contains ':' or ';', which separate the entries of %s; choose a "+
				"path without them",
			container, volume, contract.EnvConfig)
	}
	if strings.ContainsFunc(mountPath, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", denied(ReasonMountPath,
			"container %s: the mountPath of volume %s contains control characters; choose a path without them", container,
			volume)
	}
	return path.Clean("/" + mountPath), nil
}
