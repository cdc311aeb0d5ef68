// SPDX-License-Identifier: Apache-2.0

package claims

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"splitfs.io/splitfs/internal/contract"
)

var stripManagedFields = cache.TransformStripManagedFields()

// Trim drops from claims and volumes what a Resolver does not read, before they are cached: a cluster may have tens of
// thousands of them, most of other drivers.
func Trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		return &corev1.PersistentVolumeClaim{ObjectMeta: trimMeta(&o.ObjectMeta), Spec: corev1.PersistentVolumeClaimSpec{
			VolumeMode: o.Spec.VolumeMode, VolumeName: o.Spec.VolumeName, DataSource: o.Spec.DataSource,
			StorageClassName: o.Spec.StorageClassName, VolumeAttributesClassName: o.Spec.VolumeAttributesClassName,
		}}, nil
	case *corev1.PersistentVolume:
		return trimVolume(o), nil
	}
	return stripManagedFields(object)
}

func trimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

func trimVolume(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	kept := &corev1.PersistentVolume{ObjectMeta: trimMeta(&pv.ObjectMeta)}
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != contract.Driver {
		return kept
	}
	if mode, changed := pv.Annotations[contract.AnnotationVolumeMode]; changed {
		metav1.SetMetaDataAnnotation(&kept.ObjectMeta, contract.AnnotationVolumeMode, mode)
	}
	kept.Spec.StorageClassName = pv.Spec.StorageClassName
	if ref := pv.Spec.ClaimRef; ref != nil {
		kept.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	}
	kept.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: contract.Driver}
	for _, key := range []string{contract.ParameterMode, contract.VolumeKindAttribute} {
		if value, said := pv.Spec.CSI.VolumeAttributes[key]; said {
			if kept.Spec.CSI.VolumeAttributes == nil {
				kept.Spec.CSI.VolumeAttributes = map[string]string{}
			}
			kept.Spec.CSI.VolumeAttributes[key] = value
		}
	}
	return kept
}
