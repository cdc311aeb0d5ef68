// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	mountutils "k8s.io/mount-utils"

	"splitfs.io/splitfs/csi-driver/internal/loop"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestDeviceSizeHoldsWhatItPromises formats devices (sparse files: nothing is stored) and measures what is left of
// them.
func TestDeviceSizeHoldsWhatItPromises(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices and mounts file systems")
	}
	sizes := map[string][]int64{
		volume.XFS:  {1, 200, 500, 900, 1000, 1500, 4 << 10, 16 << 10, 100 << 10, 1 << 20},
		volume.Ext4: {1, 200, 500, 900, 1000, 1500, 1931, 1932, 4 << 10, 16 << 10, 100 << 10},
	}
	for fsType, list := range sizes {
		for _, mib := range list {
			t.Run(fmt.Sprintf("%s/%dMiB", fsType, mib), func(t *testing.T) { measure(t, fsType, mib*volume.MiB) })
		}
	}
}

// TestNewerMkfs: what mkfs.xfs makes by default has become more, since 6.5 a reverse mapping, and takes no room that
// was promised.
func TestNewerMkfs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices and mounts file systems")
	}
	real, err := exec.LookPath("mkfs.xfs")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	newer := "#!/bin/sh\ncase \"$*\" in *rmapbt=*) ;; *) set -- -m rmapbt=1 \"$@\" ;; esac\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "mkfs.xfs"), []byte(newer), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, mib := range []int64{900, 1500, 16 << 10} {
		t.Run(fmt.Sprintf("%dMiB", mib), func(t *testing.T) { measure(t, volume.XFS, mib*volume.MiB) })
	}
}

// TestGrownHoldsWhatItPromises: a file system keeps the layout that it was made with, and has room for what a larger
// one was promised all the same.
func TestGrownHoldsWhatItPromises(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices and mounts file systems")
	}
	for _, fsType := range []string{volume.XFS, volume.Ext4} {
		for _, grown := range [][2]int64{{64, 4 << 10}, {64, 100 << 10}, {64, 1 << 20}, {300, 4 << 10},
			{1500, 16 << 10}, {4 << 10, 200 << 10}} {
			from, to := grown[0]*volume.MiB, grown[1]*volume.MiB
			t.Run(fmt.Sprintf("%s/%d to %d MiB", fsType, grown[0], grown[1]), func(t *testing.T) {
				image, dev, mountPath := mounted(t, fsType, from)
				must := fatal(t)
				must(os.Truncate(image, DeviceSize(fsType, to)))
				must(loop.Resize(dev))
				if fsType == volume.XFS {
					must(Grow(t.Context(), dev, mountPath, fsType))
				} else { // in use it becomes the same, and not every machine lets us do that
					mounter := mountutils.NewWithoutSystemd("")
					must(mounter.Unmount(mountPath))
					must(GrowUnmounted(t.Context(), dev))
					must(mounter.Mount(dev, mountPath, fsType, nil))
				}
				checkRoom(t, fsType, mountPath, to)
			})
		}
	}
}

func measure(t *testing.T, fsType string, size int64) {
	_, _, mountPath := mounted(t, fsType, size)
	checkRoom(t, fsType, mountPath, size)
}

func fatal(t *testing.T) func(err error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// mounted makes and mounts a file system that has room for size bytes.
func mounted(t *testing.T, fsType string, size int64) (image, dev, mountPath string) {
	t.Helper()
	ctx, dir := context.Background(), t.TempDir()
	image, mountPath = filepath.Join(dir, fmt.Sprintf("%s-%d.img", fsType, size)), filepath.Join(dir, "mount")
	must := fatal(t)
	must(os.WriteFile(image, nil, 0o600))
	must(os.Truncate(image, DeviceSize(fsType, size)))
	dev, err := loop.Attach(ctx, image)
	must(err)
	t.Cleanup(func() {
		if err := loop.Detach(context.Background(), image); err != nil {
			t.Error(err)
		}
	})
	must(Format(ctx, dev, fsType))
	if found, err := Type(ctx, dev); err != nil || found != fsType {
		t.Errorf("formatted as %s, found %q, %v", fsType, found, err)
	}
	must(Check(ctx, dev, fsType))
	must(os.Mkdir(mountPath, 0o700))
	mounter := mountutils.NewWithoutSystemd("")
	must(mounter.Mount(dev, mountPath, fsType, nil))
	t.Cleanup(func() {
		if err := mounter.Unmount(mountPath); err != nil {
			t.Error(err)
		}
	})
	return image, dev, mountPath
}

func checkRoom(t *testing.T, fsType, mountPath string, size int64) {
	t.Helper()
	usage, err := Measure(mountPath)
	fatal(t)(err)
	if usage.Available < size {
		t.Errorf("a device of %d MiB has room for %d MiB, promised are %d MiB", DeviceSize(fsType, size)/volume.MiB,
			usage.Available/volume.MiB, size/volume.MiB)
	}
	if waste := usage.Available - size; waste > max(350*volume.MiB, size/40) {
		t.Errorf("%d MiB more than promised: the estimate is far off", waste/volume.MiB)
	}
}

func TestLargestSizeIsTheInverse(t *testing.T) {
	for _, fsType := range []string{volume.XFS, volume.Ext4} {
		for _, deviceMiB := range []int64{0, 1, 100, 319, 320, 321, 1000, 1023, 12345, 7 << 20} {
			size := LargestSize(fsType, deviceMiB*volume.MiB)
			if size > 0 && DeviceSize(fsType, size) > deviceMiB*volume.MiB {
				t.Errorf("%s: %d MiB do not fit a device of %d MiB", fsType, size/volume.MiB, deviceMiB)
			}
			if next := size + volume.MiB; DeviceSize(fsType, next) <= deviceMiB*volume.MiB {
				t.Errorf("%s: a device of %d MiB has room for more than %d MiB", fsType, deviceMiB, size/volume.MiB)
			}
		}
	}
}

func TestFormatRefusesOtherTypes(t *testing.T) {
	if err := Format(context.Background(), "/dev/null", "btrfs"); err == nil {
		t.Error("btrfs was accepted")
	}
}
