// SPDX-License-Identifier: Apache-2.0

package app

import (
	"path/filepath"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/events"
)

// TestNewCluster: a node service without a cluster starts only when nothing wants one, and says what to switch off.
func TestNewCluster(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for name, o := range map[string]nodeOptions{
		"events": {events: true}, "promises": {requireLibrary: true}, "objects": {status: true},
	} {
		o.kubeconfig = none
		if _, err := newCluster(t.Context(), o); err == nil ||
			!strings.Contains(err.Error(), "--events=false --require-library=false --status=false runs without") {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := newCluster(t.Context(), nodeOptions{kubeconfig: none})
	if err != nil || c != (cluster{recorder: events.Discard{}}) {
		t.Errorf("without a cluster: %+v, %v", c, err)
	}
}
