// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"splitfs.io/splitfs/csi-driver/internal/module"
)

// ModuleSource is where the state of the kernel module comes from.
type ModuleSource interface {
	Status() module.Status
	Providers() map[string]string
}

func moduleDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

var (
	moduleState = moduleDesc("module_state",
		"State of the kernel module ext4_splitfs: 1 for the one it is in, 0 for all others.", "state")
	moduleInfo = moduleDesc("module_info", "The kernel and the module's versions, on disk and loaded; always 1.",
		"release", "version", "loaded", "signed", "why")
	moduleUsers = moduleDesc("module_users", "Mounted file systems that use the kernel module.")
	moduleSince = moduleDesc("module_state_since_timestamp_seconds",
		"When the module came into its state, in seconds since 1970.")
	provider = moduleDesc("node_relink_provider",
		"What volumes of a file system type that are staged now relink with; always 1.", "fstype", "provider")
)

// ModuleCollector is a prometheus.Collector over the kernel module of a node.
type ModuleCollector struct{ source ModuleSource }

// NewModuleCollector returns a ModuleCollector.
func NewModuleCollector(source ModuleSource) *ModuleCollector {
	return &ModuleCollector{source: source}
}

// Describe implements prometheus.Collector.
func (*ModuleCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{moduleState, moduleInfo, moduleUsers, moduleSince, provider} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *ModuleCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.source.Status()
	for _, state := range module.States() {
		ch <- gauge(moduleState, boolean(state == s.State), string(state))
	}
	ch <- gauge(moduleInfo, 1, s.Release, s.Version, s.Loaded, strconv.FormatBool(s.Signed), string(s.Why))
	ch <- gauge(moduleUsers, float64(s.Users))
	if !s.Since.IsZero() {
		ch <- gauge(moduleSince, float64(s.Since.Unix()))
	}
	for fsType, name := range c.source.Providers() {
		ch <- gauge(provider, 1, fsType, name)
	}
}
