// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

type recorder struct {
	events.Discard
	texts []string
}

func (r *recorder) OnPod(_ context.Context, pod volume.Pod, warning bool, reason, message string) {
	r.texts = append(r.texts, fmt.Sprintf("%v %s %s: %s", warning, reason, pod.Name, message))
}

type source []Volume

func (s *source) Published() ([]Volume, error) { return *s, nil }

// node is a volume and a library, mounted as in a container, and the processes of one pod.
type node struct {
	t           *testing.T
	dir, volume string
	library     string
	containers  map[int]string
}

func newNode(t *testing.T) (*node, Volume) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts file systems: needs root")
	}
	n := &node{t: t, dir: t.TempDir(), containers: map[int]string{}}
	n.volume = n.mount("volume")
	n.library = filepath.Join(n.mount("library"), "libsplit.so")
	n.compile(n.library, "int split_test_symbol;", "-shared", "-fPIC")
	var stat unix.Stat_t
	if err := unix.Stat(n.volume, &stat); err != nil {
		t.Fatal(err)
	}
	return n, Volume{
		ID: "vol", Mode: contract.Strict, Device: stat.Dev, Pods: []volume.Pod{{Namespace: "ns", Name: "web", UID: "uid"}},
	}
}

func (n *node) mount(name string) string {
	n.t.Helper()
	dir := filepath.Join(n.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		n.t.Fatalf("mount: %v", err)
	}
	n.t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			n.t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

func (n *node) compile(out, code string, options ...string) string {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), "gcc", append(options, "-x", "c", "-o", out, "-")...)
	cmd.Stdin = strings.NewReader(code)
	if output, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("compile %s: %v\n%s", out, err, output)
	}
	return out
}

// start runs a program in a container until the test ends; it says a line when it has done what it has to do.
func (n *node) start(container string, environment []string, program ...string) {
	n.t.Helper()
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Env = environment
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatalf("start %s: %v", container, err)
	}
	n.t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // Wait reports what became of it
		cmd.Wait()         //nolint:errcheck // it was killed
	})
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		n.t.Fatalf("%s did not start: %v", container, err)
	}
	n.containers[cmd.Process.Pid] = container
}

const waits = `
#include <fcntl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	if (argc > 1 && open(argv[1], O_RDWR | O_CREAT, 0600) < 0)
		return 1;
	if (write(1, "\n", 1) != 1)
		return 1;
	for (;;)
		pause();
}
`

const waitsInGo = `package main

import (
	"os"
	"time"
)

func main() {
	os.Stdout.WriteString("\n")
	time.Sleep(time.Hour)
}
`

// TestProcesses: real programs, each of which has the library or lacks it for another reason.
func TestProcesses(t *testing.T) {
	n, vol := newNode(t)
	preload := []string{"LD_PRELOAD=" + n.library}
	program := n.compile(filepath.Join(n.dir, "program"), waits)
	static := n.compile(filepath.Join(n.dir, "static"), waits, "-static")
	setgid := n.compile(filepath.Join(n.dir, "setgid"), waits)
	if err := os.Chown(setgid, 0, 12345); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(setgid, 0o755|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	code := filepath.Join(n.dir, "main.go")
	if err := os.WriteFile(code, []byte(waitsInGo), 0o600); err != nil {
		t.Fatal(err)
	}
	goProgram := filepath.Join(n.dir, "goprogram")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", goProgram, code)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	file := filepath.Join(n.volume, "file")

	n.start("replaced", preload, program)
	old := n.library
	if err := os.Rename(n.compile(n.library+".new", "int split_newer;", "-shared", "-fPIC"), old); err != nil {
		t.Fatal(err)
	}
	n.start("good", preload, program, file)
	n.start("static", preload, static, file)
	n.start("go", append(preload, "HOME=/"), goProgram)
	n.start("setgid", preload, setgid)
	n.start("cleared", nil, program, file)
	n.start("other-element", []string{"LD_PRELOAD=" + n.library + ".old"}, program)
	n.start("not-injected", nil, "/usr/bin/unshare", "--mount", "/bin/sh",
		"-c", "umount "+filepath.Dir(n.library)+" && exec "+program)
	n.start("no-volume", preload, "/usr/bin/unshare", "--mount", "/bin/sh", "-c", "umount "+n.volume+" && exec "+program)
	if err := os.WriteFile(n.library+".broken", []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(n.library+".broken", n.library); err != nil {
		t.Fatal(err)
	}
	n.start("linker", preload, program)

	told := &recorder{}
	volumes := source{vol}
	v := New(Config{Source: &volumes, Events: told, Proc: "/proc", Library: n.library,
		Owner: func(pid int) (string, string) {
			if container, ok := n.containers[pid]; ok {
				return "uid", container
			}
			return "", ""
		}})
	looked, err := v.Look()
	if err != nil || len(looked) != 9 || len(told.texts) != 0 || series(t, v) != 0 {
		t.Errorf("a look finds %v (%v), and tells %q", looked, err, told.texts)
	}
	if first, err := v.Scan(t.Context()); err != nil || len(first) != 0 {
		t.Errorf("the first scan reports %v (%v), although a process may just be starting", first, err)
	}
	findings, err := v.Scan(t.Context())
	if err != nil || fmt.Sprint(findings) != fmt.Sprint(looked) {
		t.Fatalf("a scan finds %v (%v), a look found %v", findings, err, looked)
	}
	got := map[string]string{}
	for _, f := range findings {
		got[f.Container] = fmt.Sprint(f.State, " ", f.Open)
	}
	want := map[string]string{
		"replaced": "loaded false", "good": "loaded false", "static": "static true", "go": "static-go false",
		"setgid":  "set-uid false",
		"cleared": "environment true", "other-element": "environment false", "not-injected": "not-injected false",
		"linker": "linker false",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("found %v\nwant  %v", got, want)
	}
	checkTold(t, told.texts)
	if _, err := v.Scan(t.Context()); err != nil || len(told.texts) != 7 {
		t.Errorf("%d events after another scan (%v): %q", len(told.texts), err, told.texts)
	}
	if count := series(t, v); count != len(want) {
		t.Errorf("%d series, want %d", count, len(want))
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(v)
	charttest.CheckSamples(t, "pods", registry, "splitfs_")

	volumes = nil
	if looked, err := v.Look(); err != nil || len(looked) != 0 {
		t.Errorf("a look after the pod: %v %v", looked, err)
	}
	if findings, err := v.Scan(t.Context()); err != nil || len(findings) != 0 || len(v.reported) != 0 ||
		series(t, v) != 0 {
		t.Errorf("after the pod: %v %v %v", findings, err, v.reported)
	}
}

// checkTold: one event per container that lacks the library, a warning when its process has files open.
func checkTold(t *testing.T, texts []string) {
	t.Helper()
	for container, says := range map[string]string{
		"static": "linked statically", "go": "it is a Go program", "setgid": "set-gid",
		"cleared":       "LD_PRELOAD does not name it",
		"other-element": "LD_PRELOAD does not name it", "not-injected": "was not injected",
		"linker": "its dynamic linker did not load it",
	} {
		warning := container == "static" || container == "cleared"
		count := 0
		for _, text := range texts {
			if strings.Contains(text, "of container "+container+" ") {
				count++
				if !strings.HasPrefix(text, fmt.Sprintf("%v LibraryNotLoaded web: ", warning)) || !strings.Contains(text, says) ||
					!strings.Contains(text, "guarantee of mode strict") {
					t.Errorf("event %s", text)
				}
			}
		}
		if count != 1 {
			t.Errorf("container %s: %d events among %q", container, count, texts)
		}
	}
}

// series counts what the metric shows.
func series(t *testing.T, v *Verifier) int {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(v); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, family := range families {
		count += len(family.GetMetric())
	}
	return count
}

// TestCgroups: kubelet's two ways to name them, seen from a container or from the host.
func TestCgroups(t *testing.T) {
	const uid = "0a1b2c3d-1111-2222-3333-444455556666"
	const id = "aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899"
	for text, want := range map[string][2]string{
		"0::/kubepods/burstable/pod" + uid + "/" + id +
			"\n": {uid, id},
		"0::/../../kubepods-besteffort-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice/cri-containerd-" + id +
			".scope\n": {uid, id},
		"12:cpu:/kubepods/pod" + uid + "/" + id + "\n1:name=systemd:/kubepods/pod" + uid + "/" + id +
			"\n": {uid, id},
		"0::/kubepods/pod" + uid + "\n":     {uid, ""},
		"0::/system.slice/podman.service\n": {},
		"":                                  {},
	} {
		if pod, container := parseCgroup(text); pod != want[0] || container != want[1] {
			t.Errorf("%q: pod %q, container %q", text, pod, container)
		}
	}
}

// TestScanIsCheap: the processes of other pods cost one small read each.
func TestScanIsCheap(t *testing.T) {
	volumes := source{{ID: "vol", Device: 1, Pods: []volume.Pod{{UID: "nobody"}}}}
	v := New(Config{Source: &volumes, Events: &recorder{}, Proc: "/proc", Library: contract.LibraryPath})
	start := time.Now()
	if findings, err := v.Scan(t.Context()); err != nil || len(findings) != 0 {
		t.Fatalf("%v %v", findings, err)
	}
	t.Logf("one scan took %v", time.Since(start))
}
