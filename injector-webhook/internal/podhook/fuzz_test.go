// SPDX-License-Identifier: Apache-2.0

package podhook

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// serve sends a body to the webhook as the HTTP server would, with panics let through.
func serve(tb testing.TB, handler *Handler, body []byte) *admissionv1.AdmissionReview {
	tb.Helper()
	webhook := (&admission.Webhook{Handler: handler}).WithRecoverPanic(false)
	server, err := admission.StandaloneWebhook(webhook, admission.StandaloneOptions{Logger: logr.Discard()})
	if err != nil {
		tb.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	server.ServeHTTP(recorder, req)
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(recorder.Body.Bytes(), review); err != nil || review.Response == nil {
		tb.Fatalf("the answer is no AdmissionReview (%v): %s", err, recorder.Body)
	}
	return review
}

func reviewOf(tb testing.TB, pod []byte) []byte {
	tb.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"request": map[string]any{
			"uid": "u", "kind": map[string]string{"version": "v1", "kind": "Pod"}, "namespace": "ns", "name": "p",
			"operation": "CREATE", "object": json.RawMessage(pod),
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return body
}

// checkAnswer holds for every body: no panic, a well-formed answer, a reason for a refusal, and a patch that fits the
// object.
func checkAnswer(tb testing.TB, body []byte) {
	tb.Helper()
	handler, _ := newHandler(tb)
	response := serve(tb, handler, body).Response
	if !response.Allowed {
		if response.Result == nil || response.Result.Message == "" {
			tb.Fatal("refused without a reason")
		}
		return
	}
	if len(response.Patch) == 0 {
		return
	}
	var review struct {
		Request struct {
			Object json.RawMessage `json:"object"`
		} `json:"request"`
	}
	if err := json.Unmarshal(body, &review); err != nil {
		tb.Fatalf("a patch for a request that is no JSON: %v", err)
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		tb.Fatalf("patch %s: %v", response.Patch, err)
	}
	if _, err := patch.Apply(review.Request.Object); err != nil {
		tb.Fatalf("patch %s does not fit %s: %v", response.Patch, review.Request.Object, err)
	}
}

var seedPods = []string{
	`{}`, `null`, `[]`, `"x"`, `{"spec":null}`, `{"metadata":null,"spec":{"volumes":[null],"containers":[null]}}`,
	`{"metadata":{"annotations":null},"spec":{"containers":[{"name":"a","env":null,"volumeMounts":[{"name":"d",` +
		`"mountPath":"/d"}]}],"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"ours"}}]}}`,
	`{"spec":{"initContainers":[{"name":"i","volumeMounts":[{"name":"d","mountPath":""}]}],"containers":[],` +
		`"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"ours"}}]}}`,
	`{"metadata":{"annotations":{"splitfs.io/mode":"sync","splitfs.io/mode.a":"posix","splitfs.io/fsync":"record",` +
		`"splitfs.io/fsync.a":"visible"}},"spec":{"containers":[{"name":"a","envFrom":[{"configMapRef":{"name":"c"}},{}],` +
		`"env":[{"name":"LD_PRELOAD","valueFrom":{}}],"volumeMounts":[{"name":"d","mountPath":"$(X)"}]}],` +
		`"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"ours"}},{"name":"d",` +
		`"ephemeral":{"volumeClaimTemplate":{"spec":{"storageClassName":"splitfs-strict"}}}}]}}`,
	`{"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"d","mountPath":"/d"}]}],"volumes":[{"name":"d",` +
		`"persistentVolumeClaim":{"claimName":"missing"}}]}}`,
	`{"spec":{"Containers":[{"name":"a"}],"containers":[{"name":"b","volumeMounts":[{"name":"d","mountPath":"/d"}]}],` +
		`"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"ours"}}]},"spec":{"containers":[]}}`,
}

func FuzzWebhook(f *testing.F) {
	for _, pod := range seedPods {
		f.Add(reviewOf(f, []byte(pod)))
	}
	f.Add(reviewOf(f, podText(f, "", "", "ours")))
	f.Add([]byte(nil))
	f.Add([]byte("{"))
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod"}`))
	f.Fuzz(func(t *testing.T, body []byte) { checkAnswer(t, body) })
}

// FuzzPod spends its time on the part behind the review's decoding.
func FuzzPod(f *testing.F) {
	for _, pod := range seedPods {
		f.Add([]byte(pod))
	}
	f.Add(podText(f, "", "", "ours"))
	f.Fuzz(func(t *testing.T, pod []byte) {
		if !json.Valid(pod) {
			t.Skip("a review cannot carry it")
		}
		checkAnswer(t, reviewOf(t, pod))
	})
}

func TestHugeRequests(t *testing.T) {
	handler, _ := newHandler(t)
	if response := serve(t, handler, bytes.Repeat([]byte(" "), 8<<20)).Response; response.Allowed ||
		!strings.Contains(response.Result.Message, "too large") {
		t.Errorf("8 MiB of nothing: %+v", response)
	}
	deep := strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20)
	if response := serve(t, handler, reviewOf(t, podText(t, `annotations: {}`, "", "ours"))).Response; !response.Allowed {
		t.Fatalf("a usual pod: %+v", response)
	}
	body := bytes.Replace(reviewOf(t, []byte(`{"spec":"DEEP"}`)), []byte(`"DEEP"`), []byte(deep), 1)
	if response := serve(t, handler, body).Response; response.Allowed || response.Result.Message == "" {
		t.Errorf("a million levels: %+v", response)
	}
	mounts := strings.TrimSuffix(strings.Repeat(`{"name":"d","mountPath":"/d"},`, 50_000), ",")
	checkAnswer(t,
		reviewOf(t,
			[]byte(`{"spec":{"containers":[{"name":"a","volumeMounts":[`+mounts+
				`]}],"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"ours"}}]}}`)))
}
