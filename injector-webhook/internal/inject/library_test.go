// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestDeliveryByClaim: where inline volumes are forbidden the library comes by a claim that can only be read; all else in the pod is
// the same as with an inline volume.
func TestDeliveryByClaim(t *testing.T) {
	raw := rawPod(t, severalContainers)
	_, inline, inlineResult := mutatedWith(t, raw, CSI)
	_, pod, result := mutatedWith(t, raw, Ephemeral)
	volume := pod.Spec.Volumes[3]
	if volume.CSI != nil || volume.Ephemeral == nil {
		t.Fatalf("the library's volume is %+v", volume)
	}
	spec := volume.Ephemeral.VolumeClaimTemplate.Spec
	size := spec.Resources.Requests[corev1.ResourceStorage]
	if *spec.StorageClassName != "splitfs-library" || len(spec.AccessModes) != 1 || spec.AccessModes[0] != corev1.ReadOnlyMany || size.String() != "1Mi" {
		t.Errorf("its claim is %+v", spec)
	}
	if pod.Annotations["splitfs.io/status"] != inline.Annotations["splitfs.io/status"] || len(result.Operations) != len(inlineResult.Operations) {
		t.Errorf("the pod is injected otherwise: %v", result.Operations)
	}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers[0]) {
		last := c.VolumeMounts[len(c.VolumeMounts)-1]
		if last.Name != volume.Name || last.MountPath != "/opt/splitfs" || !last.ReadOnly {
			t.Errorf("container %s mounts %+v", c.Name, last)
		}
	}
}

// TestDeliveryOfAnInjectedPod: a pod that has the library's volume, by whichever way, keeps it and gets no second one.
func TestDeliveryOfAnInjectedPod(t *testing.T) {
	for _, c := range []struct{ before, after Delivery }{{CSI, Ephemeral}, {Ephemeral, CSI}} {
		injected, pod, _ := mutatedWith(t, rawPod(t, severalContainers), c.before)
		_, again, result := mutatedWith(t, injected, c.after)
		if len(result.Operations) != 0 || len(again.Spec.Volumes) != len(pod.Spec.Volumes) {
			t.Errorf("%s, then %s: %v", c.before, c.after, result.Operations)
		}
	}
}

func TestParseDelivery(t *testing.T) {
	for text, ok := range map[string]bool{"csi": true, "ephemeral": true, "": false, "CSI": false, "hostPath": false} {
		if d, err := ParseDelivery(text); (err == nil) != ok || ok && string(d) != text || !ok && !strings.Contains(err.Error(), "csi (an inline volume) and ephemeral") {
			t.Errorf("%q: %q, %v", text, d, err)
		}
	}
}
