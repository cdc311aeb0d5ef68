// SPDX-License-Identifier: Apache-2.0

package attach

import "github.com/prometheus/client_golang/prometheus"

var processesDesc = prometheus.NewDesc("splitfs_pod_processes",
	"Processes in containers that have a SplitFS volume mounted, by whether they have loaded the library (state "+
		"\"loaded\") or why not.",
	[]string{"namespace", "pod", "container", "state"}, nil)

var _ prometheus.Collector = (*Verifier)(nil)

// Describe implements prometheus.Collector.
func (v *Verifier) Describe(ch chan<- *prometheus.Desc) { ch <- processesDesc }

// Collect implements prometheus.Collector.
func (v *Verifier) Collect(ch chan<- prometheus.Metric) {
	for g, n := range v.snapshot() {
		ch <- prometheus.MustNewConstMetric(processesDesc, prometheus.GaugeValue, float64(n), g.namespace, g.pod, g.container,
			string(g.state))
	}
}
