// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "splitfs.io", Version: "v1alpha1"}

// Kinds and resources.
var (
	NodeKind       = GroupVersion.WithKind("SplitFSNode")
	VolumeKind     = GroupVersion.WithKind("SplitFSVolume")
	NodeResource   = GroupVersion.WithResource("splitfsnodes")
	VolumeResource = GroupVersion.WithResource("splitfsvolumes")
)

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &SplitFSNode{}, &SplitFSNodeList{}, &SplitFSVolume{}, &SplitFSVolumeList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
