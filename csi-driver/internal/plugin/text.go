// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"
)

// orDash is what a table shows where there is nothing.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func quantity(q *resource.Quantity) string {
	if q == nil {
		return "-"
	}
	return q.String()
}

// ago is how long something is past.
func ago(now, then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return duration.HumanDuration(now.Sub(then)) + " ago"
}

// printable keeps what a cluster's users wrote from doing harm in a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// count says "1 volume", "2 volumes".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// amount writes a number in at most four digits and a unit: 0, 999, 1.2K, 34M.
func amount(v, base float64) string {
	const units = "KMGTPE"
	unit := -1
	for limit := base; v >= limit && unit < len(units)-1; limit = base - 0.5 {
		v /= base
		unit++
	}
	switch {
	case unit < 0:
		return fmt.Sprintf("%.0f", v)
	case v < 9.95:
		return fmt.Sprintf("%.1f%c", v, units[unit])
	}
	return fmt.Sprintf("%.0f%c", v, units[unit])
}

// bytes and times are what happened in so many seconds, per second.
func bytesRate(n int64, seconds float64) string { return rate(n, seconds, 1024) }
func timesRate(n int64, seconds float64) string { return rate(n, seconds, 1000) }

func rate(n int64, seconds, base float64) string {
	v := float64(n) / seconds
	if n > 0 && v < 9.95 {
		return fmt.Sprintf("%.1f", v)
	}
	return amount(v, base)
}

// nanoseconds writes a time as `splitfs top` does; with over it is the least that it may be.
func nanoseconds(ns uint64, over bool) string {
	text := fmt.Sprintf("%d ns", ns)
	switch {
	case ns >= 1_000_000:
		text = fmt.Sprintf("%.1f ms", float64(ns)/1e6)
	case ns >= 1_000:
		text = fmt.Sprintf("%.1f us", float64(ns)/1e3)
	}
	if over {
		return ">" + text
	}
	return text
}

// share is a part in percent, rounded down: it is 100% only of all.
func share(part, all int64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", int64(float64(part)*100/float64(all)))
}
