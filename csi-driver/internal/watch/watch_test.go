// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/attach"
	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

const uid = "01234567-89ab-cdef-0123-456789abcdef"

// startPod runs a command, which is the one process of a pod.
func startPod(t *testing.T, dir, script string) *Watcher {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		cmd.Wait()         //nolint:errcheck // it was killed
	})
	owner := func(pid int) (string, string) {
		if pid == cmd.Process.Pid {
			return uid, "app"
		}
		return "", ""
	}
	binary := filepath.Join(dir, "splitfs")
	text := `#!/bin/sh
echo "$@" >` + filepath.Join(dir, "asked") + `
echo '{"directory":"/d","emulated":true,"provider":"copy",
"costsCpuNs":{"kernel":{"append64":800},"posix":{"append64":50}}}'
`
	if err := os.WriteFile(binary, []byte(text), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return &Watcher{
		Node: "n1", Processes: attach.New(attach.Config{Proc: "/proc", Library: "/opt/splitfs/libsplit.so", Owner: owner}),
		Binary: binary, Directory: "/d",
	}
}

// memoryDir is a directory on a mount of its own, as volumes of pods are.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "watch")
	if err != nil {
		t.Skip("there is no file system at /dev/shm:", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // in memory
	return dir
}

// TestWatch: what a process writes to a file of a volume is seen, and what it does elsewhere is not taken for that.
func TestWatch(t *testing.T) {
	dir := memoryDir(t)
	w := startPod(t, dir,
		`exec 5>>file 6>/dev/null; while :; do echo twelve-bytes >&5; echo elsewhere >&6; sleep 0.01; done`)
	time.Sleep(100 * time.Millisecond)
	advice, err := w.Watch(t.Context(), uid, 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(advice.Processes) != 1 || advice.Incomplete != "" {
		t.Fatalf("processes: %+v", advice)
	}
	p := advice.Processes[0]
	if p.Container != "app" || p.State != "" || p.Looks == 0 || p.Ring {
		t.Errorf("the process: %+v", p)
	}
	if p.FileWritten < 13 || p.FileWritten >= p.WrittenBytes || p.Writes < 2*p.FileWritten/13 {
		t.Errorf("%d bytes seen to go to the file, of %d in %d writes", p.FileWritten, p.WrittenBytes, p.Writes)
	}
	if len(p.Files) != 1 || p.Files[0].Path != filepath.Join(dir, "file") || p.Files[0].Mount != "/dev/shm" ||
		!p.Files[0].Append || !p.Files[0].Writable || p.Files[0].Stream {
		t.Errorf("files: %+v", p.Files)
	}
	if advice.Costs == nil || advice.Costs.CPUNs["kernel"]["append64"] != 800 {
		t.Errorf("costs: %+v, %s", advice.Costs, advice.CostsUnknown)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil || string(asked) != "advise --measure --json --dir /d\n" {
		t.Errorf("measured by %q, %v", asked, err)
	}
}

// TestStreamsAndMaps: what the kernel would go on serving is told.
func TestStreamsAndMaps(t *testing.T) {
	dir := memoryDir(t)
	w := startPod(t, dir, `exec python3 -c '
import mmap, os, time
f = os.open("mapped", os.O_RDWR | os.O_CREAT | os.O_DSYNC); os.ftruncate(f, 4096); m = mmap.mmap(f, 4096)
open("ready", "w"); time.sleep(60)' >out`)
	for i := 0; ; i++ {
		if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
			break
		}
		if i == 400 {
			t.Skip("no python3 that starts within 20 s")
		}
		time.Sleep(50 * time.Millisecond)
	}
	advice, err := w.Watch(t.Context(), uid, 100*time.Millisecond)
	if err != nil || len(advice.Processes) != 1 {
		t.Fatalf("%+v, %v", advice, err)
	}
	files := map[string]coverage.WatchedFile{}
	for _, f := range advice.Processes[0].Files {
		files[filepath.Base(f.Path)] = f
	}
	if f := files["out"]; !f.Stream || f.Mapped {
		t.Errorf("standard output: %+v", f)
	}
	if f := files["mapped"]; !f.Mapped || !f.Sync || f.Stream {
		t.Errorf("the mapped file: %+v", f)
	}
}

// TestServeHTTP: what is no UID and no time is refused before anybody is looked at.
func TestServeHTTP(t *testing.T) {
	w := startPod(t, t.TempDir(), "sleep 60")
	server := httptest.NewServer(w)
	defer server.Close()
	for query, want := range map[string]int{
		"pod=" + uid + "&seconds=1": http.StatusOK, "pod=" + uid: http.StatusBadRequest,
		"pod=..%2F1&seconds=1": http.StatusBadRequest,
		"pod=" + uid + "&seconds=" + strconv.Itoa(coverage.MaxWatchSeconds+1): http.StatusBadRequest,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var advice coverage.Advice
		if want == http.StatusOK &&
			(json.NewDecoder(response.Body).Decode(&advice) != nil || advice.Node != "n1" || advice.Seconds < 1) {
			t.Errorf("%s: %+v", query, advice)
		}
		response.Body.Close() //nolint:errcheck // it was only read
		if response.StatusCode != want {
			t.Errorf("%s: status %d, want %d", query, response.StatusCode, want)
		}
	}
}
