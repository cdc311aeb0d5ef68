// SPDX-License-Identifier: Apache-2.0

// Package contract has what the CSI driver, the injector and the preload library have to agree on, and users see:
// modes, annotations, parameters, what a container's environment says. docs/architecture.md describes it.
package contract

const (
	// Driver is the CSI driver whose volumes are served by the library: the provisioner of StorageClasses, the driver of
	// inline volumes.
	Driver = "csi.splitfs.io"

	// TopologyKey is the label of nodes that names the node, for volumes that are on one.
	TopologyKey = Driver + "/node"

	// AnnotationPrefix starts every pod annotation of the product.
	AnnotationPrefix = "splitfs.io/"
	// AnnotationMode sets the mode of all containers of a pod.
	AnnotationMode = AnnotationPrefix + "mode"
	// AnnotationFsync says what fsync does in all containers of a pod.
	AnnotationFsync = AnnotationPrefix + "fsync"
	// AnnotationProtect guards what the library has mapped against stray stores, in all containers of a pod.
	AnnotationProtect = AnnotationPrefix + "protect"
	// AnnotationInject set to "false" keeps the injector away from a pod; it is a label of pods and namespaces, too.
	AnnotationInject = AnnotationPrefix + "inject"
	// AnnotationUnserved says what becomes of the pod's programs without the library that open a file for writing.
	AnnotationUnserved = AnnotationPrefix + "unserved"
	// AnnotationStatus is written by the injector: what it did, as JSON.
	AnnotationStatus = AnnotationPrefix + "status"

	// AnnotationVolumeMode is written on a PersistentVolume by its node: the mode after a VolumeAttributesClass changed
	// it. It goes before the volume's attributes, which cannot be changed.
	AnnotationVolumeMode = Driver + "/mode"

	// LabelMemory and LabelDurable are on Nodes: what promises most of the memory that volumes can be made of there, and
	// whether that is durable.
	LabelMemory  = AnnotationPrefix + "memory"
	LabelDurable = AnnotationPrefix + "durable"

	// ParameterMode is the parameter of a StorageClass or VolumeAttributesClass that names the mode.
	ParameterMode = "mode"

	// LibraryVolume is the name of the volume added to a pod. A pod that uses the name for something else gets a numbered
	// one.
	LibraryVolume = "splitfs-library"
	// VolumeKindAttribute and VolumeKindLibrary ask the node service for the volume that shows the library: as an
	// attribute of an inline volume, or as the parameter of the StorageClass LibraryClass, for clusters that forbid inline
	// volumes.
	VolumeKindAttribute = AnnotationPrefix + "kind"
	VolumeKindLibrary   = "library"
	LibraryClass        = "splitfs-library"

	// LibraryDir is where a container sees the library volume, LibraryPath the library in it, AgentsDir the agents'
	// sockets.
	LibraryDir  = "/opt/splitfs"
	LibraryPath = LibraryDir + "/libsplit.so"
	AgentsDir   = LibraryDir + "/agents"

	// PreloadFile is what glibc's dynamic linker reads in every program, also in those that LD_PRELOAD does not reach, and
	// ConfigFile what the library reads where the environment says nothing. Both are files of the library's volume, which
	// the node service writes: PreloadSubPath, and one in ConfigSubPath for each container, by its name.
	PreloadFile    = "/etc/ld.so.preload"
	ConfigFile     = LibraryDir + "/config"
	PreloadSubPath = "ld.so.preload"
	ConfigSubPath  = "containers"

	// EnvPreload is the dynamic linker's variable; EnvConfig, EnvFsync and EnvProtect are ours. EnvPreloadOriginal keeps
	// a LD_PRELOAD that the container had from a source (valueFrom, envFrom) which cannot be merged as text.
	EnvPreload         = "LD_PRELOAD"
	EnvFsync           = "SPLITFS_FSYNC"
	EnvProtect         = "SPLITFS_PROTECT"
	EnvConfig          = "SPLITFS_CONFIG"
	EnvPreloadOriginal = "SPLITFS_LD_PRELOAD"
)
