// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const sectorSize = 512

// BadBytes returns how many bytes of a block device, given by its numbers, the kernel knows to be unreadable. For a
// logical volume or a partition it is what the memory below it has lost, in the volume or beside it: the kernel does
// not say where it falls. sysfs is the directory where that is mounted.
func BadBytes(sysfs string, major, minor uint32) (int64, error) {
	// The link leads into the tree of devices, where a partition is below its disk.
	dir, err := filepath.EvalSymlinks(filepath.Join(sysfs, "dev", "block", fmt.Sprintf("%d:%d", major, minor)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // it went away meanwhile
	}
	if err != nil {
		return 0, fmt.Errorf("device %d:%d in sysfs: %w", major, minor, err)
	}
	return badBytes(dir)
}

func badBytes(dir string) (int64, error) {
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	content, err := os.ReadFile(filepath.Join(dir, "badblocks"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("bad blocks: %w", err)
	}
	bad, err := parseBadBlocks(string(content))
	if err != nil {
		return 0, fmt.Errorf("bad blocks of %s: %w", filepath.Base(dir), err)
	}
	below, err := filepath.Glob(filepath.Join(dir, "slaves", "*"))
	if err != nil {
		return 0, fmt.Errorf("devices below %s: %w", filepath.Base(dir), err)
	}
	for _, link := range below {
		lower, err := filepath.EvalSymlinks(link)
		if err != nil {
			return 0, fmt.Errorf("devices below %s: %w", filepath.Base(dir), err)
		}
		more, err := badBytes(lower)
		if err != nil {
			return 0, err
		}
		bad += more
	}
	return bad, nil
}

// parseBadBlocks adds up lines of "first sector, number of sectors".
func parseBadBlocks(content string) (int64, error) {
	var bad int64
	for line := range strings.Lines(content) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var first, count int64
		if _, err := fmt.Sscanf(line, "%d %d", &first, &count); err != nil || first < 0 || count < 0 {
			return 0, fmt.Errorf("the line %q is not understood", strings.TrimSpace(line))
		}
		bad += count * sectorSize
	}
	return bad, nil
}
