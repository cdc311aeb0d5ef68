// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// rates are sums over all series that a selector leaves.
func rates(selector string, names ...query) []query {
	queries := make([]query, 0, len(names))
	for _, n := range names {
		queries = append(queries, query{
			fmt.Sprintf(`sum(rate(splitfs_%s_total{%s}[$__rate_interval]))`, n.expr, selector), n.legend,
		})
	}
	return queries
}

func servedCalls(selector string) []query {
	return rates(selector, query{"append_ops", "append"}, query{"overwrite_ops", "overwrite"}, query{"read_ops", "read"},
		query{"fsync_ops", "fsync"})
}

func servedBytes(selector string) []query {
	return rates(selector, query{"append_bytes", "append"}, query{"overwrite_bytes", "overwrite"}, query{
		"read_bytes", "read",
	})
}

const shareText = "Calls that the library has served, of those and the ones that it handed to the kernel. Calls of " +
	"processes without the library are in neither."

// shareServed is nothing while there are no calls at all.
func shareServed(selector, by string) string {
	sum := func(name string) string {
		return fmt.Sprintf(`sum%s (rate(splitfs_%s_total{%s}[$__rate_interval]))`, by, name, selector)
	}
	served := fmt.Sprintf("(%s + %s + %s + %s)", sum("append_ops"), sum("overwrite_ops"), sum("read_ops"),
		sum("fsync_ops"))
	return fmt.Sprintf("%s / (%s + %s)", served, served, sum("passthrough_ops"))
}
