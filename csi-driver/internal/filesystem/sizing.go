// SPDX-License-Identifier: Apache-2.0

package filesystem

import "splitfs.io/splitfs/csi-driver/internal/volume"

// What a file system takes of its device before the first byte is stored. Upper estimates, held true by a test that
// runs the real mkfs; what is still missing after mkfs is added by growing (see the node's stage).
const (
	// mkfs.xfs refuses devices below 300 MiB.
	minXFS = 320 * volume.MiB
	// 64 MiB log and 32 MiB that the kernel keeps back for metadata when space runs out.
	xfsFixed = 100 * volume.MiB
	// Reservations of each allocation group for its reflink and inode trees, and the log of large file systems: together
	// 0.75 %.
	xfsShare = 80

	minExt4 = 64 * volume.MiB
	// The journal of small file systems and the descriptors; least is left at 2 GiB, from where on the journal has 64 MiB.
	ext4Fixed = 68 * volume.MiB
	// Inode tables take 1/64 (256 bytes per 16 KiB), the journal up to 1 GiB at 128 GiB; no blocks are kept for root.
	ext4Share = 36
)

// DeviceSize returns the size of a device whose file system has room for size bytes.
func DeviceSize(fsType string, size int64) int64 {
	if fsType == volume.Ext4 {
		return max(minExt4, volume.RoundUp(size+size/ext4Share+ext4Fixed))
	}
	return max(minXFS, volume.RoundUp(size+size/xfsShare+xfsFixed))
}

// LargestSize is the inverse: the most bytes that a device of deviceSize bytes is sure to have room for, 0 when none.
func LargestSize(fsType string, deviceSize int64) int64 {
	low, high := int64(0), deviceSize/volume.MiB // in MiB: low fits or is 0, high+1 does not
	for low < high {
		middle := (low + high + 1) / 2
		if DeviceSize(fsType, middle*volume.MiB) <= deviceSize {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low * volume.MiB
}

// LargestGrowth is how many more bytes a file system is sure to have room for when its device gets more of them, 0 when
// none.
func LargestGrowth(fsType string, more int64) int64 {
	share := int64(xfsShare)
	if fsType == volume.Ext4 {
		share = ext4Share
	}
	more -= volume.MiB // devices are rounded up
	return max(0, more/(share+1)*share/volume.MiB*volume.MiB)
}
