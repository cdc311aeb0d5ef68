// SPDX-License-Identifier: Apache-2.0

package central

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a cluster has of other drivers, and all that a node says of itself, costs little more than its name. That what
// is kept of our own volumes suffices show the other tests: their view keeps no more.
func TestKeepNeededOfOthers(t *testing.T) {
	foreign := persistentVolume("pv", "node")
	foreign.Spec.CSI.Driver = "other"
	full := node("node")
	full.Labels = map[string]string{"some": "label"}
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	full.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
	for _, test := range []struct{ object, want any }{
		{foreign, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}},
		{full, node("node")},
	} {
		got, err := keepNeeded(test.object)
		if err != nil || !equality.Semantic.DeepEqual(got, test.want) {
			t.Errorf("kept %+v, %v", got, err)
		}
	}
}
