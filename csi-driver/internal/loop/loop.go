// SPDX-License-Identifier: Apache-2.0

// Package loop attaches files to loop devices. Loop devices belong to the whole machine, also to containers and
// namespaces that know nothing of us, so a device is found by the file behind it (file system and inode), never by a
// remembered number.
package loop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

const (
	control   = "/dev/loop-control"
	sysBlock  = "/sys/block"
	loopMajor = 7

	// Another user of loop devices can take the free device we were just told about.
	attachAttempts = 32
	// Detaching is asynchronous while somebody else holds the device; most (a scan by udev or blkid) do so for a moment
	// only.
	detachTimeout = 3 * time.Second
	detachPoll    = 20 * time.Millisecond
)

// Attach returns the loop device of file, attaching one when there is none.
func Attach(ctx context.Context, file string) (string, error) {
	if dev, err := Find(file); err != nil {
		return "", err
	} else if dev != "" {
		kept, err := keep(dev, file)
		if err != nil {
			return "", fmt.Errorf("attach %s to a loop device: %w", file, err)
		}
		if kept {
			return dev, nil
		}
	}
	backing, err := os.OpenFile(file, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("attach %s to a loop device: %w", file, err)
	}
	defer backing.Close()
	for range attachAttempts {
		dev, err := attachFree(ctx, backing)
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("attach %s to a loop device: %w", file, err)
		}
		return dev, nil
	}
	return "", fmt.Errorf("attach %s to a loop device: every free device was taken by somebody else, %d times", file,
		attachAttempts)
}

func attachFree(ctx context.Context, backing *os.File) (string, error) {
	ctl, err := os.OpenFile(control, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("%w (is the loop module loaded and /dev mounted from the host?)", err)
	}
	defer ctl.Close()
	number, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", fmt.Errorf("ask for a free loop device: %w", err)
	}
	path := fmt.Sprintf("/dev/loop%d", number)
	if err := ensureNode(path, number); err != nil {
		return "", err
	}
	dev, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer dev.Close()
	config := unix.LoopConfig{Fd: uint32(backing.Fd())}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], filepath.Base(backing.Name()))
	if err := unix.IoctlLoopConfigure(int(dev.Fd()), &config); err != nil {
		return "", fmt.Errorf("configure %s: %w", path, err)
	}
	// That a device is read-only is remembered by its number, whatever file it has had since.
	if err := unix.IoctlSetPointerInt(int(dev.Fd()), unix.BLKROSET, 0); err != nil {
		return "", errors.Join(fmt.Errorf("make %s writable: %w", path, err),
			unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0))
	}
	// Direct I/O saves the second copy in the page cache. Not every file system can do it, and without it all is well too.
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_DIRECT_IO, 1); err != nil {
		klog.FromContext(ctx).V(4).Info("No direct I/O to the backing file", "device", path, "file", backing.Name(),
			"err", err)
	}
	return path, nil
}

// keep takes back that a device is to be detached as soon as its last user is gone (see Detach). Otherwise its number
// would be another file's after the next close, and whoever goes by the number would have that file. kept is false when
// it is too late.
func keep(path, file string) (kept bool, err error) {
	var want unix.Stat_t
	if err := unix.Stat(file, &want); err != nil {
		return false, err
	}
	dev, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer dev.Close() // as long as it is open it is not detached
	info, err := statusOf(dev)
	if errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if info.Device != want.Dev || info.Inode != want.Ino {
		return false, nil
	}
	if info.Flags&unix.LO_FLAGS_AUTOCLEAR == 0 {
		return true, nil
	}
	info.Flags &^= unix.LO_FLAGS_AUTOCLEAR
	err = unix.IoctlLoopSetStatus64(int(dev.Fd()), info)
	if errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("keep %s attached: %w", path, err)
	}
	return true, nil
}

// ensureNode makes the device node where /dev is not kept by the kernel (devtmpfs) but is a directory of a container.
func ensureNode(path string, number int) error {
	err := unix.Mknod(path, unix.S_IFBLK|0o660, int(unix.Mkdev(loopMajor, uint32(number))))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

// Find returns the loop device whose backing file is file, or "" when there is none (or no such file).
func Find(file string) (string, error) {
	var want unix.Stat_t
	if err := unix.Stat(file, &want); errors.Is(err, unix.ENOENT) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("look for the loop device of %s: %w", file, err)
	}
	entries, err := os.ReadDir(sysBlock)
	if err != nil {
		return "", fmt.Errorf("look for the loop device of %s: %w", file, err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "loop") {
			continue
		}
		// The name is read first, because opening a device that is somebody else's would keep it busy.
		name, err := os.ReadFile(filepath.Join(sysBlock, e.Name(), "loop", "backing_file"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
			continue // not attached, or just detached
		}
		if err != nil {
			return "", fmt.Errorf("look for the loop device of %s: %w", file, err)
		}
		if filepath.Base(strings.TrimSpace(string(name))) != filepath.Base(file) {
			continue
		}
		path := "/dev/" + e.Name()
		info, err := status(path)
		if errors.Is(err, unix.ENXIO) {
			continue // detached since
		}
		if err != nil {
			return "", fmt.Errorf("look for the loop device of %s: %w", file, err)
		}
		if info.Device == want.Dev && info.Inode == want.Ino {
			return path, nil
		}
	}
	return "", nil
}

func status(path string) (*unix.LoopInfo64, error) {
	dev, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	return statusOf(dev)
}

func statusOf(dev *os.File) (*unix.LoopInfo64, error) {
	info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", dev.Name(), err)
	}
	return info, nil
}

// Detach detaches file's loop device and waits a little until it is free. It is no error when there is none. A device
// that stays in use, because another mount namespace got a copy of the mount, is left to the kernel, which was told to
// detach it as soon as its last user is gone; an Attach before that finds it and takes that back.
func Detach(ctx context.Context, file string) error {
	deadline := time.Now().Add(detachTimeout)
	for {
		dev, err := Find(file)
		if err != nil || dev == "" {
			return err
		}
		if err := clear(dev); err != nil {
			return fmt.Errorf("detach %s from %s: %w", dev, file, err)
		}
		if time.Now().After(deadline) {
			klog.FromContext(ctx).Info(
				"A loop device is still in use by somebody else; the kernel detaches it when they are done", "device", dev,
				"file", file)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("detach %s from %s: %w", dev, file, ctx.Err())
		case <-time.After(detachPoll):
		}
	}
}

func clear(path string) error {
	dev, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer dev.Close()
	// ENXIO: it was detached between our look and our call.
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return err
	}
	return nil
}

// Resize lets a loop device see that its file has grown.
func Resize(path string) error {
	dev, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("grow %s: %w", path, err)
	}
	defer dev.Close()
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("grow %s: %w", path, err)
	}
	return nil
}
