// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/internal/contract"
)

// podVolume is a volume of a pod that is one of ours.
type podVolume struct {
	claim string
	// id is empty while the claim is not bound.
	id    string
	mode  contract.Mode
	block bool
}

// podVolumes finds the volumes of a pod that are ours, by their names in it; missing are claims that do not exist.
func (c *cluster) podVolumes(ctx context.Context,
	pod *corev1.Pod) (ours map[string]podVolume, missing []string, err error) {
	ours = map[string]podVolume{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		claim := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			claim = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			claim = pod.Name + "-" + v.Name // Kubernetes names the claim so
		default:
			continue
		}
		found, err := c.claimVolume(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: claim})
		if apierrors.IsNotFound(err) {
			missing = append(missing, claim)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if found != nil {
			ours[v.Name] = *found
		}
	}
	return ours, missing, nil
}

// claimVolume is the volume of a claim; nil when it is not one of ours, or one that only carries the library.
func (c *cluster) claimVolume(ctx context.Context, name client.ObjectKey) (*podVolume, error) {
	var claim corev1.PersistentVolumeClaim
	if err := c.client.Get(ctx, name, &claim); err != nil {
		return nil, fmt.Errorf("get claim %s: %w", name, err)
	}
	found := &podVolume{
		claim: name.Name, mode: contract.Posix,
		block: claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock,
	}
	if claim.Spec.VolumeName == "" {
		return c.unboundVolume(ctx, &claim, found)
	}
	var pv corev1.PersistentVolume
	if err := c.client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &pv); err != nil {
		return nil, fmt.Errorf("get PersistentVolume %s of claim %s: %w", claim.Spec.VolumeName, name, err)
	}
	source := pv.Spec.CSI
	if source == nil || source.Driver != contract.Driver ||
		source.VolumeAttributes[contract.VolumeKindAttribute] == contract.VolumeKindLibrary {
		return nil, nil //nolint:nilnil // somebody else's volume is no error
	}
	found.id = source.VolumeHandle
	for _, mode := range []string{
		source.VolumeAttributes[contract.ParameterMode], pv.Annotations[contract.AnnotationVolumeMode],
	} {
		if mode != "" {
			found.mode = contract.Mode(mode)
		}
	}
	return found, nil
}

// unboundVolume goes by the claim's class, which may have been removed.
func (c *cluster) unboundVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim,
	found *podVolume) (*podVolume, error) {
	if claim.Spec.StorageClassName == nil {
		return nil, nil //nolint:nilnil // nobody will make a volume for it
	}
	var class storagev1.StorageClass
	err := c.client.Get(ctx, client.ObjectKey{Name: *claim.Spec.StorageClassName}, &class)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // the same
	}
	if err != nil {
		return nil, fmt.Errorf("get StorageClass %s of claim %s: %w", *claim.Spec.StorageClassName, claim.Name, err)
	}
	if class.Provisioner != contract.Driver ||
		class.Parameters[contract.VolumeKindAttribute] == contract.VolumeKindLibrary {
		return nil, nil //nolint:nilnil // somebody else's
	}
	if mode := class.Parameters[contract.ParameterMode]; mode != "" {
		found.mode = contract.Mode(mode)
	}
	return found, nil
}
