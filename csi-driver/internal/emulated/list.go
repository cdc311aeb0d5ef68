// SPDX-License-Identifier: Apache-2.0

package emulated

import (
	"context"
	"fmt"
	"os"
	"strings"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/loop"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

var _ device.Lister = (*Manager)(nil)

// List implements device.Lister.
func (m *Manager) List(context.Context) ([]device.Found, error) {
	entries, err := os.ReadDir(m.config.Dir)
	if err != nil {
		return nil, fmt.Errorf("list emulated devices: %w", err)
	}
	var found []device.Found
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), imageSuffix)
		if !ok || !volume.ValidID(id) && !volume.ValidSnapshotID(id) {
			continue
		}
		node, err := loop.Find(m.path(id))
		if err != nil {
			return nil, err
		}
		found = append(found, device.Found{ID: id, Where: m.path(id), Node: node})
	}
	return found, nil
}
