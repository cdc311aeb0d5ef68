// SPDX-License-Identifier: Apache-2.0

package podhook

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"splitfs.io/splitfs/injector-webhook/internal/inject"
)

// Results of one admission, the label "result" of splitfs_injector_pods_total.
const (
	resultInjected  = "injected"
	resultUnchanged = "unchanged" // injected before (reinvocation)
	resultForeign   = "foreign"   // mounts no volume of ours
	resultOptOut    = "opt-out"
	resultUndecided = "undecided" // a claim does not exist yet; admitted with a warning
	resultDenied    = "denied"
	resultError     = "error"
)

// Metrics counts what the injector did.
type Metrics struct {
	pods       *prometheus.CounterVec
	containers *prometheus.CounterVec
}

// NewMetrics registers the injector's metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		pods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "splitfs_injector_pods_total",
			Help: "Pods that reached the injector, by result; reason is set for denied pods.",
		}, []string{"result", "reason"}),
		containers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "splitfs_injector_mounts_total",
			Help: "Mounts of SplitFS volumes in injected containers, by mode.",
		}, []string{"mode"}),
	}
	for _, c := range []prometheus.Collector{m.pods, m.containers} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) pod(result, reason string) { m.pods.WithLabelValues(result, reason).Inc() }

func (m *Metrics) mounts(status *inject.Status) {
	for _, mounts := range status.Containers {
		for _, mode := range mounts {
			m.containers.WithLabelValues(string(mode)).Inc()
		}
	}
}
