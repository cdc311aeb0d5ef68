// SPDX-License-Identifier: Apache-2.0

package charttest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// SamplesDir holds what the exporters print, one file each. Dashboards and alerts are tried on these.
func SamplesDir(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(Root(tb), "charts", "splitfs", "testdata", "metrics")
}

// value is the last word of a sample: it may differ from one run to the next, names and labels may not.
var value = regexp.MustCompile(`(?m)^([^#].*) \S+$`)

// CheckSamples compares what an exporter prints with the file of its name: families, help, types, labels. Families
// whose name has none of the prefixes belong to libraries and are left out. With UPDATE_SAMPLES=1 it writes the file.
func CheckSamples(tb testing.TB, exporter string, from prometheus.Gatherer, prefixes ...string) {
	tb.Helper()
	families, err := from.Gather()
	if err != nil {
		tb.Fatalf("gather the metrics of %s: %v", exporter, err)
	}
	var text bytes.Buffer
	for _, family := range families {
		for _, prefix := range prefixes {
			if strings.HasPrefix(family.GetName(), prefix) {
				if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
					tb.Fatalf("print %s: %v", family.GetName(), err)
				}
			}
		}
	}
	path := filepath.Join(SamplesDir(tb), exporter+".prom")
	if os.Getenv("UPDATE_SAMPLES") != "" {
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			tb.Fatal(err)
		}
		return
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if difference := firstDifference(value.ReplaceAllString(string(kept), "$1"),
		value.ReplaceAllString(text.String(), "$1")); difference != "" {
		tb.Errorf("%s is not what the exporter prints: %s\nrun this test with UPDATE_SAMPLES=1, and see what dashboards "+
			"and alerts make of it", path, difference)
	}
}

func firstDifference(kept, printed string) string {
	a, b := strings.Split(kept, "\n"), strings.Split(printed, "\n")
	for i := range max(len(a), len(b)) {
		one, other := "", ""
		if i < len(a) {
			one = a[i]
		}
		if i < len(b) {
			other = b[i]
		}
		if one != other {
			return fmt.Sprintf("line %d is %q, printed is %q", i+1, one, other)
		}
	}
	return ""
}
