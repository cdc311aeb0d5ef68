// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

// TestTopLatency: what was timed between two looks is shown by volume and mode, for the volumes of the pods that are
// shown, and not at all where nothing was timed.
func TestTopLatency(t *testing.T) {
	look := func(name string) *coverage.Node {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		var n coverage.Node
		if err := yaml.UnmarshalStrict(text, &n); err != nil {
			t.Fatal(err)
		}
		return &n
	}
	before, after := look("n1-before.yaml"), look("n1-after.yaml")
	table := compare([]*coverage.Node{before}, []*coverage.Node{after}, nil, filter{})
	want := []topLatency{
		{Node: "n1", Volume: after.Volumes[0].ID, Namespace: "shop", Claim: "data", Mode: "posix", Calls: map[string]topTimes{
			"read": {Timed: 2, P50NS: 512, P99NS: 1 << 28, P99Over: true},
		}},
		{
			Node:      "n1",
			Volume:    after.Volumes[0].ID,
			Namespace: "shop",
			Claim:     "data",
			Mode:      "strict",
			Calls: map[string]topTimes{
				"append": {Timed: 8, P50NS: 768, P99NS: 49152},
			},
		},
	}
	if len(table.Latency) != len(want) {
		t.Fatalf("got %+v", table.Latency)
	}
	for i, w := range want {
		got := table.Latency[i]
		if got.Node != w.Node || got.Volume != w.Volume || got.Namespace != w.Namespace || got.Claim != w.Claim ||
			got.Mode != w.Mode || len(got.Calls) != len(w.Calls) {
			t.Errorf("got %+v, want %+v", got, w)
		}
		for call, times := range w.Calls {
			if got.Calls[call] != times {
				t.Errorf("%s, %s: got %+v, want %+v", w.Mode, call, got.Calls[call], times)
			}
		}
	}
	shown := strings.Join(table.lines(0), "\n")
	if !strings.Contains(
		shown,
		"\n\nCLAIM      MODE    APPEND p50, p99  OVERWRITE p50, p99  READ p50, p99      FSYNC p50, p99\n"+
			"shop/data  posix   -                -                   512 ns, >268.4 ms  -\n"+
			"shop/data  strict  768 ns, 49.2 us  -                   -                  -",
	) {
		t.Errorf("it shows\n%s", shown)
	}
	for _, none := range []*topTable{
		compare([]*coverage.Node{after}, []*coverage.Node{after}, nil, filter{}),
		compare([]*coverage.Node{before}, []*coverage.Node{after}, nil, filter{namespace: "bank"}),
	} {
		if len(none.Latency) != 0 || strings.Contains(strings.Join(none.lines(0), "\n"), "p99") {
			t.Errorf("nothing was timed, and it has %+v", none.Latency)
		}
	}
}
