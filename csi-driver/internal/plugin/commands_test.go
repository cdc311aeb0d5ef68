// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

var update = flag.Bool("update", false, "write what the commands print into testdata")

// The tests' clock stands still.
var clock = time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)

// serverVersion changes with that of the API server that the tests run.
var serverVersion = regexp.MustCompile(`version v1[.][0-9.]+`)

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = serverVersion.ReplaceAllString(got, "version v1.X")
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is\n%s\nand should be\n%s", name, got, want)
	}
	for _, r := range got {
		if r < ' ' && r != '\n' {
			t.Errorf("%s: control character %q", name, r)
		}
	}
}

// fakeNodes answers for node services: each question gets the next of a node's answers, the last one for ever.
type fakeNodes struct {
	answers map[string][]*coverage.Node
	ran     []string
	advice  *coverage.Advice
	stdout  string
	runErr  error
}

func (f *fakeNodes) Coverage(_ context.Context, pod client.ObjectKey) (*coverage.Node, error) {
	list := f.answers[pod.Name]
	if len(list) == 0 {
		return nil, errors.New("connection refused")
	}
	if len(list) > 1 {
		f.answers[pod.Name] = list[1:]
	}
	return list[0], nil
}

func (f *fakeNodes) Advice(_ context.Context, pod client.ObjectKey, uid string, seconds int) (*coverage.Advice, error) {
	f.ran = append(f.ran, fmt.Sprintf("%s: watch %s for %d s", pod.Name, uid, seconds))
	return f.advice, f.runErr
}

func (f *fakeNodes) Run(_ context.Context, pod client.ObjectKey, command ...string) (string, string, error) {
	f.ran = append(f.ran, pod.Name+": "+strings.Join(command, " "))
	return f.stdout, "", f.runErr
}

// run runs a command line and returns what it prints.
func (b *bench) run(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	s := newSettings(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	s.now = func() time.Time { return clock }
	s.connect = func(s *settings) (*cluster, error) {
		c, err := connect(s)
		if err == nil {
			c.nodes = b.nodes
		}
		return c, err
	}
	root := newRoot(s)
	root.SetArgs(append([]string{"--kubeconfig", b.kubeconfig}, arguments...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// want runs a command and compares what it prints with a file.
func (b *bench) want(t *testing.T, name string, wantErr error, arguments ...string) {
	t.Helper()
	text, err := b.run(t, arguments...)
	if !errors.Is(err, wantErr) {
		t.Errorf("%q: error is %v, want %v", arguments, err, wantErr)
	}
	golden(t, name, text)
}

// TestCommands runs the commands against a real API server that has the chart's objects, as a user with the rights of
// the chart's roles and no others.
func TestCommands(t *testing.T) {
	b := newBench(t)
	t.Run("status", func(t *testing.T) {
		b.want(t, "status", nil, "status")
		b.want(t, "status-namespace", nil, "status", "-n", "bank")
		if text, err := b.run(t, "status", "-o", "json"); err != nil || !strings.Contains(text, `"claim": "shop/data"`) {
			t.Errorf("as JSON: %v, %s", err, text)
		}
	})
	t.Run("why", func(t *testing.T) {
		b.nodes.answers = b.looked(t)
		b.want(t, "why-served", nil, "-n", "shop", "why", "web")
		b.want(t, "why-opted-out", nil, "-n", "shop", "why", "opted-out")
		b.want(t, "why-early", nil, "-n", "shop", "why", "early")
		b.want(t, "why-exempt", nil, "-n", "kube-system", "why", "backup")
		b.want(t, "why-foreign", nil, "-n", "shop", "why", "foreign")
		if _, err := b.run(t, "-n", "shop", "why", "nobody"); err == nil ||
			!strings.Contains(err.Error(), "get pod shop/nobody") {
			t.Errorf("a pod that is not there: %v", err)
		}
	})
	t.Run("top", func(t *testing.T) {
		b.nodes.answers = lookedTwice()
		b.want(t, "top", nil, "top", "-A", "--once", "--interval", "1s")
		b.nodes.answers = lookedTwice()
		b.want(t, "top-namespace", nil, "top", "-n", "bank", "--once", "--interval", "1s")
		b.nodes.answers = lookedTwice()
		if text, err := b.run(t, "top", "-n", "shop", "web", "--once", "--interval", "1s", "-o", "json"); err != nil ||
			strings.Count(text, "\n") != 1 || !strings.Contains(text, `"append_bytes":4096000`) {
			t.Errorf("as JSON: %v, %s", err, text)
		}
		b.nodes.answers = nil
		if _, err := b.run(t, "top", "-A", "--once", "--interval", "1s"); err == nil ||
			!strings.Contains(err.Error(), "node n1: connection refused") {
			t.Errorf("no node answers: %v", err)
		}
		for _, arguments := range [][]string{
			{"top", "-A", "web"}, {"top", "--interval", "1ms"}, {"top", "-o", "yaml"}, {"top", "-n", "shop", "pending"},
		} {
			if text, err := b.run(t, arguments...); err == nil {
				t.Errorf("%q is accepted: %s", arguments, text)
			}
		}
	})
	t.Run("doctor", func(t *testing.T) {
		b.nodes.answers = b.looked(t)
		b.want(t, "doctor-sick", errFound, "doctor", "-n", "shop")
		b.heal(t)
		b.want(t, "doctor-well", nil, "doctor", "-n", "shop")
		b.breakWebhook(t)
		if text, err := b.run(t, "doctor", "-n", "shop"); !errors.Is(err, errFound) ||
			!strings.Contains(text, "would not get the library") {
			t.Errorf("no injector: %v, %s", err, text)
		}
	})
	t.Run("advise", func(t *testing.T) { b.checkAdvise(t) })
	t.Run("recover", func(t *testing.T) { b.checkRecover(t) })
	t.Run("without rights", func(t *testing.T) { b.checkForbidden(t) })
}

// checkAdvise: each process gets one conclusion, by what was seen of it.
func (b *bench) checkAdvise(t *testing.T) {
	file := func(name string, f coverage.WatchedFile) coverage.WatchedFile {
		f.Path, f.Mount = "/data/"+name, "/data"
		return f
	}
	b.nodes.advice = &coverage.Advice{
		Node: "n1", Seconds: 10,
		Costs: &coverage.Costs{Directory: "/var/lib/splitfs", Emulated: true, CPUNs: map[string]map[string]int64{
			"kernel": {"append64": 1000, "read4096": 1000}, "posix": {"append64": 100, "read4096": 200},
			"sync": {"append64": 300, "read4096": 200}, "strict": {"append64": 2000, "read4096": 200},
		}},
		Processes: []coverage.Watched{
			{PID: 7, Command: "writer", Reads: 100, ReadBytes: 500000, Writes: 100000, WrittenBytes: 10000000,
				FileWritten: 9000000, Looks: 200, Waited: map[string]int64{"fdatasync": 150},
				Files: []coverage.WatchedFile{
					file("log", coverage.WatchedFile{Writable: true}), file("out", coverage.WatchedFile{Stream: true}),
				}},
			{PID: 8, Command: "syncer", Looks: 200, Files: []coverage.WatchedFile{file("s", coverage.WatchedFile{Sync: true})}},
			{PID: 9, Command: "lazy", Looks: 200,
				Files: []coverage.WatchedFile{file("l", coverage.WatchedFile{Writable: true})}},
			{PID: 10, Command: "go\x1bprogram", State: "static-go", Cause: "it is a Go program", Looks: 200,
				Files: []coverage.WatchedFile{file("g", coverage.WatchedFile{})}},
			{PID: 11, Command: "mapper", Looks: 200,
				Files: []coverage.WatchedFile{file("m", coverage.WatchedFile{Mapped: true})}},
			{PID: 12, Command: "ring", Ring: true, Looks: 200, Files: []coverage.WatchedFile{file("r", coverage.WatchedFile{})}},
			{PID: 13, Command: "idle", Looks: 200},
			{PID: 14, Command: "served", State: coverage.StateLoaded, Looks: 200},
		},
	}
	b.nodes.ran = nil
	b.want(t, "advise", nil, "-n", "shop", "advise", "web", "--seconds", "3")
	if len(b.nodes.ran) != 1 || !strings.HasPrefix(b.nodes.ran[0], "splitfs-node-1: watch ") ||
		!strings.HasSuffix(b.nodes.ran[0], " for 3 s") {
		t.Errorf("ran %q", b.nodes.ran)
	}
	if text, err := b.run(t, "-n", "shop", "advise", "web", "-o", "json"); err != nil ||
		!strings.Contains(text, `"mode": "sync"`) {
		t.Errorf("as JSON: %v, %s", err, text)
	}
	for _, arguments := range [][]string{
		{"advise", "web", "--seconds", "0"}, {"advise", "web", "--seconds", "61"}, {"advise", "nobody"}, {"advise"},
	} {
		if text, err := b.run(t, append([]string{"-n", "shop"}, arguments...)...); err == nil {
			t.Errorf("%q is accepted: %s", arguments, text)
		}
	}
	b.nodes.ran = nil
}

// checkForbidden: who has no rights is told which he needs, and doctor leaves out what he may not look at.
func (b *bench) checkForbidden(t *testing.T) {
	for _, arguments := range [][]string{
		{"status"}, {"why", "web", "-n", "shop"}, {"top", "-A"}, {"recover", "data", "-n", "shop"},
		{"advise", "web", "-n", "shop"},
	} {
		_, err := b.run(t, append([]string{"--as", "nobody"}, arguments...)...)
		if err == nil || !strings.Contains(explain(err).Error(), "plugin.viewerRole") {
			t.Errorf("%q: %v", arguments, err)
		}
	}
	text, err := b.run(t, "--as", "nobody", "doctor")
	if err != nil || !strings.Contains(text, "SKIPPED") || strings.Contains(text, "FAILURE") {
		t.Errorf("doctor: %v, %s", err, text)
	}
}

func (b *bench) checkRecover(t *testing.T) {
	b.nodes.answers = lookedTwice()
	b.want(t, "recover-served", nil, "-n", "shop", "recover", "data")
	b.want(t, "recover-idle", nil, "-n", "shop", "recover", "idle")
	dead := lookedTwice()["splitfs-node-1"][1]
	dead.Volumes[0].AgentReady = false
	b.nodes.answers = map[string][]*coverage.Node{"splitfs-node-1": {dead}}
	b.nodes.stdout = `{"logs":2,"records":9,"replayed":5,"bytes":4096,"ignored":1,"files":1,"quarantined":2}`
	b.want(t, "recover-by-hand", errFound, "-n", "shop", "recover", "data")
	if len(b.nodes.ran) != 1 || b.nodes.ran[0] != "splitfs-node-1: splitfs recover /var/lib/kubelet/data --json" {
		t.Errorf("ran %q", b.nodes.ran)
	}
	b.nodes.runErr = errors.New("exit code 1")
	if _, err := b.run(t, "-n", "shop", "recover", "data"); err == nil || !strings.Contains(err.Error(), "exit code 1") {
		t.Errorf("the program fails: %v", err)
	}
	for claim, says := range map[string]string{
		"nothing": "not found", "foreign": "has no volume of SplitFS", "unbound": "no volume yet", "block": "raw block",
	} {
		if _, err := b.run(t, "-n", "shop", "recover", claim); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("claim %s: %v", claim, err)
		}
	}
}

// TestRecoverWaits: logs of processes that have just ended are waited for.
func TestRecoverWaits(t *testing.T) {
	pending, done := lookedTwice()["splitfs-node-1"][1], lookedTwice()["splitfs-node-1"][1]
	pending.Volumes[0].Recovery.Pending = 2
	var out bytes.Buffer
	r := &recovery{
		cluster: fakeCluster(t, &fakeNodes{answers: map[string][]*coverage.Node{"splitfs-node-1": {pending, done}}}),
		wait:    time.Minute,
	}
	if err := r.await(t.Context(), &printer{out: &out}, "n1", &pending.Volumes[0]); err != nil ||
		!strings.Contains(out.String(), "2 logs of ended processes waited") {
		t.Errorf("%v: %s", err, out.String())
	}
	r = &recovery{
		cluster: fakeCluster(t, &fakeNodes{answers: map[string][]*coverage.Node{"splitfs-node-1": {pending}}}),
		wait:    time.Millisecond,
	}
	if err := r.await(t.Context(), &printer{out: &out}, "n1", &pending.Volumes[0]); err == nil ||
		!strings.Contains(err.Error(), "has not recovered 2 logs") {
		t.Errorf("an agent that does not: %v", err)
	}
}
