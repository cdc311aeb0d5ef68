// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API group splitfs.io: what the driver knows of a node and of a volume, for people and
// programs to read. Nothing reads these objects back to act on them: they can be deleted at any time, and the driver
// writes them again.
//
// +kubebuilder:object:generate=true
// +groupName=splitfs.io
package v1alpha1
