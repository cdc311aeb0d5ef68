// SPDX-License-Identifier: Apache-2.0

// Package driverinfo holds the names by which the rest of the world knows this driver.
package driverinfo

const (
	// Name is the CSI driver's name: the provisioner of a StorageClass and the driver of an inline volume.
	Name = "csi.splitfs.io"

	// TopologyKey names the one node that can reach a volume.
	TopologyKey = Name + "/node"

	// ModeAnnotation on a PersistentVolume is its mode after a change by a VolumeAttributesClass. It goes before the volume's attributes, which
	// cannot be changed.
	ModeAnnotation = Name + "/mode"

	// MemoryLabel and DurableLabel are on Nodes: what promises most of the memory that volumes can be made of there, and whether that is durable.
	MemoryLabel  = "splitfs.io/memory"
	DurableLabel = "splitfs.io/durable"

	// KindAttribute and KindLibrary select, in an inline volume's attributes or in a StorageClass's parameters, the volume that
	// carries the library into a pod.
	KindAttribute = "splitfs.io/kind"
	KindLibrary   = "library"
)

// Version is set at link time (-ldflags "-X .../driverinfo.Version=...").
var Version = "dev"
