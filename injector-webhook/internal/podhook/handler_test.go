// SPDX-License-Identifier: Apache-2.0

package podhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"splitfs.io/splitfs/injector-webhook/internal/claims"
	"splitfs.io/splitfs/injector-webhook/internal/inject"
)

type recordedEvents struct{ texts []string }

func (r *recordedEvents) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	ref, ok := regarding.(*corev1.ObjectReference)
	if !ok {
		r.texts = append(r.texts, fmt.Sprintf("event about a %T", regarding))
		return
	}
	r.texts = append(r.texts,
		fmt.Sprintf("%s %s %s/%s: ", eventType, reason, ref.Kind, ref.Name)+fmt.Sprintf(note, args...))
}

func claimOf(name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
	}
}

func copyOf(name string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	c := claimOf(name, "splitfs-strict")
	c.Spec.VolumeMode = &mode
	c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "original"}
	return c
}

func newHandler(tb testing.TB) (*Handler, *recordedEvents) {
	tb.Helper()
	original := claimOf("original", "splitfs-strict")
	original.Spec.VolumeName = "pv"
	objects := []client.Object{
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "splitfs-strict"}, Provisioner: "csi.splitfs.io",
			Parameters: map[string]string{"mode": "strict"},
		},
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Provisioner: "csi.splitfs.io",
			Parameters: map[string]string{"mode": "turbo"},
		},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Provisioner: "other.example.com"},
		claimOf("ours", "splitfs-strict"), claimOf("broken", "broken"), claimOf("foreign", "other"),
		copyOf("copy", corev1.PersistentVolumeFilesystem), copyOf("block-copy", corev1.PersistentVolumeBlock), original,
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
					Driver: "csi.splitfs.io",
				}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{
						MatchExpressions: []corev1.NodeSelectorRequirement{
							{Key: "csi.splitfs.io/node", Operator: corev1.NodeSelectorOpIn, Values: []string{"n3"}},
						},
					}},
				}},
			}},
	}
	reader := fake.NewClientBuilder().WithObjects(objects...).WithIndex(&corev1.PersistentVolume{}, claims.ReservedIndex,
		claims.ReservedFor).Build()
	counters, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		tb.Fatal(err)
	}
	events := &recordedEvents{}
	return &Handler{Claims: &claims.Resolver{Cached: reader, Live: reader},
		ExemptNamespaces: sets.New("kube-system", "splitfs-system"),
		Recorder:         events, Metrics: counters, LookupTimeout: time.Second, Delivery: inject.CSI}, events
}

// podText renders a pod with one claim; metadata and spec are further members in YAML flow.
func podText(tb testing.TB, metadata, spec, claim string) []byte {
	tb.Helper()
	raw, err := yaml.YAMLToJSON([]byte(`
apiVersion: v1
kind: Pod
metadata: {name: p, ` + metadata + `}
spec:
  ` + spec + `
  containers: [{name: app, image: i, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: ` + claim + `}}]
`))
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func request(raw []byte) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "u", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "ns", Name: "p",
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
	}}
}

func countedResults(t *testing.T, vector prometheus.Collector) map[string]float64 {
	t.Helper()
	metrics := make(chan prometheus.Metric, 32)
	vector.Collect(metrics)
	close(metrics)
	counted := map[string]float64{}
	for metric := range metrics {
		var data dto.Metric
		if err := metric.Write(&data); err != nil {
			t.Fatal(err)
		}
		for _, label := range data.GetLabel() {
			if label.GetName() == "result" {
				counted[label.GetValue()] += data.GetCounter().GetValue()
			}
		}
	}
	return counted
}

func TestHandle(t *testing.T) {
	const controlled = `ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: "1", controller: true}]`
	tests := []struct {
		name, metadata, spec, claim string
		change                      func(*admission.Request)
		allowed                     bool
		patches                     bool
		message                     string
		warning                     string
		event                       string
		result                      string
	}{
		{name: "our volume", claim: "ours", allowed: true, patches: true, result: resultInjected},
		{name: "another driver's volume", claim: "foreign", allowed: true, result: resultForeign},
		{name: "another driver's volume, mode wanted", metadata: `annotations: {splitfs.io/mode: sync}`, claim: "foreign",
			allowed: true, warning: "no container mounts a SplitFS volume", result: resultForeign},
		{name: "opt-out", metadata: `annotations: {splitfs.io/inject: "false", splitfs.io/mode: nonsense}`, claim: "ours",
			allowed: true, result: resultOptOut},
		{name: "wrong annotation", metadata: `annotations: {splitfs.io/mode: nonsense}`, claim: "ours",
			message: "splitfs.io/mode", result: resultDenied},
		{name: "wrong class", claim: "broken", message: `StorageClass "broken"`, result: resultDenied},
		{name: "claim missing", claim: "later", allowed: true, patches: true, warning: "create it before the pod",
			result: resultUndecided},
		{name: "claim missing, controlled pod", metadata: controlled, claim: "later", allowed: true, patches: true,
			warning: "later",
			event: `Warning SplitFSNotInjected ReplicaSet/rs: A pod was created without SplitFS: PersistentVolumeClaim ` +
				`"ns/later" does not exist; create it before the pod`, result: resultUndecided},
		{name: "claim missing, dry run", metadata: controlled, claim: "later",
			change: func(r *admission.Request) { r.DryRun = new(true) }, allowed: true, patches: true, warning: "later",
			result: resultUndecided},
		{name: "claim missing, mode wanted", metadata: `annotations: {splitfs.io/mode: strict}`, claim: "later",
			message: "create it before the pod", result: resultDenied},
		{name: "kube-system", claim: "ours", change: func(r *admission.Request) { r.Namespace = "kube-system" },
			allowed: true, result: resultForeign},
		{name: "our own namespace", claim: "ours", change: func(r *admission.Request) { r.Namespace = "splitfs-system" },
			allowed: true, result: resultForeign},
		{name: "Windows", spec: "os: {name: windows}", claim: "ours", allowed: true, result: resultForeign},
		{name: "another kind", change: func(r *admission.Request) { r.Kind.Kind = "Deployment" },
			message: "expected a v1 Pod", result: resultError},
		{name: "subresource", change: func(r *admission.Request) { r.SubResource = "ephemeralcontainers" },
			message: "expected a v1 Pod", result: resultError},
		{name: "another operation", change: func(r *admission.Request) { r.Operation = admissionv1.Update },
			message: "CREATE", result: resultError},
		{name: "no namespace", change: func(r *admission.Request) { r.Namespace = "" }, message: "no namespace",
			result: resultError},
		{name: "no object", change: func(r *admission.Request) { r.Object.Raw = nil }, message: "no valid Pod",
			result: resultError},
		{name: "no JSON", change: func(r *admission.Request) { r.Object.Raw = []byte("s3cret") }, message: "no valid Pod",
			result: resultError},
		{name: "wrong types",
			change:  func(r *admission.Request) { r.Object.Raw = []byte(`{"spec":{"containers":"s3cret"}}`) },
			message: "no valid Pod", result: resultError},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			handler, events := newHandler(t)
			if test.claim == "" {
				test.claim = "ours"
			}
			req := request(podText(t, test.metadata, test.spec, test.claim))
			if test.change != nil {
				test.change(&req)
			}
			response := handler.Handle(t.Context(), req)
			if response.Allowed != test.allowed || (len(response.Patches) > 0) != test.patches {
				t.Fatalf("allowed %v with %d patches, want %v and patches: %v; %+v", response.Allowed, len(response.Patches),
					test.allowed, test.patches, response.Result)
			}
			if !test.allowed &&
				(!strings.HasPrefix(response.Result.Message, "SplitFS: ") ||
					!strings.Contains(response.Result.Message, test.message)) {
				t.Errorf("message %q does not say %q", response.Result.Message, test.message)
			}
			if strings.Contains(response.Result.Message, "s3cret") {
				t.Errorf("message %q repeats the object", response.Result.Message)
			}
			warnings := strings.Join(response.Warnings, "\n")
			if (warnings == "") != (test.warning == "") || !strings.Contains(warnings, test.warning) {
				t.Errorf("warnings %q, want %q", warnings, test.warning)
			}
			if got := strings.Join(events.texts, "\n"); got != test.event {
				t.Errorf("events %q, want %q", got, test.event)
			}
			if counted := countedResults(t, handler.Metrics.pods); len(counted) != 1 || counted[test.result] != 1 {
				t.Errorf("counted %v, want one %s", counted, test.result)
			}
		})
	}
}

type failingReader struct{ client.Reader }

func (failingReader) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("the read has no time limit")
	}
	return errors.New("connection refused")
}

// TestUnreadableClaim: not knowing is not "no".
func TestUnreadableClaim(t *testing.T) {
	handler, _ := newHandler(t)
	handler.Claims.Cached = failingReader{}
	response := handler.Handle(t.Context(), request(podText(t, "", "", "ours")))
	if response.Allowed || response.Result.Code != http.StatusInternalServerError {
		t.Fatalf("response = %+v", response)
	}
	for _, words := range []string{`"ns/ours"`, "connection refused", "try again"} {
		if !strings.Contains(response.Result.Message, words) {
			t.Errorf("message %q does not say %q", response.Result.Message, words)
		}
	}
}

// TestNotInjectedIsWrittenDown: a pod that was left alone for want of a claim says so itself.
func TestNotInjectedIsWrittenDown(t *testing.T) {
	handler, _ := newHandler(t)
	response := handler.Handle(t.Context(), request(podText(t, "", "", "later")))
	text, err := json.Marshal(response.Patches)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"splitfs.io~1status", `\"injected\":false`, "create it before the pod"} {
		if !strings.Contains(string(text), words) {
			t.Errorf("patch %s does not say %s", text, words)
		}
	}
}

// TestManyWarningsAreBounded: a pod full of wrong annotations does not flood its author.
func TestManyWarningsAreBounded(t *testing.T) {
	var annotations []string
	for i := range 100 {
		annotations = append(annotations, fmt.Sprintf("splitfs.io/x%d: y", i))
	}
	handler, _ := newHandler(t)
	response := handler.Handle(t.Context(),
		request(podText(t, "annotations: {"+strings.ReplaceAll(strings.Join(annotations, ", "), ": y", `: "y"`)+"}", "",
			"ours")))
	if !response.Allowed || len(response.Warnings) != maxWarnings+1 {
		t.Errorf("allowed %v with %d warnings", response.Allowed, len(response.Warnings))
	}
}

// TestMessagesAreBounded: admission comes before validation, so that every name in a pod may be as long as the request.
func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, pod := range map[string]string{
		"annotation name":  `{"metadata":{"annotations":{"splitfs.io/mode.LONG":"fast"}}}`,
		"annotation value": `{"metadata":{"annotations":{"splitfs.io/mode":"LONG"}}}`,
		"container list": `{"metadata":{"annotations":{"splitfs.io/mode.a":"sync"}},` +
			`"spec":{"containers":[{"name":"LONG"}]}}`,
		"container name": `{"spec":{"containers":[{"name":"LONG","volumeMounts":[{"name":"d","mountPath":":"}]}],` +
			`"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"ours"}}]}}`,
		"volume name": `{"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"LONG",` +
			`"mountPath":"/opt/splitfs"}]}],"volumes":[{"name":"LONG","persistentVolumeClaim":{"claimName":"ours"}}]}}`,
		"mount path": `{"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"d","mountPath":"/LONG"}]}],` +
			`"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"ours"}}]}}`,
		"class of a template": `{"metadata":{"annotations":{"splitfs.io/mode":"sync"}},"spec":{"containers":[{"name":"a",` +
			`"volumeMounts":[{"name":"LONG","mountPath":"/d"}]}],"volumes":[{"name":"LONG",` +
			`"ephemeral":{"volumeClaimTemplate":{"spec":{"storageClassName":"LONG"}}}}]}}`,
	} {
		handler, _ := newHandler(t)
		response := handler.Handle(t.Context(), request([]byte(strings.ReplaceAll(pod, "LONG", long))))
		if response.Allowed || response.Result.Message == "" || len(response.Result.Message) > 1000 {
			t.Errorf("%s: allowed %v with %d bytes of message", name, response.Allowed, len(response.Result.Message))
		}
	}
}

// TestHandlePlaces: the pod of a claim that is to be a copy is kept where its original is, whether it is injected or
// not.
func TestHandlePlaces(t *testing.T) {
	h, _ := newHandler(t)
	for claim, injected := range map[string]bool{"copy": true, "block-copy": false} {
		response := h.Handle(t.Context(), request(podText(t, "", "", claim)))
		placed := false
		for _, o := range response.Patches {
			placed = placed || o.Path == "/spec/nodeSelector/csi.splitfs.io~1node" && fmt.Sprintf("%s", o.Value) == `"n3"`
		}
		if !response.Allowed || !placed || (len(response.Patches) > 2) != injected {
			t.Errorf("%s: %+v", claim, response)
		}
	}
}
