// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

func nodeBoard() *boardBuilder {
	const on = `node=~"$node"`
	return board("Node", "splitfs-node", "What one node, or several, have and do.").
		WithVariable(choice("node", "Node", "label_values(splitfs_node_library_installed, node)")).
		WithRow(dashboard.NewRowBuilder("State")).
		WithPanel(number("Library missing", units.Short, "Nodes on which programs do not find libsplit.so.",
			`count(splitfs_node_library_installed{`+on+`}) - sum(splitfs_node_library_installed{`+on+`})`, true)).
		WithPanel(number("Room", units.BytesIEC, "The most that one more volume could hold.",
			`max(splitfs_node_available_bytes{`+on+`})`, false)).
		WithPanel(number("Taken", units.BytesIEC, "What volumes take: size, pool, logs and file system.",
			`sum(splitfs_volume_device_bytes{`+on+`})`, false)).
		WithPanel(number("Being erased", units.BytesIEC, "Space of deleted volumes that is not free yet.",
			`sum(splitfs_node_erasing_bytes{`+on+`})`, false)).
		WithPanel(number("Erasing failed", units.Short, "", `sum(splitfs_node_erase_failed{`+on+`})`, true)).
		WithPanel(number("Reports incomplete", units.Short, "Nodes that cannot report on all of their volumes.",
			`sum(splitfs_node_report_errors{`+on+`})`, true)).
		WithPanel(list("Memory", "What it promises when the power fails.",
			`max by (node, range, provider, memory, durable) (splitfs_node_memory_bytes{`+on+`}) / 2^30`, "GiB",
			"node", "range", "provider", "memory", "durable")).
		WithPanel(graph("Copies and zeros that volumes wait for", units.PercentUnit, "How much is done.",
			query{
				`splitfs_job_done_bytes{` + on + `} / splitfs_job_bytes{` + on + `}`,
				"{{namespace}}/{{persistentvolumeclaim}} {{kind}}",
			}).Max(1)).
		WithPanel(list("Kernel module and providers", "What volumes that are staged now relink with.",
			`max by (node, fstype, provider) (splitfs_node_relink_provider{`+on+
				`}) * on (node) group_left (release, version, loaded, why) splitfs_module_info{`+on+`}`, "",
			"node", "release", "fstype", "provider", "version", "loaded", "why")).
		WithPanel(graph("State of the kernel module", units.Short, "Nodes in each state.",
			query{`sum by (state) (splitfs_module_state{` + on + `}) > 0`, "{{state}}"})).
		WithPanel(graph("Leftovers", units.Short, "Things that no volume accounts for, by kind.", query{
			`sum by (node, kind) (splitfs_node_orphans{` + on + `})`, "{{node}} {{kind}}",
		})).
		WithRow(dashboard.NewRowBuilder("Device classes")).
		WithPanel(graph("Room of device classes", units.BytesIEC, "The most that one more volume could hold.",
			query{`splitfs_device_class_available_bytes{` + on + `}`, "{{node}} {{class}}"},
			query{`splitfs_device_class_capacity_bytes{` + on + `}`, "{{node}} {{class}}, all volumes"})).
		WithPanel(graph("Thin pools in use", units.PercentUnit, "Writes fail where data or map are full.",
			query{`splitfs_thin_pool_data_used_bytes{` + on + `} / splitfs_thin_pool_data_bytes{` + on + `}`,
				"{{node}} {{region}} {{pool}} data"},
			query{`splitfs_thin_pool_metadata_used_bytes{` + on + `} / splitfs_thin_pool_metadata_bytes{` + on + `}`,
				"{{node}} {{region}} {{pool}} map"}).Max(1)).
		WithPanel(graph("Thin pools: promised", units.PercentUnit, "What volumes and snapshots may take, of what there is.",
			query{`splitfs_thin_pool_virtual_bytes{` + on + `} / splitfs_thin_pool_data_bytes{` + on + `}`,
				"{{node}} {{region}} {{pool}}"})).
		WithRow(dashboard.NewRowBuilder("Volumes")).
		WithPanel(graph("Calls served", units.OpsPerSecond, "By volume.",
			query{`sum by (namespace, persistentvolumeclaim) (rate(splitfs_append_ops_total{` + on + `}[$__rate_interval])` +
				` + rate(splitfs_overwrite_ops_total{` + on + `}[$__rate_interval]) + rate(splitfs_read_ops_total{` + on +
				`}[$__rate_interval]))`,
				"{{namespace}}/{{persistentvolumeclaim}}"})).
		WithPanel(
			graph("Staging pools in use", units.PercentUnit, "",
				query{`1 - splitfs_volume_pool_free_bytes{` + on + `} / splitfs_volume_pool_bytes{` + on + `}`,
					"{{namespace}}/{{persistentvolumeclaim}}"}).Max(1)).
		WithPanel(
			graph("Agents that serve", units.Short, "", query{`sum by (node) (splitfs_agent_up{` + on + `})`, "{{node}}"},
				query{`count by (node) (splitfs_agent_up{` + on + `})`, "{{node}} wanted"})).
		WithPanel(graph("Deaths of agents", units.Short, "Within an hour.", query{
			`increase(splitfs_agent_restarts_total{` + on + `}[1h])`, "{{namespace}}/{{persistentvolumeclaim}}",
		})).
		WithRow(dashboard.NewRowBuilder("Service")).
		WithPanel(graph("CSI calls: time", units.Seconds, "99th percentile.",
			query{`histogram_quantile(0.99, sum by (le, method_name) ` +
				`(rate(csi_plugin_operations_seconds_bucket{driver_name="csi.splitfs.io",` + on + `}[$__rate_interval])))`,
				"{{method_name}}"})).
		WithPanel(graph("CSI calls that fail", units.OpsPerSecond, "",
			query{`sum by (method_name, grpc_status_code) ` +
				`(rate(csi_plugin_operations_seconds_count{driver_name="csi.splitfs.io",grpc_status_code!="OK",` + on +
				`}[$__rate_interval]))`,
				"{{method_name}} {{grpc_status_code}}"})).
		WithPanel(graph("Writes of status objects", units.OpsPerSecond, "",
			query{`sum by (kind, result) (rate(splitfs_status_writes_total{` + on + `}[$__rate_interval]))`,
				"{{kind}} {{result}}"})).
		WithPanel(graph("Age of status objects", units.Seconds, "Since they were last known to be right.", query{
			`time() - splitfs_status_last_success_timestamp_seconds{` + on + `}`, "{{node}}",
		}))
}
