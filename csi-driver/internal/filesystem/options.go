// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"fmt"
	"slices"
	"strings"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Mount options a StorageClass or a PersistentVolume may name. The list says what is known to keep every promise of a
// volume; an option that is on no list is refused, because what it would do to them is not known.
var (
	commonOptions = []string{
		"rw", "defaults", "noatime", "relatime", "strictatime", "nodiratime", "lazytime", "nolazytime",
		"nosuid", "nodev", "noexec", "sync", "dirsync", "discard", "nodiscard",
	}
	commonKeys = []string{"context", "fscontext", "defcontext", "rootcontext"} // SELinux

	xfsOptions = []string{"inode64", "largeio", "nolargeio", "swalloc", "noalign", "ikeep", "noikeep", "wsync", "noquota",
		"prjquota", "pquota"}
	xfsKeys     = []string{"allocsize", "logbufs", "logbsize"}
	ext4Options = []string{
		"user_xattr", "acl", "noacl", "delalloc", "nodelalloc", "barrier", "barrier=1", "data=ordered", "errors=remount-ro",
		"errors=panic",
		"journal_checksum", "noauto_da_alloc", "auto_da_alloc", "i_version", "noquota", "prjquota", "block_validity",
		"init_itable", "noinit_itable",
	}
	ext4Keys = []string{"commit", "max_batch_time", "min_batch_time", "journal_ioprio"}
)

// onErrors keeps a damaged ext4 from being written to; what mkfs stores as the default is to go on. XFS shuts down by
// itself.
const onErrors = "errors=remount-ro"

// refused says of options that people do use what each would break.
var refused = map[string]string{
	"ro": "recovery has to write to the volume before anybody reads it; make the claim ReadOnlyMany " +
		"or set readOnly: true on the pod's volume",
	"nobarrier":            "a write that was reported durable could be lost with the power",
	"barrier=0":            "a write that was reported durable could be lost with the power",
	"data=writeback":       "after a crash a file could show what others had stored in its blocks before",
	"data=journal":         "data that passes through the journal can be neither mapped nor moved into its file",
	"norecovery":           "the journal holds what was reported durable and has to be replayed",
	"noload":               "the journal holds what was reported durable and has to be replayed",
	"errors=continue":      "a damaged file system would go on being written to",
	"journal_async_commit": "a transaction could be taken for committed that is not wholly on the medium",
	"nouuid":               "the driver gives copies an identity of their own",
	"dax=never":            "volumes on persistent memory are always mapped directly",
	"dax=inode":            "volumes on persistent memory are always mapped directly, every file of them",
	"nodax":                "volumes on persistent memory are always mapped directly",
}

// MountOptions checks the mount options that were asked for and returns those to mount with. With dax the file system
// is mounted with direct access for every file; without it a request for that is refused, because it could not be met.
func MountOptions(fsType string, asked []string, dax bool) ([]string, error) {
	options, keys := append(slices.Clone(commonOptions), xfsOptions...), append(slices.Clone(commonKeys), xfsKeys...)
	if fsType == volume.Ext4 {
		options, keys = append(slices.Clone(commonOptions), ext4Options...), append(slices.Clone(commonKeys), ext4Keys...)
	}
	var out []string
	for _, option := range splitOptions(asked) {
		key, value, hasValue := strings.Cut(option, "=")
		switch why, isRefused := refused[option]; {
		case isRefused:
			return nil, fmt.Errorf("%w: mount option %q is not allowed: %s", volume.ErrInvalid, option, why)
		case option == "dax", option == "dax=always":
			if !dax {
				return nil, fmt.Errorf(
					"%w: mount option %q cannot be met: the volume is emulated, and its device has no direct access",
					volume.ErrInvalid, option)
			}
			continue // added below
		case slices.Contains(options, option), hasValue && value != "" && slices.Contains(keys, key):
			out = append(out, option)
		default:
			return nil, fmt.Errorf(
				"%w: mount option %q is not known to keep what a volume promises on %s; allowed: %s, and with a value: %s",
				volume.ErrInvalid, option, fsType, strings.Join(options, ", "), strings.Join(keys, ", "))
		}
	}
	if dax {
		out = append(out, "dax=always")
	}
	if fsType == volume.Ext4 && !slices.Contains(out, "errors=panic") && !slices.Contains(out, onErrors) {
		out = append(out, onErrors)
	}
	return out, nil
}

// splitOptions splits at commas, but not inside quotes: an SELinux context has commas of its own.
func splitOptions(list []string) []string {
	var out []string
	for _, item := range list {
		quoted := false
		for option := range strings.FieldsFuncSeq(item, func(r rune) bool {
			quoted = quoted != (r == '"')
			return r == ',' && !quoted
		}) {
			out = append(out, strings.TrimSpace(option))
		}
	}
	return out
}
