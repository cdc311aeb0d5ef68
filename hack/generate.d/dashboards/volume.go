// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

func volumeBoard() *boardBuilder {
	const of = `namespace=~"$namespace",persistentvolumeclaim=~"$claim"`
	const name = "{{namespace}}/{{persistentvolumeclaim}}"
	return board("Volume", "splitfs-volume", "What applications do with a volume, and how it is served.").
		WithVariable(choice("namespace", "Namespace", "label_values(splitfs_volume_info, namespace)")).
		WithVariable(
			choice("claim", "Claim", `label_values(splitfs_volume_info{namespace=~"$namespace"}, persistentvolumeclaim)`)).
		WithRow(dashboard.NewRowBuilder("State")).
		WithPanel(number("Size", units.BytesIEC, "What was promised.", `sum(splitfs_volume_size_bytes{`+of+`})`, false)).
		WithPanel(number("Taken of the node", units.BytesIEC, "Size, pool, logs and file system.",
			`sum(splitfs_volume_device_bytes{`+of+`})`, false)).
		WithPanel(number("Processes", units.Short, "Live processes that use it through the library.",
			`sum(splitfs_volume_processes{`+of+`})`, false)).
		WithPanel(number("Agents down", units.Short, "", `count(splitfs_agent_up{`+of+`}) - sum(splitfs_agent_up{`+of+`})`,
			true)).
		WithPanel(number("Do not answer", units.Short, "To splitfs status.",
			`count(splitfs_volume_status_up{`+of+`}) - sum(splitfs_volume_status_up{`+of+`})`, true)).
		WithPanel(number("Set aside", units.Short, "Damaged or foreign log files that recoveries set aside, ever.",
			`sum(splitfs_recovery_quarantined_total{`+of+`})`, true)).
		WithPanel(list("Volumes", "",
			`max by (node, namespace, persistentvolumeclaim, volume_id, mode, device, fstype, provider, memory, durability) `+
				`(splitfs_volume_info{`+of+`})`, "",
			"namespace", "persistentvolumeclaim", "mode", "device", "memory", "durability", "fstype", "provider", "node",
			"volume_id")).
		WithPanel(
			list("Problems", "", `max by (namespace, persistentvolumeclaim, severity, reason) (splitfs_volume_problem{`+of+`})`,
				"", "severity", "reason", "namespace", "persistentvolumeclaim")).
		WithRow(dashboard.NewRowBuilder("Calls")).
		WithPanel(graph("Calls served", units.OpsPerSecond, "In the applications' processes.", servedCalls(of)...)).
		WithPanel(graph("Bytes", units.BytesPerSecondIEC, "", servedBytes(of)...)).
		WithPanel(
			graph("Share served", units.PercentUnit, shareText, query{
				shareServed(of, " by (namespace, persistentvolumeclaim)"), name,
			}).Max(1)).
		WithPanel(graph("Bytes per call", units.BytesIEC, "On average.",
			query{perCall(of, "append"), "append"}, query{perCall(of, "overwrite"), "overwrite"}, query{
				perCall(of, "read"), "read",
			})).
		WithRow(dashboard.NewRowBuilder("Time of calls")).
		WithPanel(graph("Half of the calls take less", units.Seconds, timedText, callTimes("0.5", of)...)).
		WithPanel(graph("99 of 100 calls take less", units.Seconds, timedText, callTimes("0.99", of)...)).
		WithPanel(graph("Time per call", units.Seconds, "On average. "+timedText,
			query{`sum by (mode, call) (rate(splitfs_call_seconds_sum{` + of +
				`}[$__rate_interval])) / sum by (mode, call) (rate(splitfs_call_seconds_count{` + of + `}[$__rate_interval]))`,
				"{{call}}, {{mode}}"})).
		WithPanel(graph("Calls timed", units.OpsPerSecond, timedText, query{
			`sum by (mode, call) (rate(splitfs_call_seconds_count{` + of + `}[$__rate_interval]))`, "{{call}}, {{mode}}",
		})).
		WithRow(dashboard.NewRowBuilder("Staging")).
		WithPanel(graph("Staged and relinked", units.BytesPerSecondIEC, "What is staged goes into the files by relink.",
			rates(of, query{"staged_bytes", "staged"}, query{"relink_bytes", "relinked"})...)).
		WithPanel(graph("Records, relinks, checkpoints", units.OpsPerSecond, "",
			rates(of, query{"records", "records"}, query{"relink_ops", "relinks"}, query{"checkpoints", "checkpoints"})...)).
		WithPanel(
			graph("Pool in use", units.BytesIEC, "",
				query{`splitfs_volume_pool_bytes{` + of + `} - splitfs_volume_pool_free_bytes{` + of + `}`, name},
				query{`splitfs_volume_pool_bytes{` + of + `}`, name + " size"})).
		WithPanel(
			graph("Processes by mode", units.Short, "", query{
				`sum by (mode) (splitfs_volume_processes{` + of + `})`, "{{mode}}",
			})).
		WithRow(dashboard.NewRowBuilder("Without a copy")).
		WithPanel(graph("Snapshots held", units.Short, "By living processes (splitfs_peek).", query{
			`splitfs_volume_snapshots_held{` + of + `}`, name,
		})).
		WithPanel(graph("Snapshots taken and given back", units.OpsPerSecond, "",
			rates(of, query{"peek_ops", "taken"}, query{"unpeek_ops", "given back"})...)).
		WithPanel(graph("Snapshots copied after all", units.BytesPerSecondIEC,
			"Because their file changed while they were held.", rates(of, query{"saved_bytes", "copied"})...)).
		WithPanel(graph("Patches, swaps, atomic writes", units.OpsPerSecond,
			"splitfs_patch, splitfs_swap and splitfs_write_atomic.",
			rates(of, query{"patch_ops", "patches"}, query{"swap_ops", "swaps"}, query{"atomic_ops", "atomic writes"})...)).
		WithPanel(graph("Bytes patched and swapped", units.BytesPerSecondIEC,
			"Of what is patched, whole blocks become parts of the file without a copy.",
			rates(of, query{"patch_bytes", "patched"}, query{"adopted_bytes", "patched without a copy"},
				query{"swap_bytes", "swapped"}, query{"atomic_bytes", "written atomically"})...)).
		WithRow(dashboard.NewRowBuilder("Who is not served")).
		WithPanel(graph("Programs without the library", units.Short,
			"Their opens for writing within an hour that were refused, or made the file durable.",
			query{`increase(splitfs_volume_unserved_opens_total{` + of + `}[1h])`, name + " {{did}}"})).
		WithPanel(graph("Libraries of another version", units.Short,
			"Processes within an hour that the agent refused, because they speak no protocol that it knows.",
			query{`increase(splitfs_protocol_refused_total{` + of + `}[1h])`, name})).
		WithRow(dashboard.NewRowBuilder("Recovery")).
		WithPanel(graph("Recoveries", units.Short, "Within an hour.", query{
			`increase(splitfs_recovery_runs_total{` + of + `}[1h])`, name,
		})).
		WithPanel(graph("Records replayed", units.Short, "Within an hour.",
			query{`increase(splitfs_recovery_replayed_total{` + of + `}[1h])`, name + " replayed"},
			query{`increase(splitfs_recovery_records_total{` + of + `}[1h])`, name + " read"}))
}

const timedText = "Of the calls that are timed: one of 128 reads and writes, one of 4 fsyncs."

// callTimes are the quantiles of each kind of call, by mode.
func callTimes(quantile, selector string) []query {
	return []query{
		{`histogram_quantile(` + quantile + `, sum by (le, mode, call) (rate(splitfs_call_seconds_bucket{` + selector +
			`}[$__rate_interval])))`, "{{call}}, {{mode}}"},
	}
}

func perCall(selector, kind string) string {
	return `sum(rate(splitfs_` + kind + `_bytes_total{` + selector + `}[$__rate_interval]))` +
		` / sum(rate(splitfs_` + kind + `_ops_total{` + selector + `}[$__rate_interval]))`
}
