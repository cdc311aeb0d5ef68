// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestDeliveryByClaim: where inline volumes are forbidden the library comes by a claim that can only be read; all else
// in the pod is the same as with an inline volume.
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
	if *spec.StorageClassName != "splitfs-library" || len(spec.AccessModes) != 1 ||
		spec.AccessModes[0] != corev1.ReadOnlyMany || size.String() != "1Mi" {
		t.Errorf("its claim is %+v", spec)
	}
	if pod.Annotations["splitfs.io/status"] != inline.Annotations["splitfs.io/status"] ||
		len(result.Operations) != len(inlineResult.Operations) {
		t.Errorf("the pod is injected otherwise: %v", result.Operations)
	}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers[0]) {
		for i, want := range libraryMounts(volume.Name, c.Name) {
			if got := c.VolumeMounts[len(c.VolumeMounts)-3+i]; !reflect.DeepEqual(got, want) {
				t.Errorf("container %s mounts %+v, want %+v", c.Name, got, want)
			}
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

// TestCopyOfAnInjectedPod: a pod that was made from the text of an injected one, with a container of another name,
// finds the configuration of that container.
func TestCopyOfAnInjectedPod(t *testing.T) {
	injected, pod, _ := mutated(t, rawPod(t, onePod(``, `{name: data, mountPath: /data}`)))
	name := pod.Spec.Containers[0].Name
	renamed := strings.ReplaceAll(string(injected), `"name":"`+name+`"`, `"name":"another"`)
	if renamed == string(injected) {
		t.Fatalf("no container %s in %s", name, injected)
	}
	raw, copied, _ := mutated(t, []byte(renamed))
	mounts := copied.Spec.Containers[0].VolumeMounts
	if got, want := mounts[len(mounts)-3:], libraryMounts("splitfs-library", "another"); !reflect.DeepEqual(got, want) {
		t.Errorf("it mounts %+v, want %+v", got, want)
	}
	if _, _, again := mutated(t, raw); len(again.Operations) != 0 {
		t.Errorf("a second run: %v", again.Operations)
	}
}

func TestParseDelivery(t *testing.T) {
	for text, ok := range map[string]bool{"csi": true, "ephemeral": true, "": false, "CSI": false, "hostPath": false} {
		if d, err := ParseDelivery(text); (err == nil) != ok || ok && string(d) != text ||
			!ok && !strings.Contains(err.Error(), "csi (an inline volume) and ephemeral") {
			t.Errorf("%q: %q, %v", text, d, err)
		}
	}
}

// libraryMounts are what a container gets of the library's volume.
func libraryMounts(volume, container string) []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: volume, MountPath: "/opt/splitfs", ReadOnly: true},
		{Name: volume, MountPath: "/opt/splitfs/config", SubPath: "containers/" + container, ReadOnly: true},
		{Name: volume, MountPath: "/etc/ld.so.preload", SubPath: "ld.so.preload", ReadOnly: true},
	}
}

// TestPreloadFileOfTheContainer: what a container mounts at or around the dynamic linker's file stays, and is told.
func TestPreloadFileOfTheContainer(t *testing.T) {
	for where, kept := range map[string]bool{
		"/etc/ld.so.preload": true, "/etc": true, "/etc/": true, "/etc/ld.so.preload.d": false, "/etc/app": false,
	} {
		_, pod, result := mutated(t,
			rawPod(t, onePod(``, `{name: data, mountPath: /data}, {name: other, mountPath: `+where+`}`)))
		ours := slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.SubPath == "ld.so.preload"
		})
		warned := slices.ContainsFunc(result.Warnings, func(w string) bool {
			return strings.Contains(w, "programs that lose LD_PRELOAD run without the library")
		})
		if ours == kept || warned != kept {
			t.Errorf("a mount at %s: ours %t, warnings %v", where, ours, result.Warnings)
		}
	}
}

// TestInjectedByAnOlderInjector: a pod that has the library's directory only, gets the files besides, once.
func TestInjectedByAnOlderInjector(t *testing.T) {
	after, _, _ := mutated(t, rawPod(t, onePod(``, `{name: data, mountPath: /data}`)))
	pod := decodePod(t, after)
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.SubPath != "" })
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	_, pod, _ = mutated(t, raw)
	if got := pod.Spec.Containers[0].VolumeMounts[1:]; !reflect.DeepEqual(got, libraryMounts("splitfs-library", "app")) {
		t.Errorf("mounts = %+v", got)
	}
}

// TestUnserved: the annotation is checked, and its value is the node's to act on.
func TestUnserved(t *testing.T) {
	for value, ok := range map[string]bool{
		"refuse": true, "durable": true, "allow": true, "": false, "deny": false, "Refuse": false,
	} {
		result, err := mutate(t, rawPod(t, onePod(`splitfs.io/unserved: "`+value+`"`, `{name: data, mountPath: /data}`)))
		var denied *DeniedError
		if ok && (err != nil || len(result.Warnings) != 0) ||
			!ok && (!errors.As(err, &denied) || denied.Reason != ReasonAnnotation) {
			t.Errorf("%q: %v", value, err)
		}
	}
}
