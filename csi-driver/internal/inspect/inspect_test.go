// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/agent"
	"splitfs.io/splitfs/csi-driver/internal/attach"
	"splitfs.io/splitfs/csi-driver/internal/coverage"
	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// fakeNode has what it is told, and counts how often it is asked.
type fakeNode struct {
	reports  []node.Report
	findings []attach.Finding
	err      error
	asked    int
}

func (f *fakeNode) Name() string { return "n1" }
func (f *fakeNode) Reports(context.Context) ([]node.Report, error) {
	f.asked++
	return f.reports, f.err
}
func (f *fakeNode) Jobs([]node.Report) ([]*volume.Record, error) {
	return []*volume.Record{
		{ID: "snapshot-1", PVC: volume.PVC{Namespace: "shop", Name: "data"},
			Job: &volume.Job{Kind: volume.JobCopy, Done: 5, Total: 10}},
	}, nil
}
func (f *fakeNode) Look() ([]attach.Finding, error) { return f.findings, nil }

// statusText is what `splitfs status --json` prints, with the members that matter here.
const statusText = `{"provider":"reflink","agent_pid":5,"pool":{"bytes":1000,"free_bytes":400,"files":2},
"processes":[{"pid":10,"comm":"redis","mode":"strict","alive":true,"counters":{"append_ops":3,"append_bytes":30}},
{"pid":11,"comm":"gone","mode":"strict","alive":false,"counters":{}},
{"pid":99,"comm":"un\u001bknown","mode":"sync","alive":true,"counters":{"read_ops":1}}],
"totals":{"append_ops":7},"latency":{"strict":{"append":{"timed":1,"sum_ns":900,"buckets":[[1024,1]]}}},
"recovery":{"runs":2,"records":9,"replayed":4,"quarantined":1},
"blocked":{"total":1,"now":[{"pid":10,"held_by":12,"inode":5,"seconds":40}]},
"unserved":{"enforcement":"on","refused":3,"durable":0,
"processes":[{"pid":12,"did":"refuse","opens":3,"seconds":9,"pod":"u","program":"/static","path":"/data/f"}]}}`

func bench(t *testing.T) *fakeNode {
	t.Helper()
	var status splitfs.Status
	if err := json.Unmarshal([]byte(statusText), &status); err != nil {
		t.Fatal(err)
	}
	pod := volume.Pod{Namespace: "shop", Name: "web", UID: "u"}
	found := func(pid int, command string, state attach.State, id string) attach.Finding {
		return attach.Finding{
			Volume: attach.Volume{ID: id}, Pod: pod, Container: "app", PID: pid, Command: command, State: state,
			Open: state != attach.Loaded,
		}
	}
	return &fakeNode{
		err: errors.New("a volume has no state"),
		reports: []node.Report{
			{Record: &volume.Record{ID: "idle", Mode: contract.Posix}},
			{Record: &volume.Record{ID: "block", Block: true, Staged: &volume.Staging{Path: "/b"}}},
			{
				Record: &volume.Record{
					ID: "v", Mode: contract.Strict, Device: "emulated", FSType: "xfs",
					PVC: volume.PVC{Namespace: "shop", Name: "data"}, Staged: &volume.Staging{Path: "/v"},
				},
				Emulated: true, Agent: agent.State{Ready: true}, Status: &status,
				Problems: []node.Problem{{Reason: "R", Message: "m"}},
			},
			{Record: &volume.Record{ID: "sick", Staged: &volume.Staging{Path: "/s"}}, StatusErr: errors.New("no answer")},
		},
		findings: []attach.Finding{found(12, "static", attach.Static, "v"), found(10, "redis-server", attach.Loaded, "v"),
			found(10, "redis-server", attach.Loaded, "other"), found(13, "sleep", attach.Loaded, "v")},
	}
}

// TestLook: processes of pods and those that have a lease are one list, each process once, and what cannot be seen is
// said.
func TestLook(t *testing.T) {
	server := httptest.NewServer(New(bench(t), bench(t)).Handler(http.NotFoundHandler()))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+coverage.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var got coverage.Node
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", response.Status, err)
	}
	if got.Node != "n1" || got.Incomplete != "a volume has no state" || time.Since(got.Time) > time.Minute ||
		len(got.Volumes) != 2 {
		t.Fatalf("got %+v", got)
	}
	if len(got.Jobs) != 1 ||
		got.Jobs[0] !=
			(coverage.Job{ID: "snapshot-1", Namespace: "shop", Claim: "data", Kind: "copy", DoneBytes: 5, TotalBytes: 10}) {
		t.Errorf("jobs %+v", got.Jobs)
	}
	v := got.Volumes[0]
	if v.ID != "v" || v.Claim != "data" || v.Mode != "strict" || !v.AgentReady || v.Root != "/v" ||
		v.Provider != "reflink" || v.Pool != (coverage.Pool{Bytes: 1000, FreeBytes: 400}) ||
		v.Recovery != (coverage.Recovery{Runs: 2, Replayed: 4, Quarantined: 1, Pending: 1}) || v.Totals["append_ops"] != 7 ||
		strings.Join(v.Problems, ";") != "R: m" ||
		len(v.Blocked) != 1 || v.Blocked[0] != (coverage.Blocked{PID: 10, HeldBy: 12, Seconds: 40}) {
		t.Errorf("volume is %+v", v)
	}
	if l := v.Latency["strict"]["append"]; l.Timed != 1 || len(l.Buckets) != 1 || l.Buckets[0] != [2]uint64{1024, 1} {
		t.Errorf("latency is %+v", v.Latency)
	}
	if unserved := (coverage.Unserved{PodUID: "u", PID: 12, Did: "refuse", Opens: 3, Seconds: 9, Program: "/static",
		Path: "/data/f"}); len(v.Unserved) != 1 || v.Unserved[0] != unserved {
		t.Errorf("refused: %+v", v.Unserved)
	}
	want := []struct {
		pid            int
		command, state string
		mode           string
		served, open   bool
	}{
		{10, "redis-server", "loaded", "strict", true, false}, {12, "static", "static", "", false, true},
		{13, "sleep", "loaded", "", false, false}, {99, "un?known", "loaded", "sync", true, false},
	}
	if len(v.Processes) != len(want) {
		t.Fatalf("processes are %+v", v.Processes)
	}
	for i, w := range want {
		p := v.Processes[i]
		if p.PID != w.pid || p.Command != w.command || p.State != w.state || p.Mode != w.mode || p.Served() != w.served ||
			p.Open != w.open || (p.Cause == "") != (p.State == "loaded") {
			t.Errorf("process %d is %+v", i, p)
		}
	}
	if v.Processes[0].Counters.Written() != 30 || v.Processes[0].Pod != "web" || v.Processes[3].Pod != "" {
		t.Errorf("processes are %+v", v.Processes)
	}
	if sick := got.Volumes[1]; sick.AgentReady || sick.Unknown != "no answer" || len(sick.Processes) != 0 {
		t.Errorf("volume without an agent is %+v", sick)
	}
}

// TestLookCached: who asks again at once gets the same answer, and a look that was cut short is told to nobody else.
func TestLookCached(t *testing.T) {
	fake := bench(t)
	i := New(fake, fake)
	now := time.Unix(1000, 0)
	i.now = func() time.Time { return now }
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, step := range []struct {
		ctx   context.Context
		after time.Duration
		asked int
	}{{gone, 0, 1}, {t.Context(), 0, 2}, {t.Context(), cacheFor / 2, 2}, {t.Context(), cacheFor, 3}} {
		now = now.Add(step.after)
		if i.Look(step.ctx); fake.asked != step.asked {
			t.Errorf("after %v: asked %d times, want %d", step.after, fake.asked, step.asked)
		}
	}
}

// TestCheckEndpoint: processes of all pods are not told to the network.
func TestCheckEndpoint(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:9815": true, "[::1]:1": true, ":9815": false, "0.0.0.0:9815": false, "10.0.0.1:1": false,
		"localhost:1": false, "127.0.0.1": false,
	} {
		if err := CheckEndpoint(address); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}
