// SPDX-License-Identifier: Apache-2.0

// Package blank tells whether a block device holds anybody's data, before it is taken into use.
package blank

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/command"
)

// headBytes must be zero at both ends of a device without signatures: data that no program marks (a pool of libpmemobj,
// a database's own format) begins there too.
const headBytes = 4 << 20

// Signatures returns the types of all that is known to be on a device: file systems, partition tables, volume managers.
func Signatures(ctx context.Context, device string) ([]string, error) {
	var report struct {
		Signatures []struct {
			Type string `json:"type"`
		} `json:"signatures"`
	}
	out, err := command.Run(ctx, "wipefs", "--json", "--no-act", device)
	if err != nil {
		return nil, fmt.Errorf("look for signatures on %s: %w", device, err)
	}
	if len(bytes.TrimSpace(out)) == 0 { // older versions print nothing when they find nothing
		return nil, nil
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, fmt.Errorf("look for signatures on %s: decode the output of wipefs: %w", device, err)
	}
	var types []string
	for _, s := range report.Signatures {
		types = append(types, s.Type)
	}
	return types, nil
}

// Check returns an error that says what is there when a device is not blank.
func Check(ctx context.Context, device string) error {
	types, err := Signatures(ctx, device)
	if err != nil {
		return err
	}
	if len(types) > 0 {
		return fmt.Errorf("%s is in use: it holds %s", device, strings.Join(types, ", "))
	}
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look for data on %s: %w", device, err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("size of %s: %w", device, err)
	}
	for _, offset := range []int64{0, max(0, size-headBytes)} {
		zero, err := zeros(f, offset, min(headBytes, size-offset))
		if err != nil {
			return fmt.Errorf("look for data on %s: %w", device, err)
		}
		if !zero {
			return fmt.Errorf("%s holds data that no program has marked as its own (around byte %d)", device, offset)
		}
	}
	return nil
}

func zeros(f io.ReaderAt, offset, length int64) (bool, error) {
	buffer := make([]byte, length)
	if _, err := f.ReadAt(buffer, offset); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(buffer, func(b byte) bool { return b != 0 }), nil
}

// Wipe removes what Signatures finds. For devices made just now out of free space, where old signatures mean nothing.
func Wipe(ctx context.Context, device string) error {
	if _, err := command.Run(ctx, "wipefs", "--all", "--quiet", device); err != nil {
		return fmt.Errorf("remove old signatures from %s: %w", device, err)
	}
	return nil
}
