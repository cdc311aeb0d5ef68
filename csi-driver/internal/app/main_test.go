// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/internal/killtest"
	"splitfs.io/splitfs/csi-driver/internal/splitfstest"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

func TestMain(m *testing.M) {
	splitfstest.RunIfCalled()
	killtest.RunIfCalled()
	if filepath.Base(os.Args[0]) == driverName {
		os.Exit(Main())
	}
	runDeviceCallIfAsked()
	os.Exit(m.Run())
}

// driverName is how the test binary is called to be the driver itself.
const driverName = "splitfs-csi"

// service is `splitfs-csi node`, as it runs on a node, in directories of its own.
type service struct {
	t       *testing.T
	dir     string
	options nodeOptions
	conn    *grpc.ClientConn
	stop    func()
}

// startNode starts the service with real sockets, loop devices and mounts. binary is the splitfs program, "" for the
// test double.
func startNode(t *testing.T, binary, library string) *service {
	t.Helper()
	return startNodeWith(t, binary, library, 4*volume.GiB)
}

// startNodeWith is startNode with so many bytes for all volumes.
func startNodeWith(t *testing.T, binary, library string, capacity int64) *service {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices and mounts file systems")
	}
	dir, err := os.MkdirTemp("", "sfs") // short, for the sake of socket addresses
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, dir: dir}
	t.Cleanup(func() {
		checkNoLeaks(t, dir)
		if !t.Failed() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	})
	if binary == "" {
		if binary, err = splitfstest.Install(dir); err != nil {
			t.Fatal(err)
		}
		library = filepath.Join(dir, "libsplit.so")
		if err := os.WriteFile(library, []byte("not a library"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.options = nodeOptions{
		nodeName: "node-1", kubeletDir: filepath.Join(dir, "kubelet"), register: true, dataDir: filepath.Join(dir, "data"),
		devices: deviceOptions{devices: []string{volume.DeviceEmulated}, emulatedCapacity: quantity(capacity),
			regionPercent: 100, namespaceMap: "dev"},
		poolBytes: quantity(32 * volume.MiB), logReserve: quantity(32 * volume.MiB), poolFillPercent: 25,
		maxVolumes: 16, freezeLimit: time.Second, watchInterval: time.Second, binary: binary, library: library,
		httpEndpoint: charttest.FreeAddress(t), inspectEndpoint: charttest.FreeAddress(t),
	}
	if err := s.options.complete(); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *service) start() {
	s.t.Helper()
	logger, _ := ktesting.NewTestContext(s.t)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	done := make(chan error, 1)
	go func() { done <- runNode(ctx, s.options) }()
	conn, err := connection.Connect(ctx, s.options.endpoint, nil, connection.WithTimeout(20*time.Second),
		connection.OnConnectionLoss(func(context.Context) bool { return false }))
	if err != nil {
		cancel()
		s.t.Fatalf("connect: %v (the service: %v)", err, <-done)
	}
	s.conn = conn
	s.stop = func() {
		s.stop = func() {}
		if err := conn.Close(); err != nil {
			s.t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("the service ended with %v", err)
		}
	}
}

// checkNoLeaks fails the test for every mount and loop device that is left below dir.
func checkNoLeaks(t *testing.T, dir string) {
	t.Helper()
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, " "+dir+"/") {
			t.Errorf("mount left behind: %s", line)
		}
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(content), dir+"/") {
			t.Errorf("loop device left behind: %s of %s", file, content)
		}
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(fmt.Errorf("not so after 20 s: %s: %w", what, err))
		}
		time.Sleep(20 * time.Millisecond)
	}
}
