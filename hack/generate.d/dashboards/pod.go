// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

func podBoard() *boardBuilder {
	const of = `namespace=~"$namespace",pod=~"$pod"`
	return board("Pod", "splitfs-pod", "Which processes of a pod have the library, and why the others have not.").
		WithVariable(choice("namespace", "Namespace", "label_values(splitfs_pod_processes, namespace)")).
		WithVariable(choice("pod", "Pod", `label_values(splitfs_pod_processes{namespace=~"$namespace"}, pod)`)).
		WithPanel(number("Pods", units.Short, "With a volume mounted.",
			`count(count by (namespace, pod) (splitfs_pod_processes{`+of+`}))`, false)).
		WithPanel(number("Processes", units.Short, "", `sum(splitfs_pod_processes{`+of+`})`, false)).
		WithPanel(number("With the library", units.PercentUnit, "Of all processes in containers that mount a volume.",
			`sum(splitfs_pod_processes{`+of+`,state="loaded"}) / sum(splitfs_pod_processes{`+of+`})`, false)).
		WithPanel(number("Without", units.Short, "", `sum(splitfs_pod_processes{`+of+`,state!="loaded"})`, true)).
		WithPanel(list("Processes by container", "The states are explained in docs/injection.md.",
			`sum by (node, namespace, pod, container, state) (splitfs_pod_processes{`+of+`})`, "processes", "namespace", "pod",
			"container", "state", "node")).
		WithPanel(graph("With the library", units.Short, "",
			query{
				`sum by (namespace, pod, container) (splitfs_pod_processes{` + of + `,state="loaded"})`,
				"{{namespace}}/{{pod}} {{container}}",
			})).
		WithPanel(graph("Without the library", units.Short, "",
			query{`sum by (namespace, pod, container, state) (splitfs_pod_processes{` + of + `,state!="loaded"})`,
				"{{namespace}}/{{pod}} {{container}}: {{state}}"}))
}
