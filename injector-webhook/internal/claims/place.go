// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/internal/contract"
)

var snapshotGroup = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

// labelManagedBy has on a VolumeSnapshotContent of ours the node that the snapshot is on.
const labelManagedBy = "snapshot.storage.kubernetes.io/managed-by"

// Place returns the node on which the pod of a volume has to run, "" when the volume leaves the choice or makes it
// itself. A volume that is to be a copy is made where its original is, which the scheduler does not know: it would try
// the roomiest node again and again.
//
// It looks up nothing unless the claim is a copy and not bound. What cannot be found leaves the choice to the
// scheduler.
func (r *Resolver) Place(ctx context.Context, namespace string, volume *corev1.Volume) (string, error) {
	var spec *corev1.PersistentVolumeClaimSpec
	switch {
	case volume.PersistentVolumeClaim != nil && canExist(volume.PersistentVolumeClaim.ClaimName):
		claim := &corev1.PersistentVolumeClaim{}
		if _, err := r.get(ctx, client.ObjectKey{Namespace: namespace, Name: volume.PersistentVolumeClaim.ClaimName},
			claim); err != nil {
			return "", ignoreUnknown(err)
		}
		spec = &claim.Spec
	case volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil:
		spec = &volume.Ephemeral.VolumeClaimTemplate.Spec
	}
	if spec == nil || spec.VolumeName != "" || spec.DataSource == nil || !canExist(spec.DataSource.Name) {
		return "", nil
	}
	group := ""
	if spec.DataSource.APIGroup != nil {
		group = *spec.DataSource.APIGroup
	}
	var node string
	var err error
	switch (schema.GroupKind{Group: group, Kind: spec.DataSource.Kind}) {
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		node, err = r.nodeOfClaim(ctx, client.ObjectKey{Namespace: namespace, Name: spec.DataSource.Name})
	case schema.GroupKind{Group: snapshotGroup.Group, Kind: "VolumeSnapshot"}:
		node, err = r.nodeOfSnapshot(ctx, client.ObjectKey{Namespace: namespace, Name: spec.DataSource.Name})
	}
	if err = ignoreUnknown(err); err != nil {
		return "", fmt.Errorf("where the original of volume %q is, %s %q: %w", volume.Name, spec.DataSource.Kind,
			spec.DataSource.Name, err)
	}
	return node, nil
}

// ignoreUnknown forgives that something does not exist, or that it is not for us to see.
func ignoreUnknown(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

func (r *Resolver) nodeOfClaim(ctx context.Context, key client.ObjectKey) (string, error) {
	claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	if _, err := r.get(ctx, key, claim); err != nil || claim.Spec.VolumeName == "" {
		return "", err
	}
	// What is cached of it does not have its node.
	if err := r.Live.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume); err != nil {
		return "", err
	}
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != contract.Driver || volume.Spec.NodeAffinity == nil ||
		volume.Spec.NodeAffinity.Required == nil {
		return "", nil
	}
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == contract.TopologyKey && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
				return e.Values[0], nil
			}
		}
	}
	return "", nil
}

func (r *Resolver) nodeOfSnapshot(ctx context.Context, key client.ObjectKey) (string, error) {
	snapshot, content := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	snapshot.SetGroupVersionKind(snapshotGroup.WithKind("VolumeSnapshot"))
	content.SetGroupVersionKind(snapshotGroup.WithKind("VolumeSnapshotContent"))
	if err := r.Live.Get(ctx, key, snapshot); err != nil {
		return "", err
	}
	name, _, err := unstructured.NestedString(snapshot.Object, "status", "boundVolumeSnapshotContentName")
	if err != nil || name == "" {
		return "", err
	}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, content); err != nil {
		return "", err
	}
	if driver, _, err := unstructured.NestedString(content.Object, "spec", "driver"); err != nil ||
		driver != contract.Driver {
		return "", err
	}
	return content.GetLabels()[labelManagedBy], nil
}
