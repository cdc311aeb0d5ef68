// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/attach"
)

var _ attach.Source = (*Node)(nil)

// Published implements attach.Source: the file systems that pods have mounted.
func (n *Node) Published() ([]attach.Volume, error) {
	records, err := n.store.List()
	errs := []error{err}
	var volumes []attach.Volume
	for _, rec := range records {
		if rec.Block || rec.Staged == nil || len(rec.Published) == 0 {
			continue
		}
		var stat unix.Stat_t
		if err := unix.Stat(n.root(rec), &stat); err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", rec.ID, err))
			continue
		}
		vol := attach.Volume{ID: rec.ID, Mode: rec.Mode, Device: stat.Dev}
		for _, published := range rec.Published {
			vol.Pods = append(vol.Pods, published.Pod)
		}
		volumes = append(volumes, vol)
	}
	return volumes, errors.Join(errs...)
}
