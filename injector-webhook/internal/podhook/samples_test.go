// SPDX-License-Identifier: Apache-2.0

package podhook

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"splitfs.io/splitfs/charts/charttest"
)

// TestSamples keeps charts/splitfs/testdata/metrics/injector.prom what an injector prints that has injected a pod and
// denied another.
func TestSamples(t *testing.T) {
	registry := prometheus.NewRegistry()
	handler, _ := newHandler(t)
	var err error
	if handler.Metrics, err = NewMetrics(registry); err != nil {
		t.Fatal(err)
	}
	server := webhook.NewServer(webhook.Options{})
	server.Register(Path, &admission.Webhook{Handler: handler})
	for _, claim := range []string{"ours", "broken"} {
		review := request(podText(t, "", "", claim))
		body, err := json.Marshal(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
			Request:  &review.AdmissionRequest,
		})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		server.WebhookMux().ServeHTTP(answer, r)
		if answer.Code != http.StatusOK {
			t.Fatalf("a pod with claim %s: %d %s", claim, answer.Code, answer.Body)
		}
	}
	charttest.CheckSamples(t, "injector", prometheus.Gatherers{registry, metrics.Registry}, "splitfs_",
		"controller_runtime_webhook_")
}
