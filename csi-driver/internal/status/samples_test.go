// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"splitfs.io/splitfs/charts/charttest"
)

// TestSamples keeps charts/splitfs/testdata/metrics/status.prom what a writer counts.
func TestSamples(t *testing.T) {
	w := NewWriter(Config{})
	w.count("SplitFSNode", nil)
	w.count("SplitFSVolume", errors.New("no"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.Metrics()...)
	charttest.CheckSamples(t, "status", registry, "splitfs_")
}
