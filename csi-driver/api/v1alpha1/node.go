// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of a SplitFSNode.
const (
	// NodeReady: volumes can be made and used on the node now. Unknown when the node service has not been heard of for a
	// while.
	NodeReady = "Ready"
	// NodeDevicesReady: every device manager works.
	NodeDevicesReady = "DevicesReady"
	// NodeThinPoolsHaveRoom: no thin pool of the node is nearly full. Its reason is NearFull, Filling (nothing new is
	// made) or Full (writes fail) when one is. Nodes without thin pools have no such condition.
	NodeThinPoolsHaveRoom = "ThinPoolsHaveRoom"
	// NodeLibraryInstalled: pods of the node find libsplit.so.
	NodeLibraryInstalled = "LibraryInstalled"
	// NodeModuleReady: the kernel module ext4_splitfs is loaded and answered. Volumes work without it.
	NodeModuleReady = "ModuleReady"
	// NodeVolumesHealthy: nothing is wrong with any volume of the node.
	NodeVolumesHealthy = "VolumesHealthy"
)

// SplitFSNode is what the node service of one node reports. Its name is the node's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=sfn,categories=splitfs
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.memory`,description="What the memory of new volumes promises when the power fails"
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.status.relink`,description="What volumes of each file system type relink with"
// +kubebuilder:printcolumn:name="Module",type=string,JSONPath=`.status.module.state`,description="State of the kernel module ext4_splitfs"
// +kubebuilder:printcolumn:name="Capacity",type=string,JSONPath=`.status.capacity`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.available`
// +kubebuilder:printcolumn:name="Volumes",type=integer,JSONPath=`.status.volumeCount`
// +kubebuilder:printcolumn:name="Kernel",type=string,priority=1,JSONPath=`.status.module.kernel`
// +kubebuilder:printcolumn:name="Driver",type=string,priority=1,JSONPath=`.status.driverVersion`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SplitFSNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// +optional
	Status SplitFSNodeStatus `json:"status,omitzero"`
}

// SplitFSNodeStatus is the state of a node.
type SplitFSNodeStatus struct {
	// HeartbeatTime is when the node service wrote this. It writes when something changed, and else every few minutes.
	// +optional
	HeartbeatTime metav1.Time `json:"heartbeatTime,omitzero"`
	// DriverVersion is the version of the node service.
	// +optional
	DriverVersion string `json:"driverVersion,omitempty"`
	// Library is the preload library that pods of this node get.
	// +optional
	Library Library `json:"library,omitzero"`
	// Module is the kernel module ext4_splitfs.
	// +optional
	Module Module `json:"module,omitzero"`
	// Relink says what volumes of each file system type that are staged now relink with, for example
	// "ext4:copy,xfs:reflink".
	// +optional
	Relink string `json:"relink,omitempty"`
	// Capacity is what all devices of the node hold together.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// Allocated is what volumes take of it, with their staging pools and logs.
	// +optional
	Allocated *resource.Quantity `json:"allocated,omitempty"`
	// Available is what can still be given to volumes.
	// +optional
	Available *resource.Quantity `json:"available,omitempty"`
	// Erasing is what deleted volumes and snapshots still take until their bytes are erased.
	// +optional
	Erasing *resource.Quantity `json:"erasing,omitempty"`
	// Devices are the node's device managers and what each of them has.
	// +optional
	// +listType=map
	// +listMapKey=name
	Devices []DeviceManager `json:"devices,omitempty"`
	// Memory is what promises most of what volumes of device lvm and namespace can be made of here; "emulated" where there
	// is no other device. docs/durability.md says what each word means.
	// +optional
	Memory string `json:"memory,omitempty"`
	// Durable says whether volumes can be made here on memory that keeps what was stored when the power fails.
	// +optional
	Durable bool `json:"durable,omitempty"`
	// MemoryRanges is all the persistent memory of the node, whoever uses it, and volatile memory behind /dev/dax. At most
	// 64 are listed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	MemoryRanges []MemoryRange `json:"memoryRanges,omitempty"`
	// Pool adds up the staging pools of the volumes that are in use.
	// +optional
	Pool *Pool `json:"pool,omitempty"`
	// VolumeCount is the number of volumes on the node.
	VolumeCount int32 `json:"volumeCount"`
	// Volumes are the volumes of the node, in short; each of them has a SplitFSVolume. At most 128 are listed.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=128
	Volumes []VolumeSummary `json:"volumes,omitempty"`
	// Conditions of the node.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MemoryRange is a region of persistent memory, or volatile memory that shows itself like one.
type MemoryRange struct {
	// Name is the kernel's: region0, dax1.0.
	Name string `json:"name"`
	// Provider is what brings it: ACPI.NFIT, CXL, virtio-pmem, e820, hmem.
	// +optional
	Provider string             `json:"provider,omitempty"`
	Size     *resource.Quantity `json:"size,omitempty"`
	// Memory is what it is: eadr, adr, gpf, unstated, virtio or volatile.
	Memory string `json:"memory"`
	// Durable says whether what was stored there outlives a power failure.
	Durable bool `json:"durable"`
	// Reason says who told that.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// Library is the file libsplit.so.
type Library struct {
	Installed bool `json:"installed"`
	// SHA256 is the digest of the file that pods see, in hexadecimal.
	// +optional
	SHA256 string `json:"sha256,omitempty"`
}

// Module is the kernel module ext4_splitfs on one node.
type Module struct {
	// State is Ready when volumes use the module; docs/module.md has the others.
	State string `json:"state"`
	// Kernel is the release of the running kernel.
	// +optional
	Kernel string `json:"kernel,omitempty"`
	// Version belongs to the file on the node, LoadedVersion to the module in the kernel.
	// +optional
	Version string `json:"version,omitempty"`
	// +optional
	LoadedVersion string `json:"loadedVersion,omitempty"`
	// Users is the number of mounted file systems that use the module.
	// +optional
	Users int32 `json:"users,omitempty"`
}

// DeviceManager provides the devices of one kind on a node.
type DeviceManager struct {
	// Name is the value of the StorageClass parameter "device".
	Name string `json:"name"`
	// Emulated says that the devices are not persistent memory.
	// +optional
	Emulated bool `json:"emulated,omitempty"`
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// +optional
	Available *resource.Quantity `json:"available,omitempty"`
	// Regions are the parts that the capacity is made of.
	// +optional
	// +listType=map
	// +listMapKey=name
	Regions []Region `json:"regions,omitempty"`
	// Problem says why no device can be made now; empty when one can.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// Region is a part of the capacity of a device manager: a region of persistent memory, or the directory of emulated
// devices.
type Region struct {
	Name string `json:"name"`
	// +optional
	Type string `json:"type,omitempty"`
	// Memory is what the platform and the administrator say of it.
	// +optional
	Memory string `json:"memory,omitempty"`
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// +optional
	Available *resource.Quantity `json:"available,omitempty"`
}

// Pool is room for data that is written and not yet relinked into its file.
type Pool struct {
	Size *resource.Quantity `json:"size,omitempty"`
	// Used is how much of it was in use when the object was written. It is refreshed with the heartbeat only.
	Used *resource.Quantity `json:"used,omitempty"`
}

// VolumeSummary is one volume of a node, in short.
type VolumeSummary struct {
	ID string `json:"id"`
	// Claim is namespace/name of the PersistentVolumeClaim.
	// +optional
	Claim string `json:"claim,omitempty"`
	// +optional
	Mode string `json:"mode,omitempty"`
	// +optional
	Phase VolumePhase `json:"phase,omitempty"`
	// Problem is the reason of the worst thing that is wrong with the volume; empty when nothing is.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// SplitFSNodeList is a list of nodes.
//
// +kubebuilder:object:root=true
type SplitFSNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []SplitFSNode `json:"items"`
}
