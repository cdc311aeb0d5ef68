// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"context"
	"fmt"
	"strconv"

	"splitfs.io/splitfs/csi-driver/internal/command"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// zeroStep is how much of a device is overwritten at once: so long it takes at most until an interrupted call ends.
const zeroStep = 256 * volume.MiB

// Zero writes zeros over a block device from a byte on and returns when they are on the medium. A device that is
// mounted, or that somebody else holds, is refused. After each step it says how far it has come: up to there all is on
// the medium.
func Zero(ctx context.Context, device string, start int64, done func(at int64) error) error {
	size, err := DeviceLength(device)
	if err != nil {
		return err
	}
	for at := start; at < size; {
		length := min(zeroStep, size-at)
		if _, err := command.Run(ctx, "blkdiscard", "--zeroout", "--offset", strconv.FormatInt(at, 10),
			"--length", strconv.FormatInt(length, 10), device); err != nil {
			return fmt.Errorf("write zeros over %s: %w", device, err)
		}
		if err := syncDevice(device); err != nil {
			return err
		}
		at += length
		if err := done(at); err != nil {
			return err
		}
	}
	return nil
}

// Whole is for those to whom the steps of Zero do not matter.
func Whole(int64) error { return nil }
