// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

func TestSocketPath(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///a/b.sock": "/a/b.sock", "/a/b.sock": "/a/b.sock", "tcp://1.2.3.4:5": "", "a.sock": "", "unix://a": "",
	} {
		if got, err := SocketPath(endpoint); want != "" && (err != nil || got != want) || want == "" && err == nil {
			t.Errorf("%q: %q, %v", endpoint, got, err)
		}
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "a.sock")
	first, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := Listen(path) // as after a crash: the socket is there and nobody is behind it
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	file := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("listening in place of a file: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
}

// TestLoggingStripsSecrets: method, volume and payload are in the log, secrets are not.
func TestLoggingStripsSecrets(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(5), ktesting.BufferLogs(true)))
	req := &csi.NodeStageVolumeRequest{
		VolumeId: "vol-1", StagingTargetPath: "/s", Secrets: map[string]string{"key": "hunter2"},
	}
	handler := func(ctx context.Context, _ any) (any, error) {
		klog.FromContext(ctx).Info("Inside")
		return nil, status.Error(codes.Internal, "broken")
	}
	_, err := logging(logger)(context.Background(), req, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Node/NodeStageVolume"},
		handler)
	if status.Code(err) != codes.Internal {
		t.Errorf("the error did not come through: %v", err)
	}
	underlier, ok := logger.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatal("no access to the log")
	}
	log := underlier.GetBuffer().String()
	for _, want := range []string{"NodeStageVolume", "vol-1", "/s", "stripped", "Inside", "broken"} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not in the log:\n%s", want, log)
		}
	}
	if strings.Contains(log, "hunter2") {
		t.Errorf("a secret is in the log:\n%s", log)
	}
}

func TestRecovering(t *testing.T) {
	_, err := recovering(context.Background(), nil, nil, func(context.Context, any) (any, error) { panic("oops") })
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "oops") {
		t.Errorf("a panic became %v", err)
	}
}

func TestMux(t *testing.T) {
	var live, ready error
	mux := NewMux(
		[]Check{func(context.Context) error { return live }}, []Check{func(context.Context) error { return ready }},
		csimetrics.NewCSIMetricsManagerForPlugin("test"),
	)
	code := func(path string) int {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	for _, c := range []struct {
		live, ready       error
		wantLive, wantRdy int
	}{
		{nil, nil, 200, 200},
		{nil, errors.New("not yet"), 200, 503},
		{errors.New("dead"), nil, 503, 503},
	} {
		live, ready = c.live, c.ready
		if l, r := code("/healthz"), code("/readyz"); l != c.wantLive || r != c.wantRdy {
			t.Errorf("live %v, ready %v: /healthz %d, /readyz %d", c.live, c.ready, l, r)
		}
	}
	if code("/metrics") != 200 || code("/nothing") != 404 {
		t.Error("unexpected answers of /metrics or /nothing")
	}
}
