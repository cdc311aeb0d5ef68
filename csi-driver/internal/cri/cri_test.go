// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeRuntime has one container of each image; images map to what it tells of them.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	images map[string]string
}

func (f *fakeRuntime) ContainerStatus(_ context.Context,
	req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	image, ok := strings.CutPrefix(req.GetContainerId(), "container-of-")
	if !ok {
		return nil, errors.New("not found")
	}
	if image == "old" {
		return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{ImageRef: image}}, nil
	}
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{ImageId: image, ImageRef: "something else"},
	}, nil
}

func (f *fakeRuntime) ImageStatus(_ context.Context,
	req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	info, ok := f.images[req.GetImage().GetImage()]
	if !ok || !req.GetVerbose() {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{
		Image: &runtimeapi.Image{Id: req.GetImage().GetImage()}, Info: map[string]string{"info": info},
	}, nil
}

// TestImageEnv: what an image sets is found; everything that does not show it is an error, not an empty environment.
func TestImageEnv(t *testing.T) {
	root, err := os.MkdirTemp("", "cri") // short, for the sake of the socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) }) //nolint:errcheck // a directory of temporary files
	client := New(root, []string{"/run/none.sock", "/run/fake.sock"})
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // the test is over
	if _, err := client.ImageEnv(t.Context(), "container-of-app"); err == nil ||
		!strings.Contains(err.Error(), "/run/none.sock, /run/fake.sock") {
		t.Errorf("without a runtime: %v", err)
	}
	if err := os.Mkdir(filepath.Join(root, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(root, "run", "fake.sock"))
	if err != nil {
		t.Fatal(err)
	}
	const env = `"config":{"Env":["PATH=/bin","LD_PRELOAD=/a.so"],"Cmd":["sh"]}`
	f := &fakeRuntime{images: map[string]string{
		"app":  `{"chainID":"sha256:1","imageSpec":{"architecture":"amd64",` + env + `}}`,
		"old":  `{"imageSpec":{` + env + `}}`,
		"bare": `{"imageSpec":{"config":{}}}`, "mute": ``, "other": `{"config":{"Env":[]}}`,
	}}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, f)
	runtimeapi.RegisterImageServiceServer(server, f)
	go server.Serve(listener) //nolint:errcheck // Stop ends it
	t.Cleanup(server.Stop)

	want := []string{"PATH=/bin", "LD_PRELOAD=/a.so"}
	for image, want := range map[string][]string{"app": want, "old": want, "bare": nil} {
		if got, err := client.ImageEnv(t.Context(), "container-of-"+image); err != nil || !slices.Equal(got, want) {
			t.Errorf("image %s: %q, %v", image, got, err)
		}
	}
	for container, says := range map[string]string{
		"container-of-mute": "does not show", "container-of-other": "does not show", "container-of-gone": "does not have it",
		"x": "not found",
	} {
		if got, err := client.ImageEnv(t.Context(), container); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, %v", container, got, err)
		}
	}
}
