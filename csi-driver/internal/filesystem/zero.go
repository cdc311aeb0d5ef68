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

// Zero writes zeros over a whole block device and returns when they are on the medium. A device that is mounted, or that somebody else
// holds, is refused. An interrupted call begins anew when it is repeated.
func Zero(ctx context.Context, device string) error {
	if _, err := command.Run(ctx, "blkdiscard", "--zeroout", "--step", strconv.FormatInt(zeroStep, 10), device); err != nil {
		return fmt.Errorf("write zeros over %s: %w", device, err)
	}
	return syncDevice(device)
}
