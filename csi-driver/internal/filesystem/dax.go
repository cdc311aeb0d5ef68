// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// CheckDAX says whether files below a mounted root are mapped directly, by asking the kernel of a file that is made
// there and has no name. A mount option that was accepted proves nothing: XFS goes on without direct access when the
// device has none.
func CheckDAX(root string) error {
	fd, err := unix.Open(root, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("make a file at %s to see whether it is mapped directly (DAX): %w", root, err)
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st); err != nil {
		return fmt.Errorf("statx of a file at %s: %w", root, err)
	}
	if st.Attributes_mask&unix.STATX_ATTR_DAX == 0 || st.Attributes&unix.STATX_ATTR_DAX == 0 {
		return fmt.Errorf(
			"%w: files of the volume are not mapped directly (no DAX), although its device is persistent memory",
			volume.ErrPrecondition)
	}
	return nil
}

// KernelLog remembers a moment, so that what the kernel said about a device since then can be read.
type KernelLog struct{ fd int }

// WatchKernelLog starts now. Where the log cannot be read nothing is found in it.
func WatchKernelLog() *KernelLog {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &KernelLog{fd: -1}
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		unix.Close(fd)
		return &KernelLog{fd: -1}
	}
	return &KernelLog{fd: fd}
}

// Close ends the watch.
func (l *KernelLog) Close() {
	if l.fd >= 0 {
		unix.Close(l.fd)
	}
}

// About returns what the kernel said of a device, "" when it said nothing. Names of devices are short, so a line counts
// only when the name stands alone in it.
func (l *KernelLog) About(device string) string {
	if l.fd < 0 {
		return ""
	}
	names := deviceNames(device)
	var lines []string
	buffer := make([]byte, 8192)
	for {
		n, err := unix.Read(l.fd, buffer)
		if errors.Is(err, unix.EPIPE) {
			continue // overwritten since: the next read goes on with what is left
		}
		if err != nil || n <= 0 {
			return strings.Join(lines, "; ")
		}
		// "priority,sequence,time,flags;text\n KEY=value\n"
		_, text, _ := strings.Cut(string(buffer[:n]), ";")
		text, _, _ = strings.Cut(text, "\n")
		if mentions(text, names) {
			lines = append(lines, text)
		}
	}
}

// deviceNames returns what the kernel may call a device: a logical volume's node is a link to one named differently.
func deviceNames(device string) []string {
	names := []string{filepath.Base(device)}
	if real, err := filepath.EvalSymlinks(device); err == nil && filepath.Base(real) != names[0] {
		names = append(names, filepath.Base(real))
	}
	return names
}

func mentions(text string, names []string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ():,[]'\"", r) })
	for _, word := range words {
		for _, name := range names {
			if word == name {
				return true
			}
		}
	}
	return false
}

// Explain adds what the kernel said to an error.
func (l *KernelLog) Explain(err error, device string) error {
	if err == nil {
		return nil
	}
	if said := l.About(device); said != "" {
		return fmt.Errorf("%w (the kernel: %s)", err, said)
	}
	return err
}
