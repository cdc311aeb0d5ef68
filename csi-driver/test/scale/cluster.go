// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const namespace = "splitfs-system"

// users are the accounts of the chart.
var users = []string{nodeUser, "splitfs-controller", "splitfs-injector"}

const nodeUser = "splitfs-node"

// askers are whose requests are counted apart: an account and, where it matters, a resource.
var askers = []asker{
	{nodeUser, "splitfsvolumes"}, {nodeUser, "splitfsnodes"}, {"splitfs-controller", ""}, {"splitfs-injector", ""},
}

// nodeRestriction asks for tokens that are bound to a node; here one user with a certificate acts for all nodes.
const nodeRestriction = "splitfs-node-restriction"

type asker struct{ account, resource string }

func (a asker) String() string {
	if a.resource == "" {
		return a.account
	}
	return a.account + " for " + a.resource
}

func account(name string) string { return "system:serviceaccount:" + namespace + ":" + name }

// auditPolicy has every request of our accounts logged, and nothing else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [%s]
- level: None
`

// cluster is a control plane, with the chart's objects, and our programs.
type cluster struct {
	env      *envtest.Environment
	admin    *rest.Config
	clients  kubernetes.Interface
	audit    string
	programs map[string]*exec.Cmd
	logs     []*os.File
	nodes    *rest.Config // acts as the node service
}

func startCluster(ctx context.Context, o options) (*cluster, error) {
	c := &cluster{programs: map[string]*exec.Cmd{}, audit: filepath.Join(o.dir, "audit.log")}
	policy := filepath.Join(o.dir, "audit-policy.yaml")
	accounts := make([]string, 0, len(users))
	for _, u := range users {
		accounts = append(accounts, strconv.Quote(account(u)))
	}
	if err := os.WriteFile(policy, fmt.Appendf(nil, auditPolicy, strings.Join(accounts, ", ")), 0o600); err != nil {
		return nil, err
	}
	server := &envtest.APIServer{Path: filepath.Join(o.kubernetes, "kube-apiserver")}
	server.Configure().Append("audit-policy-file", policy).Append("audit-log-path", c.audit).
		Append("audit-log-mode", "blocking").Append("audit-log-maxsize", "100000")
	c.env = &envtest.Environment{
		ControlPlane: envtest.ControlPlane{APIServer: server, Etcd: &envtest.Etcd{
			Path: filepath.Join(o.etcd, "etcd"),
		}},
		ControlPlaneStopTimeout: 2 * time.Minute,
	}
	config, err := c.env.Start()
	if err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	config.QPS, config.Burst = -1, -1
	c.admin = config
	if err := c.startPrograms(ctx, o); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) startPrograms(ctx context.Context, o options) error {
	var err error
	if c.clients, err = kubernetes.NewForConfig(c.admin); err != nil {
		return err
	}
	if err := c.apply(ctx, o.objects); err != nil {
		return err
	}
	adminFile := filepath.Join(o.dir, "admin.kubeconfig")
	if err := os.WriteFile(adminFile, c.env.KubeConfig, 0o600); err != nil {
		return err
	}
	files := map[string]string{}
	for _, u := range users {
		user, err := c.env.AddUser(
			envtest.User{Name: account(u), Groups: []string{"system:serviceaccounts", "system:authenticated"}}, nil)
		if err != nil {
			return fmt.Errorf("make user %s: %w", u, err)
		}
		raw, err := user.KubeConfig()
		if err != nil {
			return fmt.Errorf("make user %s: %w", u, err)
		}
		files[u] = filepath.Join(o.dir, u+".kubeconfig")
		if err := os.WriteFile(files[u], raw, 0o600); err != nil {
			return err
		}
		if u == nodeUser {
			c.nodes = user.Config()
		}
	}
	ports, err := freePorts(4)
	if err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		args []string
	}{
		{filepath.Join(o.kubernetes, "kube-controller-manager"), []string{
			"--kubeconfig=" + adminFile, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500",
			"--kube-api-burst=1000",
			"--controllers=persistentvolume-binder-controller,persistentvolumeclaim-protection-controller," +
				"garbage-collector-controller",
		}},
		{filepath.Join(o.kubernetes, "kube-scheduler"),
			[]string{"--kubeconfig=" + adminFile, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500",
				"--kube-api-burst=1000"}},
		{o.controller, []string{
			"controller", "--kubeconfig=" + files["splitfs-controller"], "--namespace=" + namespace,
			"--csi-endpoint=unix://" + filepath.Join(o.dir, "csi.sock"),
			"--http-endpoint=127.0.0.1:" + ports[0],
		}},
		{o.injector, []string{
			"--kubeconfig=" + files["splitfs-injector"], "--namespace=" + namespace, "--host=127.0.0.1", "--port=" + ports[1],
			"--extra-dns-name=localhost", "--health-address=127.0.0.1:" + ports[2], "--metrics-address=127.0.0.1:" + ports[3],
		}},
	} {
		if err := c.start(ctx, o, p.name, p.args...); err != nil {
			return err
		}
	}
	for _, port := range []string{ports[0], ports[2]} {
		if err := until(ctx, "a program is ready", time.Minute, func() error { return ready(ctx, port) }); err != nil {
			return err
		}
	}
	return c.pointWebhook(ctx, ports[1])
}

// start starts a program; its output goes to a file.
func (c *cluster) start(ctx context.Context, o options, path string, args ...string) error {
	name := filepath.Base(path)
	log, err := os.Create(filepath.Join(o.dir, name+".log"))
	if err != nil {
		return err
	}
	c.logs = append(c.logs, log)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	c.programs[name] = cmd
	return nil
}

func (c *cluster) stop() error {
	for _, cmd := range c.programs {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
	}
	for _, log := range c.logs {
		_ = log.Close()
	}
	return c.env.Stop()
}

// apply creates the chart's objects but those that would run pods: nothing here runs any.
func (c *cluster) apply(ctx context.Context, file string) error {
	direct, err := client.New(c.admin, client.Options{})
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}},
	}
	if err := direct.Create(ctx, object); err != nil {
		return fmt.Errorf("create the namespace: %w", err)
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for decoder := utilyaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", file, err)
		}
		switch object.GetKind() {
		case "", "Deployment", "DaemonSet", "PodDisruptionBudget":
			continue
		}
		if object.GetName() == nodeRestriction {
			continue
		}
		if err := direct.Create(ctx, object); err != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

// pointWebhook has the API server call the injector on this machine, where the chart has a Service.
func (c *cluster) pointWebhook(ctx context.Context, port string) error {
	return until(ctx, "the webhook is configured", time.Minute, func() error {
		webhooks := c.clients.AdmissionregistrationV1().MutatingWebhookConfigurations()
		configuration, err := webhooks.Get(ctx, "splitfs-injector", getOptions)
		if err != nil {
			return err
		}
		for i := range configuration.Webhooks {
			clientConfig := &configuration.Webhooks[i].ClientConfig
			if len(clientConfig.CABundle) == 0 {
				return errors.New("the injector has not written its certificate yet")
			}
			path := *clientConfig.Service.Path
			clientConfig.Service, clientConfig.URL = nil, new("https://localhost:"+port+path)
		}
		_, err = webhooks.Update(ctx, configuration, updateOptions)
		return err
	})
}

func ready(ctx context.Context, port string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answers %s", resp.Status)
	}
	return nil
}

// memory returns the resident set of each program.
func (c *cluster) memory() (map[string]int64, error) {
	used := map[string]int64{}
	pids := map[string]int{
		"controller": c.programs["splitfs-csi"].Process.Pid, "injector": c.programs["splitfs-injector"].Process.Pid,
	}
	pid, err := childNamed("kube-apiserver")
	if err != nil {
		return nil, err
	}
	pids["kube-apiserver"] = pid
	for name, pid := range pids {
		bytes, err := resident(pid)
		if err != nil {
			return nil, fmt.Errorf("memory of %s: %w", name, err)
		}
		used[name] = bytes
	}
	return used, nil
}

// resident is the resident set of a process.
func resident(pid int) (int64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0, err
	}
	return int64(status.VmRSS), nil
}

// childNamed finds a process of that name that this one started.
func childNamed(name string) (int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.Comm == name && stat.PPID == os.Getpid() {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("no process %s", name)
}

// requests counts what our accounts have asked of the API server so far. Watches are counted once, when they end.
func (c *cluster) requests() (map[asker]int64, error) {
	f, err := os.Open(c.audit)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	counts := map[asker]int64{}
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var event struct {
			Stage string
			User  struct{ Username string }
			// Absent when a request is about no object.
			ObjectRef struct{ Resource string }
		}
		if err := json.Unmarshal(scanner.Bytes(), &event); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if event.Stage != "ResponseComplete" {
			continue
		}
		name := strings.TrimPrefix(event.User.Username, account(""))
		for _, a := range askers {
			if a.account == name && (a.resource == "" || a.resource == event.ObjectRef.Resource) {
				counts[a]++
			}
		}
	}
	return counts, scanner.Err()
}

// total is how many requests the API server has answered so far, for everybody, its own included.
func (c *cluster) total(ctx context.Context) (float64, error) {
	raw, err := c.clients.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	var sum float64
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		fields := strings.Fields(line)
		n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("read the API server's metrics: %w", err)
		}
		sum += n
	}
	return sum, nil
}

func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// until tries again and again, no longer than limit.
func until(ctx context.Context, what string, limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not so within %s: %s: %w", limit, what, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
