// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

// filter says whose processes are shown; empty fields say nothing.
type filter struct{ namespace, pod string }

func (f filter) wants(namespace, pod string) bool {
	return (f.namespace == "" || f.namespace == namespace) && (f.pod == "" || f.pod == pod)
}

// topTable is what happened between two looks.
type topTable struct {
	Pods []*topPod `json:"pods"`
	// Latency is how long calls on the pods' volumes took.
	Latency []topLatency `json:"latency,omitempty"`
	// Jobs are the works that volumes of the namespace wait for; of one pod none are shown.
	Jobs []topJob `json:"jobs,omitempty"`
	// Unanswered are nodes of which nothing is known.
	Unanswered []unanswered `json:"unanswered,omitempty"`
	nodes      int
}

// topJob is a job and where it is done.
type topJob struct {
	Node string `json:"node"`
	coverage.Job
}

// topLatency is of one volume and mode: of all processes that use it so, also of other pods and of those that have
// ended.
type topLatency struct {
	Node      string `json:"node"`
	Volume    string `json:"volume"`
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	Mode      string `json:"mode"`
	// Calls are by kind.
	Calls map[string]topTimes `json:"calls"`
}

// topTimes are of the calls of one kind that were timed. Over: they took so long or longer.
type topTimes struct {
	Timed   uint64 `json:"timed"`
	P50NS   uint64 `json:"p50NS"`
	P99NS   uint64 `json:"p99NS"`
	P50Over bool   `json:"p50Over,omitempty"`
	P99Over bool   `json:"p99Over,omitempty"`
}

// topPod is one pod with a volume of ours.
type topPod struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Node      string `json:"node"`
	// Seconds is the time in which Counters were counted: they are differences.
	Seconds  float64           `json:"seconds"`
	Counters coverage.Counters `json:"counters"`
	// PoolBytes and PoolUsed are of the volumes that the pod uses, which other pods may use as well.
	PoolBytes int64         `json:"poolBytes"`
	PoolUsed  int64         `json:"poolUsed"`
	Processes []*topProcess `json:"processes"`
	volumes   map[string]bool
}

// topProcess is one process, with all volumes that it uses.
type topProcess struct {
	PID       int               `json:"pid"`
	Command   string            `json:"command"`
	Container string            `json:"container"`
	State     string            `json:"state"`
	Modes     []string          `json:"modes,omitempty"`
	Counters  coverage.Counters `json:"counters"`
}

// key is a process's lease of a volume.
type key struct {
	node, volume string
	pid          int
	podUID       string
}

func compare(before, after []*coverage.Node, failed []unanswered, wanted filter) *topTable {
	counted := map[key]coverage.Counters{}
	looked := map[string]*coverage.Node{}
	timed := map[key]coverage.Latencies{}
	for _, n := range before {
		looked[n.Node] = n
		for _, v := range n.Volumes {
			timed[key{node: n.Node, volume: v.ID}] = v.Latency
			for _, p := range v.Processes {
				counted[key{n.Node, v.ID, p.PID, p.PodUID}] = p.Counters
			}
		}
	}
	table := &topTable{Pods: []*topPod{}, Unanswered: failed, nodes: len(after)}
	for _, n := range after {
		table.addJobs(n, wanted)
		then, ok := looked[n.Node]
		if !ok {
			continue // with the next look there will be a difference
		}
		seconds := max(n.Time.Sub(then.Time).Seconds(), 0.001)
		pods := map[string]*topPod{}
		for i := range n.Volumes {
			shown := false
			for _, p := range n.Volumes[i].Processes {
				if (p.Served() || p.Unserved()) && wanted.wants(p.Namespace, p.Pod) {
					pod := podOf(pods, n.Node, seconds, &p)
					pod.uses(&n.Volumes[i])
					pod.add(&p, p.Counters.Since(counted[key{n.Node, n.Volumes[i].ID, p.PID, p.PodUID}]))
					shown = true
				}
			}
			if shown {
				table.addLatency(n.Node, &n.Volumes[i], timed[key{node: n.Node, volume: n.Volumes[i].ID}])
			}
		}
		for _, pod := range pods {
			slices.SortFunc(pod.Processes, busiest)
			table.Pods = append(table.Pods, pod)
		}
	}
	slices.SortFunc(table.Pods, func(a, b *topPod) int {
		return cmp.Or(cmp.Compare(traffic(b.Counters)/b.Seconds, traffic(a.Counters)/a.Seconds),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Node, b.Node))
	})
	return table
}

func (t *topTable) addJobs(n *coverage.Node, wanted filter) {
	for _, j := range n.Jobs {
		if wanted.wants(j.Namespace, "") {
			t.Jobs = append(t.Jobs, topJob{Node: n.Node, Job: j})
		}
	}
}

func (t *topTable) addLatency(node string, v *coverage.Volume, before coverage.Latencies) {
	since := v.Latency.Since(before)
	for _, mode := range slices.Sorted(maps.Keys(since)) {
		row := topLatency{
			Node: node, Volume: v.ID, Namespace: v.Namespace, Claim: v.Claim, Mode: mode, Calls: map[string]topTimes{},
		}
		for call, l := range since[mode] {
			times := topTimes{Timed: l.Timed}
			times.P50NS, times.P50Over = l.Percentile(50)
			times.P99NS, times.P99Over = l.Percentile(99)
			row.Calls[call] = times
		}
		t.Latency = append(t.Latency, row)
	}
}

// podOf finds or makes a pod. Processes of pods that their node does not know, such as those that are just ending, have
// one for all.
func podOf(pods map[string]*topPod, node string, seconds float64, p *coverage.Process) *topPod {
	pod, ok := pods[p.PodUID]
	if !ok {
		pod = &topPod{
			Namespace: p.Namespace, Pod: p.Pod, Node: node, Seconds: seconds, Counters: coverage.Counters{},
			volumes: map[string]bool{},
		}
		pods[p.PodUID] = pod
	}
	return pod
}

func (t *topPod) uses(v *coverage.Volume) {
	if !t.volumes[v.ID] {
		t.volumes[v.ID] = true
		t.PoolBytes += v.Pool.Bytes
		t.PoolUsed += v.Pool.Bytes - v.Pool.FreeBytes
	}
}

func (t *topPod) add(p *coverage.Process, difference coverage.Counters) {
	i := slices.IndexFunc(t.Processes, func(known *topProcess) bool { return known.PID == p.PID })
	if i < 0 {
		i = len(t.Processes)
		t.Processes = append(t.Processes, &topProcess{
			PID: p.PID, Command: p.Command, Container: p.Container, State: p.State, Counters: coverage.Counters{},
		})
	}
	process := t.Processes[i]
	if p.Served() && !slices.Contains(process.Modes, p.Mode) {
		process.Modes = append(process.Modes, p.Mode)
		slices.Sort(process.Modes)
	}
	process.Counters.Add(difference)
	t.Counters.Add(difference)
}

func traffic(c coverage.Counters) float64 { return float64(c["read_bytes"] + c.Written()) }

func busiest(a, b *topProcess) int {
	return cmp.Or(cmp.Compare(traffic(b.Counters), traffic(a.Counters)),
		cmp.Compare(b.Counters.Calls(), a.Counters.Calls()), cmp.Compare(a.PID, b.PID))
}

// lines are those of the table in so many columns (0: as many as it takes). Columns that have no room are left out
// whole.
func (t *topTable) lines(columns int) []string {
	g := &grid{gap: 2, columns: []gridColumn{
		{"NAMESPACE", 6}, {"POD / PROCESS", 0}, {headMode, 8}, {"SERVED", 0}, {"CALLS/s", 0}, {"READ/s", 9}, {"WRITE/s", 10},
		{"FSYNC/s", 7}, {"RELINK/s", 3}, {"CKPT/s", 2}, {"NOCOPY/s", 1}, {"POOL", 4}, {"CONTAINER", 5},
	}}
	for _, pod := range t.Pods {
		pod.addRows(g)
	}
	lines, _ := g.lines(columns)
	if len(t.Pods) == 0 {
		lines = []string{fmt.Sprintf("No process uses a volume (%s looked at).", count(t.nodes, "node"))}
	}
	lines = append(lines, t.latencyLines(columns)...)
	for _, j := range t.Jobs {
		lines = append(lines,
			fmt.Sprintf("node %s: %s, claim %s/%s: %s, %s of %s", j.Node, j.ID, orDash(j.Namespace), orDash(j.Claim), j.Kind,
				amount(float64(j.DoneBytes), 1024), amount(float64(j.TotalBytes), 1024)))
	}
	for _, u := range t.Unanswered {
		lines = append(lines, fmt.Sprintf("node %s does not answer: %s", u.Node, printable(u.Why)))
	}
	return lines
}

// addRows adds the pod and its processes.
func (t *topPod) addRows(g *grid) {
	pool := fmt.Sprintf("%s of %s", amount(float64(t.PoolUsed), 1024), amount(float64(t.PoolBytes), 1024))
	g.add(slices.Concat([]string{orDash(t.Namespace), cmp.Or(t.Pod, "(ending)"), ""}, rates(t.Counters, t.Seconds),
		[]string{pool})...)
	for _, p := range t.Processes {
		command := fmt.Sprintf("  %s (%d)", printable(p.Command), p.PID)
		if p.State != coverage.StateLoaded {
			g.add("", command, "-", "no: "+p.State, "-", "-", "-", "-", "-", "-", "-", "", orDash(p.Container))
			continue
		}
		g.add(slices.Concat([]string{"", command, strings.Join(p.Modes, ",")}, rates(p.Counters, t.Seconds),
			[]string{"", orDash(p.Container)})...)
	}
}

// latencyLines are a table of their own: how long calls took is counted by volume and mode. Where it has no room, each
// kind of call has a line.
func (t *topTable) latencyLines(columns int) []string {
	if len(t.Latency) == 0 {
		return nil
	}
	wide := &grid{gap: 2, columns: []gridColumn{{headClaim, 1}, {headMode, 1}}}
	narrow := &grid{gap: 2, columns: []gridColumn{{headClaim, 2}, {headMode, 1}, {"CALL", 0}, {"p50", 0}, {"p99", 0}}}
	for _, call := range coverage.Calls() {
		wide.columns = append(wide.columns, gridColumn{strings.ToUpper(call) + " p50, p99", 1})
	}
	for _, row := range t.Latency {
		claim := row.Volume
		if row.Claim != "" {
			claim = row.Namespace + "/" + row.Claim
		}
		cells := []string{printable(claim), row.Mode}
		for _, call := range coverage.Calls() {
			times, ok := row.Calls[call]
			if !ok {
				cells = append(cells, "-")
				continue
			}
			half, most := nanoseconds(times.P50NS, times.P50Over), nanoseconds(times.P99NS, times.P99Over)
			cells = append(cells, half+", "+most)
			narrow.add(printable(claim), row.Mode, call, half, most)
		}
		wide.add(cells...)
	}
	lines, left := wide.lines(columns)
	if len(left) > 0 {
		lines, _ = narrow.lines(columns)
	}
	return append([]string{""}, lines...)
}

func rates(c coverage.Counters, seconds float64) []string {
	return []string{
		share(c.Served(), c.Calls()), timesRate(c.Calls(), seconds), bytesRate(c["read_bytes"], seconds),
		bytesRate(c.Written(), seconds),
		timesRate(c["fsync_ops"], seconds), timesRate(c["relink_ops"], seconds), timesRate(c["checkpoints"], seconds),
		timesRate(c.WithoutCopy(), seconds),
	}
}
