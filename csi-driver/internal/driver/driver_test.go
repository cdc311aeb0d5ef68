// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		code codes.Code
	}{
		{nil, codes.OK},
		{fmt.Errorf("a: %w", volume.ErrInvalid), codes.InvalidArgument},
		{fmt.Errorf("a: %w", volume.ErrNotFound), codes.NotFound},
		{fmt.Errorf("a: %w", volume.ErrExists), codes.AlreadyExists},
		{fmt.Errorf("a: %w", volume.ErrBusy), codes.Aborted},
		{fmt.Errorf("a: %w", volume.ErrExhausted), codes.ResourceExhausted},
		{fmt.Errorf("a: %w", volume.ErrOutOfRange), codes.OutOfRange},
		{fmt.Errorf("a: %w", volume.ErrPrecondition), codes.FailedPrecondition},
		{fmt.Errorf("a: %w: %w", volume.ErrUnavailable, context.DeadlineExceeded), codes.DeadlineExceeded},
		{errors.Join(fmt.Errorf("a: %w", volume.ErrExhausted), errors.New("and the cleanup failed")),
			codes.ResourceExhausted},
		{errors.New("disk on fire"), codes.Internal},
		{status.Error(codes.Unimplemented, "no"), codes.Unimplemented},
	} {
		if got := status.Code(StatusOf(c.err)); got != c.code {
			t.Errorf("%v became %s, wanted %s", c.err, got, c.code)
		}
	}
}

func mount(fsType string, mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

func TestParseCapability(t *testing.T) {
	const writer = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	for _, c := range []struct {
		name string
		in   *csi.VolumeCapability
		ok   bool
	}{
		{"none", nil, false},
		{"no access type", &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: writer}}, false},
		{"no access mode",
			&csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}, false},
		{"block",
			&csi.VolumeCapability{
				AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: writer},
			}, true},
		{"writer", mount("", writer), true},
		{"xfs", mount("xfs", writer), true},
		{"btrfs", mount("btrfs", writer), false},
		{"many nodes", mount("", csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER), false},
		{"one of many writers", mount("", csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER), false},
		{"for a group", &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{VolumeMountGroup: "1000"}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: writer},
		}, false},
	} {
		_, err := parseCapability(c.in)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, volume.ErrInvalid) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, mode := range []csi.VolumeCapability_AccessMode_Mode{
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	} {
		if got, err := parseCapability(mount("", mode)); err != nil || !got.readOnly {
			t.Errorf("a reader, %s: %+v, %v", mode, got, err)
		}
	}
	if _, err := parseCapability(mount("", csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)); err == nil ||
		!strings.Contains(err.Error(), "ReadWriteMany) is not offered") {
		t.Errorf("ReadWriteMany: %v", err)
	}
	block := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: writer},
	}
	if _, err := parseCapabilities([]*csi.VolumeCapability{mount("xfs", writer), block}); !errors.Is(
		err, volume.ErrInvalid) {
		t.Errorf("a file system and a device at once: %v", err)
	}
	if got, err := parseCapability(mount("", csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER)); err != nil ||
		!got.exclusive {
		t.Errorf("a single writer: %+v, %v", got, err)
	}
	if _, err := parseCapabilities([]*csi.VolumeCapability{mount("xfs", writer), mount("ext4", writer)}); !errors.Is(
		err, volume.ErrInvalid) {
		t.Errorf("two file system types: %v", err)
	}
}

func TestCheckPath(t *testing.T) {
	for path, ok := range map[string]bool{
		"": false, "/": false, "a/b": false, "/a/../b": false, "/a/": false, "/a/b": true,
	} {
		if err := checkPath("target path", path); (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
	}
}
