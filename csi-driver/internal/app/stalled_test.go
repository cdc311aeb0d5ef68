// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// blackHole is an API server that takes every connection and says nothing; it returns a kubeconfig.
func blackHole(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
	}()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
clusters: [{name: c, cluster: {server: "http://%s"}}]
`, listener.Addr()), 0o600))
	return path
}

func get(url string) (int, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// TestAPIServerSaysNothing: a node service that starts while no request to the API server is ever answered gets live
// and serves the volumes that it has.
func TestAPIServerSaysNothing(t *testing.T) {
	s := startNode(t, "", "")
	v := s.createVolume(t, "xfs")
	v.stage(t)
	s.stop()
	s.options.kubeconfig, s.options.events, s.options.status, s.options.requireLibrary = blackHole(t), true, true, true
	s.options.statusInterval, s.options.statusHeartbeat = time.Second, time.Minute
	began := time.Now()
	s.start()
	for _, path := range []string{"/healthz", "/readyz"} {
		eventually(t, path, func() error {
			code, err := get("http://" + s.options.httpEndpoint + path)
			if path == "/readyz" && code == http.StatusServiceUnavailable && err == nil {
				return nil // no kubelet registers it here
			}
			if err != nil || code != http.StatusOK {
				return fmt.Errorf("%d: %w", code, errors.Join(err, errors.New("not ok")))
			}
			return nil
		})
	}
	v.stage(t)
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
	v.unstage(t)
	v.remove(t)
}

// TestDeviceProgramsHang: ndctl and lvm take for ever. The service is live at once, says that it is not ready, and
// answers who it is.
func TestDeviceProgramsHang(t *testing.T) {
	bin := t.TempDir()
	for _, program := range []string{"ndctl", "lvm"} {
		must(t, os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755))
	}
	s := startNode(t, "", "")
	s.stop()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	s.options.devices.devices = []string{"emulated", "lvm", "namespace"}
	s.options.devices.regions = []string{"all"}
	s.start()
	eventually(t, "alive", func() error {
		code, err := get("http://" + s.options.httpEndpoint + "/healthz")
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("/healthz: %d, %w", code, errors.Join(err, errors.New("not ok")))
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.DefaultConfig)),
		2*time.Second)
	defer cancel()
	if resp, err := csi.NewIdentityClient(s.conn).Probe(ctx, &csi.ProbeRequest{}); err != nil ||
		resp.GetReady().GetValue() {
		t.Errorf("probe: %v, %v", resp, err)
	}
	if _, err := csi.NewNodeClient(s.conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{}); err != nil {
		t.Errorf("who it is: %v", err)
	}
	v := s.createVolume(t, "xfs")
	v.stage(t)
	v.unstage(t)
	v.remove(t)
}
