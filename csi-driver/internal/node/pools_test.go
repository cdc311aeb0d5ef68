// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
)

// TestPoolWatch: what a pool has become is told once, when it gets worse, and again when it does so again.
func TestPoolWatch(t *testing.T) {
	told := &recordedEvents{}
	n := &Node{config: Config{Name: "node-1", Events: told}}
	var w poolWatch
	near, full := "node/node-1 "+events.ReasonThinPoolNearFull, "node/node-1 "+events.ReasonThinPoolFull
	for i, c := range []struct{ used, near, full int }{
		{10, 0, 0}, {80, 1, 0}, {85, 1, 0}, {90, 1, 1}, {95, 1, 1}, {100, 1, 2}, {100, 1, 2}, {10, 1, 2}, {81, 2, 2},
	} {
		w.report(t.Context(), n, device.Pool{
			Name: "pool0", Region: "region0", Data: 100, DataUsed: int64(c.used), Virtual: 101,
		})
		if told.count(near) != c.near || told.count(full) != c.full {
			t.Errorf("look %d: told %q", i, told.list)
		}
	}
	w.report(t.Context(), n, device.Pool{Name: "pool0", Region: "region1", Data: 100, DataUsed: 80, Virtual: 101})
	if told.count(near) != 3 {
		t.Errorf("another pool: told %q", told.list)
	}
}
