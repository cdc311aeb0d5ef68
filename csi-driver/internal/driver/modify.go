// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// ControllerModifyVolume implements csi.ControllerServer.
func (c *Controller) ControllerModifyVolume(ctx context.Context,
	req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	id := req.GetVolumeId()
	if id == "" {
		return nil, StatusOf(missing("volume ID"))
	}
	changes, err := volume.ParseChanges(req.GetMutableParameters())
	if err != nil {
		return nil, StatusOf(err)
	}
	release, err := c.locks.TryLock(id, "modify")
	if err != nil {
		return nil, StatusOf(err)
	}
	defer release()
	if _, err := c.node.Modify(ctx, id, changes); err != nil {
		return nil, StatusOf(err)
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}
