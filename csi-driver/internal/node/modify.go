// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Modify changes what can be changed of a volume, in use or not, and returns its record. The mode is what pods that
// start afterwards get; how it is deleted follows the record as it is then.
func (n *Node) Modify(ctx context.Context, id string, changes volume.Changes) (*volume.Record, error) {
	rec, err := n.get(id)
	if err != nil {
		return nil, err
	}
	mode, erase := rec.Mode, rec.Erase
	if changes.Mode != "" {
		rec.Mode = changes.Mode
	}
	if changes.Erase != "" {
		manager, err := n.config.Managers.Of(rec)
		if err != nil {
			return nil, err
		}
		if err := checkErase(manager, changes.Erase); err != nil {
			return nil, err
		}
		rec.SetErase(changes.Erase)
	}
	if rec.Mode == mode && rec.Erase == erase {
		return rec, nil
	}
	if err := n.store.Put(rec); err != nil {
		return nil, err
	}
	klog.FromContext(ctx).V(2).Info("Modified a volume", "volume-id", id, "mode", rec.Mode, "erase", rec.Erase.OrNone())
	return rec, nil
}
