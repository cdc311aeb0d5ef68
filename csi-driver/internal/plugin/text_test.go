// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

// TestAmounts: never more than four digits and a unit, never 100% of less than all.
func TestAmounts(t *testing.T) {
	for _, c := range []struct {
		v, base float64
		want    string
	}{
		{0, 1024, "0"}, {999, 1000, "999"}, {1000, 1000, "1.0K"}, {1023, 1024, "1023"}, {1024, 1024, "1.0K"},
		{10189, 1024, "10K"}, {9999, 1000, "10K"},
		{999499, 1000, "999K"}, {999999, 1000, "1.0M"}, {1 << 20, 1024, "1.0M"}, {1<<30 - 1, 1024, "1.0G"},
		{1 << 62, 1024, "4.0E"},
	} {
		if got := amount(c.v, c.base); got != c.want {
			t.Errorf("amount(%v, %v) is %s, want %s", c.v, c.base, got, c.want)
		}
	}
	for _, c := range []struct {
		n       int64
		seconds float64
		want    string
	}{{0, 1, "0"}, {1, 2, "0.5"}, {19, 2, "9.5"}, {199, 20, "10"}, {4096, 2, "2.0K"}} {
		if got := timesRate(c.n, c.seconds); got != c.want {
			t.Errorf("%d in %v s is %s, want %s", c.n, c.seconds, got, c.want)
		}
	}
	for _, c := range []struct {
		part, all int64
		want      string
	}{{0, 0, "-"}, {0, 5, "0%"}, {999999, 1000000, "99%"}, {7, 7, "100%"}} {
		if got := share(c.part, c.all); got != c.want {
			t.Errorf("share of %d in %d is %s, want %s", c.part, c.all, got, c.want)
		}
	}
}

// TestScreen: on a terminal a table is drawn over the one before, no line wraps, and none scrolls away.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	columns, rows := 10, 5
	s := &screen{out: &out, size: func() (int, int, bool) { return columns, rows, true }}
	for _, step := range []struct {
		resize func()
		lines  []string
		want   string
	}{
		{nil, []string{"ä2345678901", "b"}, "ä234567890\033[K\nb\033[K\n\033[J"},
		{nil, []string{"1", "2", "3", "4", "5"}, "\033[2A\r1\033[K\n2\033[K\n3\033[K\nand 2 more\033[K\n\033[J"},
		{func() { columns = 20 }, []string{"1"}, "\033[H\033[2J1\033[K\n\033[J"},
		{func() { rows = 1 }, []string{"1", "2", "3", "4"}, "\033[H\033[2J1\033[K\n2\033[K\nand 2 more lines\033[K\n\033[J"},
	} {
		if step.resize != nil {
			step.resize()
		}
		out.Reset()
		if err := s.draw(func(int) []string { return step.lines }); err != nil || out.String() != step.want {
			t.Errorf("drawn is %q (%v), want %q", out.String(), err, step.want)
		}
	}
	out.Reset()
	if err := newScreen(
		&out,
	).draw(func(int) []string { return []string{"a", "b"} }); err != nil ||
		out.String() != "a\nb\n\n" {
		t.Errorf("in a pipe: %q (%v)", out.String(), err)
	}
}

// TestCompare: a process that came in between has done all that it counted; what a pod shows is what its processes did;
// a node that did not answer before has nothing to compare with.
func TestCompare(t *testing.T) {
	nodes := lookedTwice()["splitfs-node-1"]
	table := compare(nodes[:1], append(nodes[1:], &coverage.Node{Node: "n2", Volumes: nodes[1].Volumes}), nil, filter{})
	if len(table.Pods) != 3 {
		t.Fatalf("pods are %+v", table.Pods)
	}
	for _, pod := range table.Pods {
		sum := coverage.Counters{}
		for _, p := range pod.Processes {
			sum.Add(p.Counters)
		}
		for name, n := range pod.Counters {
			if sum[name] != n || n < 0 {
				t.Errorf("pod %s: %s is %d, of its processes %d", pod.Pod, name, n, sum[name])
			}
		}
		if pod.Node != "n1" || pod.Seconds != 2 {
			t.Errorf("pod %s is on %s, in %v s", pod.Pod, pod.Node, pod.Seconds)
		}
	}
	web := table.Pods[0]
	if web.Pod != "web" || web.Counters["append_ops"] != 1000 || web.Counters["read_ops"] != 203 ||
		web.PoolUsed != 32<<20 || len(web.Processes) != 3 {
		t.Errorf("pod web is %+v", web)
	}
	// A counter that went back has not moved.
	busy := &coverage.Node{
		Node: "n3",
		Jobs: []coverage.Job{{ID: "snapshot-1", Namespace: "shop", Claim: "data", Kind: "copy", DoneBytes: 1 << 30,
			TotalBytes: 4 << 30}},
	}
	for wanted, shown := range map[filter]string{
		{namespace: "shop"}:             "node n3: snapshot-1, claim shop/data: copy, 1.0G of 4.0G",
		{namespace: "other"}:            "",
		{namespace: "shop", pod: "web"}: "",
	} {
		if lines := compare(nil, []*coverage.Node{busy}, nil, wanted).lines(0); strings.Join(lines[1:], "\n") != shown {
			t.Errorf("%+v shows %q, wanted %q", wanted, lines[1:], shown)
		}
	}
	back := compare(nodes[1:], nodes[:1], nil, filter{namespace: "shop", pod: "web"})
	if len(back.Pods) != 1 || back.Pods[0].Counters.Calls() != 0 {
		t.Errorf("backwards: %+v", back.Pods)
	}
	if got := strings.Join(compare(nodes, nil, nil, filter{}).lines(0),
		""); got != "No process uses a volume (0 nodes looked at)." {
		t.Errorf("nobody: %q", got)
	}
}
