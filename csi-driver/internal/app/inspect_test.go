// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

// appendAndWait is a program that appends 64 blocks to a file, says so, and stays until its standard input ends.
const appendAndWait = `import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
for _ in range(64):
    os.write(fd, bytes(4096))
os.write(1, b"\n")
os.read(0, 1)`

// TestRealCoverage: the node service says of a real process that the library serves it, in which mode, and what it did.
func TestRealCoverage(t *testing.T) {
	binary, library := realParts(t)
	s := startNode(t, binary, library)
	v := s.create("covered", "strict")
	inject := filepath.Join(s.dir, "inject-strict")
	s.must(s.stage(v), s.publish(v), s.publishLibrary(inject))

	cmd := commandWithLibrary(inject, "sync", v.target, "python3", "-c", appendAndWait, v.target+"/file")
	cmd.Env = append(cmd.Env, "SPLITFS_GRANT=first")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadByte(); err != nil {
		t.Fatal(err)
	}
	// A shim may stand between the command and the program: the process is known by what it wrote.
	eventually(t, "the process is in the node's answer", func() error {
		seen, err := s.coverage()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(seen.Volumes, func(found coverage.Volume) bool { return found.ID == v.id })
		if i < 0 || seen.Node != "node-1" || seen.Incomplete != "" {
			return fmt.Errorf("the answer is %+v", seen)
		}
		found := seen.Volumes[i]
		if !found.AgentReady || !found.Emulated || found.Mode != "strict" || found.Pool.Bytes == 0 ||
			found.Root != v.staging {
			return fmt.Errorf("the volume is %+v", found)
		}
		for _, p := range found.Processes {
			if p.Served() && p.Mode == "sync" && p.State == coverage.StateLoaded && p.Counters.Served() >= 64 &&
				p.Counters.Written() == 64*4096 && p.Counters["records"] > 0 {
				return nil
			}
		}
		return fmt.Errorf("its processes are %+v", found.Processes)
	})

	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process has gone from it, and what it did stays", func() error {
		seen, err := s.coverage()
		if err != nil {
			return err
		}
		for _, found := range seen.Volumes {
			if found.ID == v.id && len(found.Processes) == 0 && found.Recovery.Pending == 0 &&
				found.Totals.Written() == 64*4096 {
				return nil
			}
		}
		return fmt.Errorf("the answer is %+v", seen)
	})
	s.must(s.unpublish("csi-strict", inject), s.unpublish(v.id, v.target), s.unstage(v), s.delete(v))
}

func (s *service) coverage() (*coverage.Node, error) {
	resp, err := http.Get("http://" + s.options.inspectEndpoint + coverage.Path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var seen coverage.Node
	return &seen, json.NewDecoder(resp.Body).Decode(&seen)
}
