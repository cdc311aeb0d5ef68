// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/splitfs"
)

// TestSnapshotsHeld: those of living processes count, and a child that gives back what its parent has taken takes
// nothing from those of others.
func TestSnapshotsHeld(t *testing.T) {
	of := func(alive bool, taken, givenBack int64) splitfs.Process {
		return splitfs.Process{Alive: alive, Counters: map[string]int64{"peek_ops": taken, "unpeek_ops": givenBack}}
	}
	if n := held(nil); n != 0 {
		t.Errorf("nobody holds %d", n)
	}
	if n := held([]splitfs.Process{of(true, 5, 3), of(true, 0, 1), of(false, 9, 0), of(true, 4, 4)}); n != 2 {
		t.Errorf("%d are held, want 2", n)
	}
}
