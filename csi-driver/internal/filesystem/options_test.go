// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

func TestMountOptions(t *testing.T) {
	const selinux = `context="system_u:object_r:container_file_t:s0:c1,c2"`
	for _, c := range []struct {
		fsType  string
		asked   []string
		dax     bool
		want    []string
		message string // of the error, when one is expected
	}{
		{fsType: volume.XFS},
		{fsType: volume.XFS, dax: true, want: []string{"dax=always"}},
		{fsType: volume.Ext4, asked: []string{"dax", "noatime"}, dax: true,
			want: []string{"noatime", "dax=always", onErrors}},
		{fsType: volume.XFS, asked: []string{"noatime,nodev", "logbufs=8"}, want: []string{"noatime", "nodev", "logbufs=8"}},
		{fsType: volume.Ext4, asked: []string{selinux, "commit=5"}, want: []string{selinux, "commit=5", onErrors}},
		{fsType: volume.Ext4, asked: []string{"noatime," + selinux}, want: []string{"noatime", selinux, onErrors}},
		{fsType: volume.Ext4, asked: []string{"errors=panic"}, want: []string{"errors=panic"}},
		{fsType: volume.Ext4, asked: []string{onErrors}, want: []string{onErrors}},
		{fsType: volume.XFS, asked: []string{"dax=always"}, message: "the volume is emulated"},
		{fsType: volume.XFS, asked: []string{"dax=never"}, dax: true, message: "always mapped directly"},
		{fsType: volume.Ext4, asked: []string{"noatime,nobarrier"},
			message: `"nobarrier" is not allowed: a write that was reported durable`},
		{fsType: volume.Ext4, asked: []string{"barrier=0"}, message: "reported durable"},
		{fsType: volume.Ext4, asked: []string{"data=writeback"}, message: "others had stored"},
		{fsType: volume.Ext4, asked: []string{"data=journal"}, message: "neither mapped"},
		{fsType: volume.XFS, asked: []string{"norecovery"}, message: "has to be replayed"},
		{fsType: volume.XFS, asked: []string{"ro"}, message: "ReadOnlyMany"},
		{fsType: volume.XFS, asked: []string{"commit=5"},
			message: `"commit=5" is not known to keep what a volume promises on xfs; allowed: rw,`},
		{fsType: volume.Ext4, asked: []string{"allocsize=1m"}, message: "on ext4"},
		{fsType: volume.Ext4, asked: []string{"commit="}, message: `"commit="`},
		{fsType: volume.XFS, asked: []string{"loop"}, message: `"loop"`},
	} {
		got, err := MountOptions(c.fsType, c.asked, c.dax)
		switch {
		case c.message == "" && (err != nil || !slices.Equal(got, c.want)):
			t.Errorf("%s %q: %q, %v; wanted %q", c.fsType, c.asked, got, err, c.want)
		case c.message != "" && (!errors.Is(err, volume.ErrInvalid) || !strings.Contains(err.Error(), c.message)):
			t.Errorf("%s %q: error %v; wanted %q", c.fsType, c.asked, err, c.message)
		}
	}
}

func TestKernelLogNamesTheDevice(t *testing.T) {
	for text, want := range map[string]bool{
		"XFS (loop7): DAX unsupported by block device. Turning off DAX.": true,
		"EXT4-fs (loop7): DAX unsupported by block device.":              true,
		"XFS (loop70): Mounting V5 Filesystem":                           false,
		"loop: module loaded":                                            false,
	} {
		if got := mentions(text, deviceNames("/dev/loop7")); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
