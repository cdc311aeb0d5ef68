// SPDX-License-Identifier: Apache-2.0

package central

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"splitfs.io/splitfs/internal/contract"
)

// keepNeeded drops from an object what the controller never reads before it is kept: there may be thousands of nodes
// and tens of thousands of volumes, most of them of other drivers.
func keepNeeded(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.PersistentVolume:
		return keepVolume(o), nil
	case *corev1.Node:
		return keepNode(o), nil
	case *storagev1.CSIStorageCapacity:
		return &storagev1.CSIStorageCapacity{
			ObjectMeta: keepMeta(&o.ObjectMeta), StorageClassName: o.StorageClassName, Capacity: o.Capacity,
			NodeTopology: o.NodeTopology,
		}, nil
	}
	return object, nil
}

func keepMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

func keepNode(node *corev1.Node) *corev1.Node {
	kept := &corev1.Node{ObjectMeta: keepMeta(&node.ObjectMeta)}
	for _, key := range []string{contract.LabelMemory, contract.LabelDurable} {
		if value, ok := node.Labels[key]; ok {
			metav1.SetMetaDataLabel(&kept.ObjectMeta, key, value)
		}
	}
	return kept
}

func keepVolume(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	kept := &corev1.PersistentVolume{ObjectMeta: keepMeta(&pv.ObjectMeta)}
	if !ours(pv) {
		return kept
	}
	for key, value := range pv.Annotations {
		if strings.HasPrefix(key, contract.Driver+"/") {
			metav1.SetMetaDataAnnotation(&kept.ObjectMeta, key, value)
		}
	}
	kept.Spec = corev1.PersistentVolumeSpec{
		Capacity: pv.Spec.Capacity, StorageClassName: pv.Spec.StorageClassName, NodeAffinity: pv.Spec.NodeAffinity,
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: pv.Spec.CSI.Driver, VolumeHandle: pv.Spec.CSI.VolumeHandle,
		}},
	}
	for _, key := range []string{contract.VolumeKindAttribute, contract.ParameterMode} {
		if value, there := pv.Spec.CSI.VolumeAttributes[key]; there {
			if kept.Spec.CSI.VolumeAttributes == nil {
				kept.Spec.CSI.VolumeAttributes = map[string]string{}
			}
			kept.Spec.CSI.VolumeAttributes[key] = value
		}
	}
	kept.Spec.ClaimRef = pv.Spec.ClaimRef
	kept.Status.Phase = pv.Status.Phase
	return kept
}
