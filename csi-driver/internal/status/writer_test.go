// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
	"splitfs.io/splitfs/csi-driver/internal/agent"
	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/module"
	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

const nodeName = "node-1"

// state is a node whose every property the test decides. What the real node reports is tested with the real one in
// package app.
type state struct {
	mu        sync.Mutex
	reports   []node.Report
	listErr   error
	available int64
	library   error
	module    module.Status
	memory    []nvdimm.Range
}

func (s *state) Reports(context.Context) ([]node.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]node.Report(nil), s.reports...), s.listErr
}

func (s *state) Devices(context.Context) []node.DeviceReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []node.DeviceReport{{
		Name: "emulated", Emulated: true, Available: s.available,
		Regions: []device.Region{{Name: "/data", Type: "directory", Capacity: 10 * volume.GiB, Available: s.available}},
	}}
}

func (*state) Erasures(reports []node.Report) ([]node.Erasure, error) {
	var list []node.Erasure
	for _, r := range reports {
		if r.Record.Phase == volume.PhaseErasing {
			list = append(list, node.Erasure{ID: r.Record.ID, Bytes: r.Record.DeviceSize})
		}
	}
	return list, nil
}

func (s *state) Memory(context.Context) ([]nvdimm.Range, error) { return s.memory, nil }
func (s *state) LibraryDigest() (string, error)                 { return "abc", s.library }
func (s *state) Check(context.Context) error                    { return nil }
func (s *state) Status() module.Status                          { return s.module }
func (s *state) Providers() map[string]string {
	return map[string]string{"xfs": "reflink", "ext4": "copy"}
}

func (s *state) change(f func(*state)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func report(n int, staged bool, used int64) node.Report {
	rec := &volume.Record{
		ID: volume.IDFromName(fmt.Sprint(n)), Name: fmt.Sprintf("pvc-%d", n), Phase: volume.PhaseReady, Mode: contract.Strict,
		Device: "emulated",
		FSType: volume.XFS, PVC: volume.PVC{Namespace: "shop", Name: fmt.Sprintf("data-%d", n)}, Size: volume.GiB,
		DeviceSize: 2 * volume.GiB,
	}
	r := node.Report{Record: rec, Emulated: true}
	if staged {
		rec.Staged = &volume.Staging{Path: "/staging"}
		rec.Published = map[string]volume.Publish{
			"/a": {Pod: volume.Pod{Namespace: "shop", Name: "db-0"}}, "/b": {Pod: volume.Pod{Namespace: "shop", Name: "db-0"}},
		}
		r.Agent = agent.State{Ready: true}
		r.Status = &splitfs.Status{Provider: "reflink"}
		r.Status.Pool.Bytes, r.Status.Pool.FreeBytes = 128*volume.MiB, 128*volume.MiB-used
	}
	return r
}

// counting counts the requests that change something, and refuses all of them while down.
type counting struct {
	next   http.RoundTripper
	writes atomic.Int64
	down   atomic.Bool
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.down.Load() {
		return nil, errors.New("the API server is down")
	}
	if r.Method != http.MethodGet {
		c.writes.Add(1)
	}
	return c.next.RoundTrip(r)
}

// fixture is a real API server with the chart's custom resources and rights, and a Writer that acts with the rights of
// the node service.
type fixture struct {
	t      *testing.T
	ctx    context.Context
	client client.Client
	config *rest.Config
	http   *counting
	clock  *testclock.FakePassiveClock
	state  *state
	writer *Writer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	env := charttest.StartAPIServer(t)
	c := charttest.NewTypedClient(t, env.Config, v1alpha1.AddToScheme, scheme.AddToScheme)
	logger, _ := ktesting.NewTestContext(t)
	f := &fixture{
		t: t, ctx: klog.NewContext(t.Context(), logger), client: c, http: &counting{},
		clock: testclock.NewFakePassiveClock(time.Now().Truncate(time.Second)),
		state: &state{
			available: 8 * volume.GiB,
			module:    module.Status{State: module.NotConfigured, Message: "nobody asked for it", Release: "6.1.0"},
		},
	}
	charttest.CreateNamespace(t, c, charttest.Namespace)
	for _, object := range charttest.Render(t) {
		switch object.GetKind() {
		case "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
			"ValidatingAdmissionPolicyBinding":
			if err := charttest.Apply(t.Context(), c, object); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.must(c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}))
	f.config = rest.CopyConfig(env.Config)
	f.config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + charttest.Namespace + ":splitfs-node",
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {nodeName}},
	}
	f.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		f.http.next = next
		return f.http
	})
	f.restart()
	f.eventually("the custom resources are served", func() error {
		return c.List(t.Context(), &v1alpha1.SplitFSVolumeList{})
	})
	return f
}

// restart makes a new Writer, as a new node service would.
func (f *fixture) restart() {
	f.t.Helper()
	cluster, err := NewCluster(f.config)
	f.must(err)
	f.writer = NewWriter(Config{
		NodeName: nodeName, Node: f.state, Module: f.state, Cluster: cluster, Interval: 50 * time.Millisecond,
		Heartbeat: 5 * time.Minute, Clock: f.clock,
	})
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) eventually(what string, condition func() error) {
	f.t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = condition(); err == nil {
			return
		}
	}
	f.t.Fatalf("not so after 30 s: %s: %v", what, err)
}

// sync runs one round and says how many requests changed something.
func (f *fixture) sync() int64 {
	f.t.Helper()
	before := f.http.writes.Load()
	f.must(f.writer.sync(f.ctx))
	return f.http.writes.Load() - before
}

func (f *fixture) node() *v1alpha1.SplitFSNode {
	f.t.Helper()
	n := &v1alpha1.SplitFSNode{}
	f.must(f.client.Get(f.ctx, client.ObjectKey{Name: nodeName}, n))
	return n
}

func (f *fixture) volumes() map[string]v1alpha1.SplitFSVolume {
	f.t.Helper()
	list := &v1alpha1.SplitFSVolumeList{}
	f.must(f.client.List(f.ctx, list))
	volumes := map[string]v1alpha1.SplitFSVolume{}
	for _, v := range list.Items {
		volumes[v.Status.VolumeName] = v
	}
	return volumes
}

func TestWriter(t *testing.T) {
	f := newFixture(t)
	f.state.change(func(s *state) { s.reports = []node.Report{report(1, true, 0), report(2, false, 0)} })
	if writes := f.sync(); writes != 6 {
		t.Errorf("the first round made %d writes, wanted 2 for each object", writes)
	}
	started := f.clock.Now()
	n := f.node()
	if n.Status.VolumeCount != 2 || n.Status.Capacity.String() != "10Gi" || n.Status.Available.String() != "8Gi" ||
		n.Status.Allocated.String() != "4Gi" ||
		n.Status.Relink != "ext4:copy,xfs:reflink" || n.Status.Module.State != "NotConfigured" ||
		n.Status.Library.SHA256 != "abc" ||
		n.Status.Pool.Size.String() != "128Mi" || !n.Status.HeartbeatTime.Time.Equal(started) ||
		len(n.OwnerReferences) != 1 || n.OwnerReferences[0].Kind != "Node" {
		t.Errorf("SplitFSNode: %+v", n)
	}
	for kind, want := range map[string]metav1.ConditionStatus{
		v1alpha1.NodeReady: metav1.ConditionTrue, v1alpha1.NodeModuleReady: metav1.ConditionFalse,
		v1alpha1.NodeLibraryInstalled: metav1.ConditionTrue,
		v1alpha1.NodeDevicesReady:     metav1.ConditionTrue, v1alpha1.NodeVolumesHealthy: metav1.ConditionTrue,
	} {
		if c := meta.FindStatusCondition(n.Status.Conditions, kind); c == nil || c.Status != want || c.Message == "" {
			t.Errorf("condition %s is %+v, wanted %s", kind, c, want)
		}
	}
	if c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.NodeModuleReady); c == nil ||
		!strings.HasSuffix(c.Message, "; without it ext4 volumes relink by copy, XFS volumes by reflink") {
		t.Errorf("what there is without the module: %+v", c)
	}
	v := f.volumes()["pvc-1"]
	if v.Name != volume.IDFromName("1") || v.Status.Claim != "shop/data-1" || v.Status.Phase != v1alpha1.VolumePublished ||
		v.Status.Health != v1alpha1.HealthHealthy ||
		v.Status.Provider != "reflink" || fmt.Sprint(v.Status.Pods) != "[shop/db-0]" || v.OwnerReferences[0].UID != n.UID ||
		v.Labels["csi.splitfs.io/node"] != nodeName ||
		!meta.IsStatusConditionFalse(v.Status.Conditions, v1alpha1.VolumePersistentMemory) {
		t.Errorf("SplitFSVolume: %+v", v)
	}

	t.Run("nothing changed", func(t *testing.T) {
		if writes := f.sync(); writes != 0 {
			t.Errorf("%d writes", writes)
		}
	})
	t.Run("numbers that drift wait for the heartbeat", func(t *testing.T) {
		f.state.change(func(s *state) {
			s.available -= volume.MiB
			s.reports = []node.Report{report(1, true, 64*volume.MiB), report(2, false, 0)}
		})
		if writes := f.sync(); writes != 0 {
			t.Errorf("%d writes before the heartbeat", writes)
		}
		f.clock.SetTime(started.Add(6 * time.Minute))
		if writes := f.sync(); writes != 2 {
			t.Errorf("the heartbeat made %d writes, wanted one for the node and one for the volume whose pool filled", writes)
		}
		if used := f.volumes()["pvc-1"].Status.Pool.Used.String(); used != "64Mi" {
			t.Errorf("pool in use: %s", used)
		}
		if beat := f.node().Status.HeartbeatTime.Time; !beat.Equal(f.clock.Now()) {
			t.Errorf("heartbeat is of %s", beat)
		}
	})
	t.Run("a problem", func(t *testing.T) {
		f.state.change(func(s *state) {
			s.reports[1].Problems = []node.Problem{
				{Severity: node.Degraded, Reason: "StockExt4", Message: "slower"},
				{Severity: node.DataLoss, Reason: "RecoveryQuarantined", Message: "lost"},
			}
		})
		f.sync()
		v := f.volumes()["pvc-2"]
		healthy := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.VolumeHealthy)
		if v.Status.Health != v1alpha1.HealthDataLoss || healthy.Reason != "RecoveryQuarantined" ||
			healthy.Message != "slower; lost" || !healthy.LastTransitionTime.Time.Equal(f.clock.Now()) {
			t.Errorf("volume: %s %+v", v.Status.Health, healthy)
		}
		n := f.node()
		if c := meta.FindStatusCondition(n.Status.Conditions,
			v1alpha1.NodeVolumesHealthy); c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, v.Name) {
			t.Errorf("node: %+v", c)
		}
		if c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.NodeReady); !c.LastTransitionTime.Time.Equal(started) {
			t.Errorf("what did not change has a new time of transition: %+v", c)
		}
	})
	t.Run("a volume that cannot be read is not taken for one that is gone", func(t *testing.T) {
		all := f.state.reports
		f.state.change(func(s *state) { s.reports, s.listErr = s.reports[:1], errors.New("state file is damaged") })
		f.sync()
		if len(f.volumes()) != 2 {
			t.Error("its object was removed")
		}
		f.state.change(func(s *state) { s.reports, s.listErr = all, nil })
		f.sync()
	})
	t.Run("a raw block volume is not expected to have an agent", func(t *testing.T) {
		f.state.change(func(s *state) {
			block := report(3, false, 0)
			block.Record.Block, block.Record.Staged = true, &volume.Staging{Path: "/staging"}
			s.reports = append(s.reports, block)
		})
		f.sync()
		if c := meta.FindStatusCondition(f.volumes()["pvc-3"].Status.Conditions, v1alpha1.VolumeServed); c == nil ||
			c.Reason != "RawBlock" {
			t.Errorf("condition Served: %+v", c)
		}
	})
	t.Run("a volume that is being erased", func(t *testing.T) {
		f.state.change(func(s *state) {
			erased := report(4, false, 0)
			erased.Record.Phase = volume.PhaseErasing
			s.reports = append(s.reports, erased)
		})
		f.sync()
		status := f.volumes()["pvc-4"].Status
		if c := meta.FindStatusCondition(status.Conditions, v1alpha1.VolumeServed); status.Phase != v1alpha1.VolumeErasing ||
			c == nil || c.Reason != "Erasing" {
			t.Errorf("status: %+v", status)
		}
		if got := f.node().Status.Erasing; got == nil || got.String() != "2Gi" {
			t.Errorf("the node's volumes that are erased: %v", got)
		}
	})
	t.Run("a new node service", func(t *testing.T) {
		f.state.change(func(s *state) { s.reports = s.reports[:1] })
		f.clock.SetTime(started.Add(7 * time.Minute))
		f.restart()
		f.sync()
		if volumes := f.volumes(); len(volumes) != 1 || volumes["pvc-1"].Name == "" {
			t.Errorf("volumes: %v", volumes)
		}
		if c := meta.FindStatusCondition(f.node().Status.Conditions, v1alpha1.NodeReady); !c.LastTransitionTime.Time.Equal(
			started) {
			t.Errorf("time of transition after a restart: %+v", c)
		}
	})
	t.Run("objects that somebody removed come back", func(t *testing.T) {
		f.must(f.client.Delete(f.ctx, f.node()))
		f.state.change(func(s *state) { s.library = errors.New("gone") })
		f.sync()
		n := f.node()
		if f.volumes()["pvc-1"].OwnerReferences[0].UID != n.UID {
			t.Error("the volume belongs to the object that is gone, and would be removed after it")
		}
		if c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.NodeReady); c.Status != metav1.ConditionFalse ||
			c.Reason != "LibraryMissing" {
			t.Errorf("node: %+v", c)
		}
	})
	t.Run("other nodes' objects are not touched", func(t *testing.T) {
		other := &v1alpha1.SplitFSVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"csi.splitfs.io/node": "node-2"}},
		}
		f.must(f.client.Create(f.ctx, other))
		f.restart()
		f.sync()
		f.must(f.client.Get(f.ctx, client.ObjectKey{Name: "other"}, other))
	})
}

// TestOutage: while the API server is away the writer tries ever more slowly and blocks nobody, and afterwards the
// objects are right.
func TestOutage(t *testing.T) {
	f := newFixture(t)
	f.http.down.Store(true)
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan struct{})
	go func() {
		f.writer.Run(ctx)
		close(done)
	}()
	start := time.Now()
	for range 1000 {
		f.writer.Poke()
	}
	if spent := time.Since(start); spent > time.Second {
		t.Errorf("poking took %s", spent)
	}
	f.state.change(func(s *state) { s.reports = []node.Report{report(1, true, 0)} })
	time.Sleep(500 * time.Millisecond)
	f.http.down.Store(false)
	f.eventually("the objects are there", func() error {
		return f.client.Get(f.ctx, client.ObjectKey{Name: volume.IDFromName("1")}, &v1alpha1.SplitFSVolume{})
	})
	f.state.change(func(s *state) { s.reports = nil })
	f.eventually("the object of a removed volume is gone", func() error {
		if left := len(f.volumes()); left != 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
	cancel()
	<-done
}

// TestRights: what the node service may do to these objects is what it needs.
func TestRights(t *testing.T) {
	for _, object := range charttest.Render(t) {
		if object.GetKind() != "ClusterRole" || object.GetName() != "splitfs-node" {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			t.Fatal(err)
		}
		have := map[string]string{}
		for _, rule := range role.Rules {
			if rule.APIGroups[0] == v1alpha1.GroupVersion.Group {
				for _, resource := range rule.Resources {
					have[resource] = strings.Join(rule.Verbs, " ")
				}
			}
		}
		want := map[string]string{
			"splitfsnodes": "get create patch", "splitfsvolumes": "list create patch delete", "splitfsnodes/status": "patch",
			"splitfsvolumes/status": "patch",
		}
		if fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("rights are %v, wanted %v", have, want)
		}
		return
	}
	t.Error("no ClusterRole splitfs-node")
}

func TestBackoff(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: firstRetry, 2: 2 * firstRetry, 6: lastRetry, 1000: lastRetry} {
		if got := backoff(failures); got != want {
			t.Errorf("after %d failures: %s, wanted %s", failures, got, want)
		}
	}
}
