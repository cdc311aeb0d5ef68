// SPDX-License-Identifier: Apache-2.0

// Package charttest is what tests need that look at the chart: Helm, rendered objects, and a real API server to try
// them on.
package charttest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Namespace is where the tests install the chart.
const Namespace = "splitfs-system"

// Root is the top of the source tree.
func Root(tb testing.TB) string {
	tb.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		tb.Fatal("the test does not know its own file")
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// tool returns the path of a program that hack/build-tools builds, or an empty string when it has not been built.
func tool(tb testing.TB, family, program string) string {
	tb.Helper()
	buildTools := filepath.Join(Root(tb), "hack", "build-tools")
	dir, err := exec.CommandContext(tb.Context(), buildTools, "--print-dir", family).Output()
	if err != nil {
		tb.Fatalf("%s --print-dir %s: %v", buildTools, family, err)
	}
	path := filepath.Join(strings.TrimSpace(string(dir)), program)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// Helm returns a helm program: $HELM, or the one of hack/build-tools, which is built when it is not there.
func Helm(tb testing.TB) string {
	tb.Helper()
	if helm := os.Getenv("HELM"); helm != "" {
		return helm
	}
	if helm := tool(tb, "helm", "helm"); helm != "" {
		return helm
	}
	tb.Log("building helm; this takes minutes, once")
	if output, err := exec.CommandContext(tb.Context(), filepath.Join(Root(tb), "hack", "build-tools"), "helm").
		CombinedOutput(); err != nil {
		tb.Fatalf("hack/build-tools helm: %v\n%s", err, output)
	}
	return tool(tb, "helm", "helm")
}

// Template runs helm template with further arguments. An error holds what Helm says.
func Template(tb testing.TB, arguments ...string) ([]byte, error) {
	tb.Helper()
	arguments = append(
		[]string{"template", "splitfs", filepath.Join(Root(tb), "charts", "splitfs"), "--namespace", Namespace}, arguments...)
	cmd := exec.CommandContext(tb.Context(), Helm(tb), arguments...)
	var output, errorOutput bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &errorOutput
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("helm template: %w: %s", err, errorOutput.String())
	}
	return output.Bytes(), nil
}

// Render returns the chart's objects.
func Render(tb testing.TB, arguments ...string) []*unstructured.Unstructured {
	tb.Helper()
	text, err := Template(tb, arguments...)
	if err != nil {
		tb.Fatal(err)
	}
	return Objects(tb, text)
}

// Objects decodes a stream of YAML documents.
func Objects(tb testing.TB, text []byte) []*unstructured.Unstructured {
	tb.Helper()
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			tb.Fatalf("decode manifest: %v", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// StartAPIServer starts etcd and kube-apiserver (RBAC on) until the test ends. It skips the test when they have not
// been built: that takes 20 CPU minutes, which a test does not start by itself.
func StartAPIServer(tb testing.TB) *envtest.Environment {
	tb.Helper()
	apiserver, etcd := tool(tb, "kubernetes", "kube-apiserver"), tool(tb, "etcd", "etcd")
	if apiserver == "" || etcd == "" {
		tb.Skip("needs a real API server: run hack/build-tools etcd kubernetes first")
	}
	env := &envtest.Environment{ControlPlane: envtest.ControlPlane{
		APIServer: &envtest.APIServer{Path: apiserver},
		Etcd:      &envtest.Etcd{Path: etcd},
	}}
	if _, err := env.Start(); err != nil {
		tb.Fatalf("start API server: %v", err)
	}
	tb.Cleanup(func() {
		if err := env.Stop(); err != nil {
			tb.Errorf("stop API server: %v", err)
		}
	})
	return env
}

// Eventually calls condition until it returns nil, for a minute: types, rights and policies have effect a moment after
// they were accepted.
func Eventually(tb testing.TB, what string, condition func() error) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s: %v", what, err)
		}
	}
}
