// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

func clusterBoard() *boardBuilder {
	return board("Cluster", "splitfs-cluster", "All nodes and volumes at a glance, and what is wrong.").
		WithRow(dashboard.NewRowBuilder("State")).
		WithPanel(number("Nodes", units.Short, "Node services that are scraped.", `count(splitfs_node_library_installed)`,
			false)).
		WithPanel(number("Volumes", units.Short, "", `count(splitfs_volume_info)`, false)).
		WithPanel(number("In use", units.Short, "Volumes that are staged on a node.", `sum(splitfs_volume_staged)`, false)).
		WithPanel(
			number("Volumes with problems", units.Short, "", `count(count by (volume_id) (splitfs_volume_problem)) or vector(0)`,
				true)).
		WithPanel(number("Without a node", units.Short, "Volumes whose Node object is gone.", `max(splitfs_orphaned_volumes)`,
			true)).
		WithPanel(number("Silent nodes", units.Short, "Node services that have not been heard of for a while.",
			`max(splitfs_silent_nodes)`, true)).
		WithPanel(list("Alerts", "Alerts of the chart's rules that are pending or firing.",
			`ALERTS{alertname=~"SplitFS.+"}`, "", "alertname", "alertstate", "severity", "node", "namespace",
			"persistentvolumeclaim", "pod", "reason")).
		WithPanel(list("Problems of volumes", "What NodeGetVolumeHealth and SplitFSVolume say as well.",
			`max by (node, namespace, persistentvolumeclaim, volume_id, severity, reason) (splitfs_volume_problem)`, "",
			"severity", "reason", "namespace", "persistentvolumeclaim", "node", "volume_id")).
		WithRow(dashboard.NewRowBuilder("Data path")).
		WithPanel(
			graph("Calls served", units.OpsPerSecond, "Calls that the library has served in the applications' processes.",
				servedCalls("")...)).
		WithPanel(graph("Bytes", units.BytesPerSecondIEC, "Bytes read and written by these calls.", servedBytes("")...)).
		WithPanel(graph("Share served", units.PercentUnit, shareText, query{shareServed("", ""), "all volumes"}).Max(1)).
		WithPanel(graph("Volumes by mode", units.Short, "", query{`count by (mode) (splitfs_volume_info)`, "{{mode}}"},
			query{`count(splitfs_volume_info{emulated="true"})`, "emulated"})).
		WithRow(dashboard.NewRowBuilder("Pods")).
		WithPanel(
			graph("Processes", units.Short,
				"Processes in containers that have a volume mounted: with the library (loaded), or why not.",
				query{`sum by (state) (splitfs_pod_processes)`, "{{state}}"})).
		WithPanel(graph("Pods at the injector", units.OpsPerSecond, "By what the injector did with them.",
			query{`sum by (result) (rate(splitfs_injector_pods_total[$__rate_interval]))`, "{{result}}"})).
		WithPanel(graph("Mounts that were given the library", units.OpsPerSecond, "By mode.",
			query{`sum by (mode) (rate(splitfs_injector_mounts_total[$__rate_interval]))`, "{{mode}}"})).
		WithPanel(graph("Pods evicted to be made anew", units.Short,
			"Within an hour: they had been created without the library.",
			query{`increase(splitfs_pods_recreated_total[1h])`, "pods"})).
		WithPanel(
			graph("Injector: time of an answer", units.Seconds,
				"99th percentile; the API server waits for it when a pod is created.",
				query{
					`histogram_quantile(0.99, sum by (le) ` +
						`(rate(controller_runtime_webhook_latency_seconds_bucket{webhook="/mutate-pods"}[$__rate_interval])))`, "p99",
				})).
		WithPanel(graph("CSI calls", units.OpsPerSecond, "By their gRPC code.",
			query{
				`sum by (grpc_status_code) ` +
					`(rate(csi_plugin_operations_seconds_count{driver_name="csi.splitfs.io"}[$__rate_interval]))`,
				"{{grpc_status_code}}",
			}))
}
