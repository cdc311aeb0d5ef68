// SPDX-License-Identifier: Apache-2.0

package central

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"splitfs.io/splitfs/charts/charttest"
)

// TestSamples keeps charts/splitfs/testdata/metrics/controller.prom what the controller prints.
func TestSamples(t *testing.T) {
	client := fake.NewClientset()
	view := newView(t, client)
	orphans := NewOrphans(view, record.NewFakeRecorder(1), time.Minute, clock.RealClock{})
	recreate := NewRecreate(client, view, nil, record.NewFakeRecorder(1), clock.RealClock{})
	objects := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	nodes, err := NewNodeObjects(objects)
	if err != nil {
		t.Fatal(err)
	}
	silent := NewSilent(objects, nodes, time.Minute, clock.RealClock{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(orphans.Metric(), silent.Metric(), recreate.Metric())
	charttest.CheckSamples(t, "controller", registry, "splitfs_")
}
