// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// capability is what we can do with a volume, out of everything CSI can ask for.
type capability struct {
	// block: the device itself, without a file system.
	block    bool
	fsType   string
	flags    []string
	readOnly bool
	// exclusive: one target path at a time (ReadWriteOncePod).
	exclusive bool
}

// parseCapability refuses what a volume on one node cannot offer.
func parseCapability(c *csi.VolumeCapability) (capability, error) {
	if c == nil {
		return capability{}, missing("volume capability")
	}
	out := capability{block: c.GetBlock() != nil}
	if m := c.GetMount(); m != nil {
		out.fsType, out.flags = m.GetFsType(), m.GetMountFlags()
		if m.GetVolumeMountGroup() != "" {
			// Not offered (VOLUME_MOUNT_GROUP), so no kubelet asks: it changes ownership itself (fsGroupPolicy: File).
			return out, fmt.Errorf("%w: the driver does not mount for a group; kubelet applies fsGroup itself",
				volume.ErrInvalid)
		}
	} else if !out.block {
		return out, fmt.Errorf("%w: the volume capability has no access type", volume.ErrInvalid)
	}
	if out.fsType != "" {
		if err := volume.CheckFSType(out.fsType); err != nil {
			return out, err
		}
	}
	switch mode := c.GetAccessMode().GetMode(); mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		out.exclusive = true
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		// ReadOnlyMany: as many pods as like, all of them on the volume's node, where its topology keeps them.
		out.readOnly = true
	case csi.VolumeCapability_AccessMode_UNKNOWN:
		return out, fmt.Errorf("%w: the volume capability has no access mode", volume.ErrInvalid)
	default:
		return out, fmt.Errorf("%w: access mode %s (ReadWriteMany) is not offered: a volume lives on one node; use "+
			"ReadWriteOnce, which several pods of that node may share, ReadWriteOncePod, or ReadOnlyMany",
			volume.ErrInvalid, mode)
	}
	return out, nil
}

// parseCapabilities returns what all capabilities agree on: access type, file system type ("" when none names one) and
// whether only readers are meant; and the mount options of all of them.
func parseCapabilities(list []*csi.VolumeCapability) (capability, error) {
	var all capability
	if len(list) == 0 {
		return all, missing("volume capabilities")
	}
	for i, c := range list {
		parsed, err := parseCapability(c)
		if err != nil {
			return all, err
		}
		if i > 0 && parsed.block != all.block {
			return all, fmt.Errorf(
				"%w: the capabilities ask for a raw block volume and for a file system; a volume is one of them", volume.ErrInvalid)
		}
		all.block = parsed.block
		if all.fsType != "" && parsed.fsType != "" && parsed.fsType != all.fsType {
			return all, fmt.Errorf("%w: the capabilities name two file system types, %s and %s", volume.ErrInvalid, all.fsType,
				parsed.fsType)
		}
		if parsed.fsType != "" {
			all.fsType = parsed.fsType
		}
		all.flags = append(all.flags, parsed.flags...)
		all.readOnly = parsed.readOnly && (i == 0 || all.readOnly)
	}
	return all, nil
}

// chooseFSType merges what the capabilities and the StorageClass say; XFS when neither says anything. A raw block
// volume has none, whatever the class says: one class serves both kinds of claims.
func chooseFSType(c capability, parameter string) (string, error) {
	switch {
	case c.block:
		return "", nil
	case c.fsType == "" && parameter == "":
		return volume.XFS, nil
	case c.fsType == "":
		return parameter, nil
	case parameter != "" && parameter != c.fsType:
		return "", fmt.Errorf("%w: the StorageClass names the file system type %s, the volume capability %s",
			volume.ErrInvalid, parameter, c.fsType)
	}
	return c.fsType, nil
}
