// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"splitfs.io/splitfs/internal/contract"
)

// Delivery is the kind of volume that brings the library into a pod, by the name of its source in the pod.
type Delivery string

const (
	// CSI is an inline volume: nothing but the pod is needed, and it is there as soon as the pod is on its node.
	CSI Delivery = "csi"
	// Ephemeral is a generic ephemeral volume of the class contract.LibraryClass, for clusters that forbid inline volumes:
	// Kubernetes makes a claim and a PersistentVolume for each pod.
	Ephemeral Delivery = "ephemeral"
)

// ParseDelivery accepts exactly the two names.
func ParseDelivery(s string) (Delivery, error) {
	if d := Delivery(s); d == CSI || d == Ephemeral {
		return d, nil
	}
	return "", fmt.Errorf(
		"%s is no way to deliver the library; allowed are %s (an inline volume) and %s (a generic ephemeral volume)",
		contract.Quote(s), CSI, Ephemeral)
}

// source is the volume that a pod gets.
func (d Delivery) source() corev1.VolumeSource {
	if d == Ephemeral {
		class := contract.LibraryClass
		template := &corev1.PersistentVolumeClaimTemplate{
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class,
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
				// A claim has to ask for something. It gets no space.
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
				},
			},
		}
		return corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}}
	}
	// Not read-only, kubelet would try to change ownership inside it.
	readOnly := true
	return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: contract.Driver, ReadOnly: &readOnly,
		VolumeAttributes: map[string]string{contract.VolumeKindAttribute: contract.VolumeKindLibrary},
	}}
}

// isLibrary says whether a volume of a pod is one that shows the library, delivered in either way: a pod may have been
// made from the text of another that was injected before the way was changed.
func isLibrary(volume *corev1.Volume) bool {
	switch {
	case volume.CSI != nil:
		return volume.CSI.Driver == contract.Driver &&
			volume.CSI.VolumeAttributes[contract.VolumeKindAttribute] == contract.VolumeKindLibrary
	case volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil:
		class := volume.Ephemeral.VolumeClaimTemplate.Spec.StorageClassName
		return class != nil && *class == contract.LibraryClass
	}
	return false
}

// findLibraryVolume finds the volume an earlier invocation added, or a name for a new one.
func findLibraryVolume(pod *corev1.Pod) (string, int) {
	taken := map[string]bool{}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if isLibrary(volume) {
			return volume.Name, i
		}
		taken[volume.Name] = true
	}
	name := contract.LibraryVolume
	for n := 1; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", contract.LibraryVolume, n)
	}
	return name, -1
}

// volume adds the library's volume to the pod. One that is there already stays what it is.
func (m *mutation) volume(delivery Delivery) error {
	if m.libraryIndex >= 0 {
		if m.pod.Spec.Volumes[m.libraryIndex].CSI == nil {
			return nil
		}
		return m.doc.Set(true, "spec", "volumes", m.libraryIndex, "csi", "readOnly")
	}
	if err := m.doc.EnsureArray("spec", "volumes"); err != nil {
		return fmt.Errorf("add volume: %w", err)
	}
	volume := corev1.Volume{Name: m.libraryVolume, VolumeSource: delivery.source()}
	if err := m.doc.Insert(volume, "spec", "volumes", len(m.pod.Spec.Volumes)); err != nil {
		return fmt.Errorf("add volume: %w", err)
	}
	return nil
}
