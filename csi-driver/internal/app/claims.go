// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/internal/contract"
)

// clusterClaims asks the API server. It reads one object per volume of this node, never the list of all.
type clusterClaims struct{ client kubernetes.Interface }

var _ node.Claims = clusterClaims{}

// HasVolume implements node.Claims.
func (c clusterClaims) HasVolume(ctx context.Context, name, id string) (bool, error) {
	pv, err := c.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == contract.Driver && pv.Spec.CSI.VolumeHandle == id, nil
}
