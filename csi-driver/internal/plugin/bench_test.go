// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

// bench is an API server with the chart's objects and those of testdata/cluster.yaml, and node services that are
// played.
type bench struct {
	admin client.Client
	nodes *fakeNodes
	// kubeconfig is that of a user with the rights of the chart's roles.
	kubeconfig string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	objects := charttest.Render(t, "--set", "plugin.viewerRole=true")
	env := charttest.StartAPIServer(t)
	c, err := client.New(env.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{admin: c, nodes: &fakeNodes{answers: lookedTwice()}}
	// The webhook comes last: it would be asked about the pods of the test.
	last := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "MutatingWebhookConfiguration"
	})
	webhook := objects[last]
	objects = slices.Delete(objects, last, last+1)
	charttest.CreateNamespace(t, c, charttest.Namespace)
	for _, o := range objects {
		if o.GetKind() != "ValidatingAdmissionPolicyBinding" { // what they forbid is told elsewhere
			b.apply(t, o)
		}
	}
	text, err := os.ReadFile(filepath.Join("testdata", "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range charttest.Objects(t, text) {
		b.apply(t, o)
	}
	b.startParts(t)
	b.installWebhook(t, webhook)
	b.kubeconfig = b.userConfig(t, env)
	return b
}

// apply makes an object, and gives it its status.
func (b *bench) apply(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	status, hasStatus := o.Object["status"]
	charttest.Eventually(t, "apply "+o.GetKind()+" "+o.GetName(), func() error {
		return charttest.Apply(t.Context(), b.admin, o)
	})
	if !hasStatus {
		return
	}
	charttest.Eventually(t, "status of "+o.GetName(), func() error {
		current := o.DeepCopy()
		if err := b.admin.Get(t.Context(), client.ObjectKeyFromObject(o), current); err != nil {
			return err
		}
		current.Object["status"] = status
		return b.admin.Status().Update(t.Context(), current)
	})
}

// startParts says that the chart's workloads run: all but one agent's pod.
func (b *bench) startParts(t *testing.T) {
	t.Helper()
	for _, name := range []string{"splitfs-node", "splitfs-agents", "splitfs-provisioner"} {
		set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: charttest.Namespace, Name: name}}
		b.status(t, set, func() {
			set.Status = appsv1.DaemonSetStatus{
				DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, NumberReady: 2, UpdatedNumberScheduled: 2,
				ObservedGeneration: set.Generation,
			}
			if name == "splitfs-agents" {
				set.Status.NumberReady = 1
			}
		})
	}
	for _, name := range []string{"splitfs-controller", injectorName} {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: charttest.Namespace, Name: name}}
		b.status(t, deployment, func() {
			n := *deployment.Spec.Replicas
			deployment.Status = appsv1.DeploymentStatus{
				Replicas: n, ReadyReplicas: n, UpdatedReplicas: n, ObservedGeneration: deployment.Generation,
			}
		})
	}
}

// looked is the second of what a node says, about pods of this API server.
func (b *bench) looked(t *testing.T) map[string][]*coverage.Node {
	t.Helper()
	n := lookedTwice()["splitfs-node-1"][1]
	for i := range n.Volumes {
		uids := map[string]string{}
		for j := range n.Volumes[i].Processes {
			var pod corev1.Pod
			p := &n.Volumes[i].Processes[j]
			// else it has gone
			if err := b.admin.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: p.Pod}, &pod); err == nil {
				uids[p.PodUID] = string(pod.UID)
				p.PodUID = string(pod.UID)
			}
		}
		for j := range n.Volumes[i].Unserved {
			u := &n.Volumes[i].Unserved[j]
			u.PodUID = cmp.Or(uids[u.PodUID], u.PodUID)
		}
	}
	return map[string][]*coverage.Node{"splitfs-node-1": {n}}
}

func (b *bench) status(t *testing.T, object client.Object, change func()) {
	t.Helper()
	if err := b.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	change()
	if err := b.admin.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// installWebhook serves the webhook of a configuration from here: an injector that gives every pod the library.
func (b *bench) installWebhook(t *testing.T, configuration *unstructured.Unstructured) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(inject))
	t.Cleanup(server.Close)
	var typed admissionregistrationv1.MutatingWebhookConfiguration
	raw, err := configuration.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &typed); err != nil {
		t.Fatal(err)
	}
	url := server.URL + "/mutate-pods"
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for i := range typed.Webhooks {
		typed.Webhooks[i].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle}
	}
	if err := b.admin.Create(t.Context(), &typed); err != nil {
		t.Fatal(err)
	}
}

func inject(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kind := admissionv1.PatchTypeJSONPatch
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, PatchType: &kind,
		Patch: []byte(`[
		{"op":"add","path":"/spec/volumes/-","value":{"name":"splitfs-library","emptyDir":{}}},
		{"op":"add","path":"/spec/containers/0/volumeMounts/-","value":{"name":"splitfs-library","mountPath":"/opt/splitfs"}},
		{"op":"add","path":"/spec/containers/0/env","value":[{"name":"LD_PRELOAD","value":"/opt/splitfs/libsplit.so"},
		{"name":"SPLITFS_CONFIG","value":"posix:/data:/opt/splitfs/agents"}]}]`)}
	review.Request = nil
	json.NewEncoder(w).Encode(review) //nolint:errcheck // the API server says so
}

// userConfig makes a user with the rights of the chart's roles, the right to make pods (doctor), and that to act as
// somebody who has none.
func (b *bench) userConfig(t *testing.T, env *envtest.Environment) string {
	t.Helper()
	user, err := env.AddUser(envtest.User{Name: "viewer"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// heal makes good what is wrong in testdata/cluster.yaml.
func (b *bench) heal(t *testing.T) {
	t.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: charttest.Namespace, Name: "splitfs-agents"}}
	b.status(t, set, func() { set.Status.NumberReady = 2 })
	node := &v1alpha1.SplitFSNode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	b.status(t, node, func() {
		node.Status.HeartbeatTime, node.Status.DriverVersion = metav1.NewTime(clock), "v1"
		meta.SetStatusCondition(&node.Status.Conditions, metav1.Condition{
			Type: v1alpha1.NodeReady, Status: metav1.ConditionTrue, Reason: "Ready",
		})
	})
	volume := &v1alpha1.SplitFSVolume{ObjectMeta: metav1.ObjectMeta{Name: "splitfs-00000000000000000000000000000003"}}
	b.status(t, volume, func() {
		volume.Status.Health = v1alpha1.HealthHealthy
		meta.SetStatusCondition(&volume.Status.Conditions, metav1.Condition{
			Type: v1alpha1.VolumeHealthy, Status: metav1.ConditionTrue, Reason: "Healthy",
		})
	})
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	if err := b.admin.Get(t.Context(), client.ObjectKeyFromObject(csi), csi); err != nil {
		t.Fatal(err)
	}
	csi.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "csi.splitfs.io", NodeID: "n2"}}
	if err := b.admin.Update(t.Context(), csi); err != nil {
		t.Fatal(err)
	}
	quiet := lookedTwice()
	n1 := quiet["splitfs-node-1"][1]
	n1.Volumes[0].Processes = n1.Volumes[0].Processes[:1]
	n1.Volumes[1].Processes, n1.Volumes[1].AgentReady, n1.Volumes[1].Unknown = nil, true, ""
	b.nodes.answers = map[string][]*coverage.Node{"splitfs-node-1": {n1}, "splitfs-node-2": {{Node: "n2"}}}
}

// breakWebhook takes the injector away.
func (b *bench) breakWebhook(t *testing.T) {
	t.Helper()
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	if err := b.admin.Get(t.Context(), client.ObjectKey{Name: injectorName}, &configuration); err != nil {
		t.Fatal(err)
	}
	nobody := "https://127.0.0.1:1/"
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig.URL = &nobody
	}
	if err := b.admin.Update(t.Context(), &configuration); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // until the API server has noticed
}

// fakeCluster is one without an API server, with two node services.
func fakeCluster(t *testing.T, nodes *fakeNodes) *cluster {
	t.Helper()
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: charttest.Namespace, Name: name, Labels: nodeLabels},
			Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod("splitfs-node-1", "n1"), pod("splitfs-node-2", "n2")).
		Build()
	return &cluster{client: c, nodes: nodes, namespace: "shop", release: charttest.Namespace}
}

// lookedTwice is what two nodes say, two seconds apart.
func lookedTwice() map[string][]*coverage.Node {
	read := func(name string) *coverage.Node {
		text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			panic(err)
		}
		node := &coverage.Node{}
		if err := yaml.UnmarshalStrict(text, node); err != nil {
			panic(name + ": " + err.Error())
		}
		return node
	}
	return map[string][]*coverage.Node{"splitfs-node-1": {read("n1-before"), read("n1-after")}}
}
