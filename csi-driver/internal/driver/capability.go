// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// mountCapability is what we can do with a volume, out of everything CSI can ask for.
type mountCapability struct {
	fsType   string
	flags    []string
	readOnly bool
	// exclusive: one target path at a time (ReadWriteOncePod).
	exclusive bool
}

// parseCapability refuses what a volume on one node, with a file system, cannot offer.
func parseCapability(c *csi.VolumeCapability) (mountCapability, error) {
	if c == nil {
		return mountCapability{}, missing("volume capability")
	}
	if c.GetBlock() != nil {
		return mountCapability{}, fmt.Errorf("%w: raw block volumes are not offered; SplitFS works on files: use volumeMode Filesystem", volume.ErrInvalid)
	}
	m := c.GetMount()
	if m == nil {
		return mountCapability{}, fmt.Errorf("%w: the volume capability has no access type", volume.ErrInvalid)
	}
	out := mountCapability{fsType: m.GetFsType(), flags: m.GetMountFlags()}
	if out.fsType != "" {
		if err := volume.CheckFSType(out.fsType); err != nil {
			return out, err
		}
	}
	switch mode := c.GetAccessMode().GetMode(); mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		out.exclusive = true
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		out.readOnly = true
	case csi.VolumeCapability_AccessMode_UNKNOWN:
		return out, fmt.Errorf("%w: the volume capability has no access mode", volume.ErrInvalid)
	default:
		return out, fmt.Errorf("%w: access mode %s is not offered: a volume lives on one node; use ReadWriteOnce or ReadWriteOncePod", volume.ErrInvalid, mode)
	}
	return out, nil
}

// parseCapabilities returns the file system type that all capabilities agree on, "" when none names one.
func parseCapabilities(list []*csi.VolumeCapability) (fsType string, err error) {
	if len(list) == 0 {
		return "", missing("volume capabilities")
	}
	for _, c := range list {
		parsed, err := parseCapability(c)
		if err != nil {
			return "", err
		}
		if fsType != "" && parsed.fsType != "" && parsed.fsType != fsType {
			return "", fmt.Errorf("%w: the capabilities name two file system types, %s and %s", volume.ErrInvalid, fsType, parsed.fsType)
		}
		if parsed.fsType != "" {
			fsType = parsed.fsType
		}
	}
	return fsType, nil
}

// chooseFSType merges what the capabilities and the StorageClass say; XFS when neither says anything.
func chooseFSType(capability, parameter string) (string, error) {
	switch {
	case capability == "" && parameter == "":
		return volume.XFS, nil
	case capability == "":
		return parameter, nil
	case parameter != "" && parameter != capability:
		return "", fmt.Errorf("%w: the StorageClass names the file system type %s, the volume capability %s", volume.ErrInvalid, parameter, capability)
	}
	return capability, nil
}
