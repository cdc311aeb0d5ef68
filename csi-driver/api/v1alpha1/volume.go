// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of a SplitFSVolume.
const (
	// VolumeHealthy: nothing is wrong with the volume.
	VolumeHealthy = "Healthy"
	// VolumeServed: the volume is staged, and its agent serves applications.
	VolumeServed = "Served"
	// VolumePersistentMemory: the volume is on persistent memory that keeps what was stored when the power fails. False
	// for emulated volumes.
	VolumePersistentMemory = "PersistentMemory"
)

// VolumePhase is how far a volume has come.
type VolumePhase string

// Phases of a volume.
const (
	// VolumeCreating and VolumeDeleting: the node is at it, or will go on with it when it is back.
	VolumeCreating VolumePhase = "Creating"
	VolumeDeleting VolumePhase = "Deleting"
	// VolumeErasing: it was deleted, and its bytes are being erased before its space is given back.
	VolumeErasing VolumePhase = "Erasing"
	// VolumeAvailable: it exists and is not mounted.
	VolumeAvailable VolumePhase = "Available"
	// VolumeStaged: it is mounted and served, and no pod has it.
	VolumeStaged VolumePhase = "Staged"
	// VolumePublished: at least one pod has it.
	VolumePublished VolumePhase = "Published"
)

// VolumeHealth is the worst of what is wrong with a volume.
type VolumeHealth string

// Healths, from good to bad.
const (
	HealthHealthy VolumeHealth = "Healthy"
	// HealthDegraded: usable, with a guarantee kept by slower means.
	HealthDegraded VolumeHealth = "Degraded"
	// HealthInaccessible: not usable on its node.
	HealthInaccessible VolumeHealth = "Inaccessible"
	// HealthDataLoss: something that was written cannot be given back.
	HealthDataLoss VolumeHealth = "DataLoss"
)

// SplitFSVolume is what the node service reports of one volume. Its name is the volume's ID, which is the volumeHandle
// of its PersistentVolume; the label csi.splitfs.io/node names its node.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=sfv,categories=splitfs
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.mode`
// +kubebuilder:printcolumn:name="Device",type=string,JSONPath=`.status.device`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.status.provider`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.status.claim`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Staged",type=string,JSONPath=`.status.pool.used`,description="Bytes of the staging pool in use, as of the last heartbeat"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Health",type=string,JSONPath=`.status.health`
// +kubebuilder:printcolumn:name="Volume",type=string,priority=1,JSONPath=`.status.volumeName`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Healthy")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SplitFSVolume struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// +optional
	Status SplitFSVolumeStatus `json:"status,omitzero"`
}

// SplitFSVolumeStatus is the state of a volume.
type SplitFSVolumeStatus struct {
	// NodeName is the node that holds the volume.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// VolumeName is the name the volume was asked for by: that of its PersistentVolume, when it was provisioned for a
	// claim.
	// +optional
	VolumeName string `json:"volumeName,omitempty"`
	// Claim is namespace/name of the PersistentVolumeClaim.
	// +optional
	Claim string `json:"claim,omitempty"`
	// Mode is what the volume promises: posix, sync or strict.
	// +optional
	Mode string `json:"mode,omitempty"`
	// Device is the device manager that the volume comes from.
	// +optional
	Device string `json:"device,omitempty"`
	// Memory is what its memory was found to be: eadr, adr, gpf, unstated, virtio, volatile or emulated; empty before it
	// was first used.
	// +optional
	Memory string `json:"memory,omitempty"`
	// FSType is the type of its file system.
	// +optional
	FSType string `json:"fsType,omitempty"`
	// Provider is what the volume relinks with; empty while it is not served.
	// +optional
	Provider string `json:"provider,omitempty"`
	// Size is what the volume was promised to hold.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// DeviceSize is what it takes of its node.
	// +optional
	DeviceSize *resource.Quantity `json:"deviceSize,omitempty"`
	// Pool is its staging pool, while it is served.
	// +optional
	Pool *Pool `json:"pool,omitempty"`
	// +optional
	Phase VolumePhase `json:"phase,omitempty"`
	// +optional
	Health VolumeHealth `json:"health,omitempty"`
	// Pods are the pods that the volume is mounted for, as namespace/name. At most 64 are listed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Pods []string `json:"pods,omitempty"`
	// LastRecovery is what recovery found when the volume was staged last.
	// +optional
	LastRecovery *Recovery `json:"lastRecovery,omitempty"`
	// Conditions of the volume.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Recovery is the outcome of a recovery.
type Recovery struct {
	Time metav1.Time `json:"time"`
	// Replayed is the number of writes that were put into their files.
	// +optional
	Replayed int64 `json:"replayed,omitempty"`
	// Quarantined is the number of damaged or foreign logs that were set aside.
	// +optional
	Quarantined int64 `json:"quarantined,omitempty"`
}

// SplitFSVolumeList is a list of volumes.
//
// +kubebuilder:object:root=true
type SplitFSVolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []SplitFSVolume `json:"items"`
}
