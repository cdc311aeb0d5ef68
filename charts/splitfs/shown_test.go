// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"

	"splitfs.io/splitfs/charts/charttest"
)

// exported are the metrics that the samples have, with their types.
func exported(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(charttest.SamplesDir(t), "*.prom"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of samples: %v", len(files), err)
	}
	found := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(string(text), -1) {
			found[line[1]] = line[2]
		}
	}
	return found
}

// byHand are the metrics that docs/monitoring.md lists as those that nothing of ours looks at.
func byHand(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(charttest.Root(t), "docs", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, part, found := strings.Cut(string(text), "\n### For queries by hand\n")
	if !found {
		t.Fatal("docs/monitoring.md does not say which metrics are for queries by hand")
	}
	part, _, _ = strings.Cut(part, "\n#")
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.+?`) \\|").FindAllStringSubmatch(part, -1) {
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
			names = append(names, name[1])
		}
	}
	return names
}

// TestEachMetricIsLookedAt: what the exporters print is on a panel, in an alert, or on the list of what is for queries
// by hand, which has nothing else.
func TestEachMetricIsLookedAt(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join("files", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(rules)
	plugins.RegisterDefaultPlugins()
	files, err := filepath.Glob(filepath.Join("files", "dashboards", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d dashboards: %v", len(files), err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		board, err := decodeBoard(content)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, expressions := range panels(t, &board) {
			text += "\n" + strings.Join(expressions, "\n")
		}
	}
	looked := map[string]bool{}
	for _, word := range regexp.MustCompile(`[a-z_]+`).FindAllString(text, -1) {
		looked[word] = true
	}
	listed, known := byHand(t), exported(t)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		seen := looked[name]
		if known[name] == "histogram" {
			seen = seen || looked[name+"_bucket"] || looked[name+"_count"] || looked[name+"_sum"]
		}
		switch {
		case !seen && !slices.Contains(listed, name):
			t.Errorf("%s is on no panel, in no alert, and not listed in docs/monitoring.md as one for queries by hand", name)
		case seen && slices.Contains(listed, name):
			t.Errorf("%s is listed as one for queries by hand, and a panel or an alert has it", name)
		}
	}
	for _, name := range listed {
		if known[name] == "" {
			t.Errorf("docs/monitoring.md lists %s, which nothing prints", name)
		}
	}
}
