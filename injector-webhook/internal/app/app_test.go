// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"splitfs.io/splitfs/charts/charttest"
)

// program builds splitfs-injector once per test.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "splitfs-injector")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./injector-webhook/cmd/splitfs-injector")
	cmd.Dir = charttest.Root(t)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build splitfs-injector: %v\n%s", err, output)
	}
	return path
}

// kubeconfig writes a file that acts as the chart's ServiceAccount, with its rights and no others.
func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"c": {Server: "https://" + strings.TrimPrefix(config.Host, "https://"), CertificateAuthorityData: config.CAData},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: config.CertData,
			ClientKeyData: config.KeyData,
			Impersonate:   "system:serviceaccount:" + charttest.Namespace + ":splitfs-injector",
			ImpersonateGroups: []string{"system:serviceaccounts", "system:serviceaccounts:" + charttest.Namespace,
				"system:authenticated"}}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path)
	if err != nil {
		t.Fatalf("write kubeconfig: %v", err)
	}
	return path
}

// lockedBuffer collects a process's output while the test reads it.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// replica is one running splitfs-injector.
type replica struct {
	cmd                    *exec.Cmd
	log                    *lockedBuffer
	webhook, health, meter int
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		// All are held until all are chosen, so that none is given twice.
		defer listener.Close() //nolint:errcheck // a listener that never accepted has nothing to lose
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func startReplica(t *testing.T, path, config string, arguments ...string) *replica {
	t.Helper()
	ports := freePorts(t, 3)
	r := &replica{log: &lockedBuffer{}, webhook: ports[0], health: ports[1], meter: ports[2]}
	r.cmd = exec.Command(path,
		append(arguments, "--kubeconfig="+config, "--namespace="+charttest.Namespace, "--host=127.0.0.1",
			"--extra-dns-name=localhost",
			fmt.Sprintf("--port=%d", r.webhook), fmt.Sprintf("--health-address=127.0.0.1:%d", r.health),
			fmt.Sprintf("--metrics-address=127.0.0.1:%d", r.meter), "--v=4")...)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatalf("start injector: %v", err)
	}
	t.Cleanup(func() {
		r.stop(t)
		if t.Failed() {
			t.Logf("injector on port %d:\n%s", r.webhook, r.log)
		}
	})
	return r
}

// stop ends the process as kubelet does and expects it to leave in good order.
func (r *replica) stop(t *testing.T) {
	t.Helper()
	if r.cmd.ProcessState != nil {
		return
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("stop injector: %v", err)
	}
	kill := time.AfterFunc(20*time.Second, func() {
		t.Error("the injector did not stop within 20 seconds of SIGTERM")
		r.cmd.Process.Kill() //nolint:errcheck // Wait reports what became of it
	})
	defer kill.Stop()
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("injector ended with %v", err)
	}
}

func (r *replica) get(ctx context.Context, port int, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // the body was read
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

func (r *replica) waitReady(t *testing.T) {
	t.Helper()
	eventually(t, "injector is ready", func() error {
		code, body, err := r.get(t.Context(), r.health, "/readyz")
		if err != nil {
			return err
		}
		if code != http.StatusOK {
			return fmt.Errorf("readyz: %d %s", code, body)
		}
		return nil
	})
}

// eventually repeats a check until it holds; a minute is far more than anything here needs, also on a busy machine.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestBadCommandLines(t *testing.T) {
	path := program(t)
	for arguments, says := range map[string]string{
		"--no-such-flag":                    "no-such-flag",
		"argument":                          "argument",
		"":                                  "--namespace must not be empty",
		"--namespace=x --lookup-timeout=0s": "--lookup-timeout must be positive",
		"--namespace=x --kubeconfig=/nonexistent": "/nonexistent",
	} {
		cmd := exec.CommandContext(t.Context(), path, strings.Fields(arguments)...)
		cmd.Env = []string{"PATH=/usr/bin", "HOME=" + t.TempDir()}
		output, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(output), says) || !strings.HasPrefix(string(output), "splitfs-injector: ") {
			t.Errorf("splitfs-injector %s: %v, output %q; want one line with %q", arguments, err, output, says)
		}
	}
}

func bundleIsSet(webhook map[string]any) error {
	client, ok := webhook["clientConfig"].(map[string]any)
	if !ok {
		return errors.New("no clientConfig")
	}
	text, ok := client["caBundle"].(string)
	if !ok {
		return errors.New("no caBundle")
	}
	pem, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !strings.Contains(string(pem), "BEGIN CERTIFICATE") {
		return fmt.Errorf("caBundle is no certificate: %w", err)
	}
	return nil
}
