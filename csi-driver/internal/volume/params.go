// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"slices"
	"strings"

	"splitfs.io/splitfs/internal/contract"
)

// File system types a volume can be formatted with.
const (
	XFS  = "xfs"
	Ext4 = "ext4"
)

// What the devices of volumes can be.
const (
	// DeviceEmulated is a backing file with a loop device instead of persistent memory.
	DeviceEmulated = "emulated"
	// DeviceLVM is a logical volume; a region is one volume group.
	DeviceLVM = "lvm"
	// DeviceNamespace is an fsdax namespace of the volume's own.
	DeviceNamespace = "namespace"
)

// Keys of StorageClass parameters and volume attributes.
const (
	keyDevice       = "device"
	keyClass        = "deviceClass"
	keyErase        = "erase"
	keyDurability   = "durability"
	keyPool         = "pool"
	keyUnserved     = "unserved"
	keyFSType       = "csi.storage.k8s.io/fstype"
	keyPVName       = "csi.storage.k8s.io/pv/name"
	keyPVCName      = "csi.storage.k8s.io/pvc/name"
	keyPVCNamespace = "csi.storage.k8s.io/pvc/namespace"
	keyProvisioner  = "storage.kubernetes.io/csiProvisionerIdentity"
	keyPodName      = "csi.storage.k8s.io/pod.name"
	keyPodNamespace = "csi.storage.k8s.io/pod.namespace"
	keyPodUID       = "csi.storage.k8s.io/pod.uid"
	keyServiceAcct  = "csi.storage.k8s.io/serviceAccount.name"
	keyEphemeral    = "csi.storage.k8s.io/ephemeral"
)

var (
	devices = []string{DeviceEmulated, DeviceLVM, DeviceNamespace}
	fsTypes = []string{XFS, Ext4}

	podKeys = []string{keyPodName, keyPodNamespace, keyPodUID, keyServiceAcct, keyEphemeral}
)

// PVC names the claim a volume was created for, as csi-provisioner passes it (--extra-create-metadata).
type PVC struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Pod names the pod a volume is published for, as kubelet passes it (podInfoOnMount).
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Params are the parameters of CreateVolume and GetCapacity: those of the StorageClass and what csi-provisioner adds.
type Params struct {
	Mode   contract.Mode
	Device string
	// Class is the device class; empty: the node's default.
	Class string
	Erase Erase
	// Durability is what the class says; empty: WantedDurability has the default, which follows the mode.
	Durability Durability
	FSType     string // empty: the volume capability decides, then XFS
	// Pool is the size of the staging pool in bytes; 0: the node decides.
	Pool int64
	// Unserved is what becomes of programs without the library; empty: what the mode has by default.
	Unserved contract.Unserved
	PVC      PVC
	PV       string
	// Library: no volume of anybody's data, but one that shows the library to a pod. Mode, device and file system are
	// empty.
	Library bool
}

// ParseParams reads the parameters of a StorageClass. Every key that is not known is an error: a misspelt "mode" must
// not silently become the default.
func ParseParams(in map[string]string) (Params, error) {
	p := Params{Mode: contract.Posix, Device: DeviceEmulated, Erase: EraseNone}
	internal := []string{keyPVName, keyPVCName, keyPVCNamespace}
	if _, ok := in[contract.VolumeKindAttribute]; ok {
		return Params{Library: true}, checkKind("StorageClass parameter", in, internal)
	}
	in, err := withoutPMEMCSI(in)
	if err != nil {
		return p, err
	}
	if err := checkKeys("StorageClass parameter", in,
		[]string{contract.ParameterMode, keyDevice, keyClass, keyErase, keyDurability, keyPool, keyUnserved, keyFSType},
		internal); err != nil {
		return p, err
	}
	if v, ok := in[contract.ParameterMode]; ok {
		p.Mode = contract.Mode(v)
	}
	if v, ok := in[keyDevice]; ok {
		p.Device = v
	}
	if v, ok := in[keyClass]; ok {
		if v == "" {
			return p, fmt.Errorf("%w: StorageClass parameter %s is empty; leave it out for the default class", ErrInvalid,
				keyClass)
		}
		p.Class = v
	}
	if v, ok := in[keyErase]; ok {
		p.Erase = Erase(v)
	}
	if v, ok := in[keyDurability]; ok {
		p.Durability = Durability(v)
		if err := oneOf("StorageClass parameter "+keyDurability, v, durabilities); err != nil {
			return p, err
		}
	}
	if v, ok := in[keyPool]; ok {
		if p.Pool, err = parsePool("StorageClass parameter "+keyPool, v); err != nil {
			return p, err
		}
	}
	if v, ok := in[keyUnserved]; ok {
		if p.Unserved, err = contract.ParseUnserved(v); err != nil {
			return p, fmt.Errorf("%w: StorageClass parameter %s: %w", ErrInvalid, keyUnserved, err)
		}
	}
	p.FSType = in[keyFSType]
	p.PV = in[keyPVName]
	p.PVC = PVC{Namespace: in[keyPVCNamespace], Name: in[keyPVCName]}
	return p, p.check()
}

func (p Params) check() error {
	if err := oneOf("StorageClass parameter "+contract.ParameterMode, string(p.Mode), contract.ModeNames()); err != nil {
		return err
	}
	if err := oneOf("StorageClass parameter "+keyDevice, p.Device, devices); err != nil {
		return err
	}
	if err := oneOf("StorageClass parameter "+keyErase, string(p.Erase), erases); err != nil {
		return err
	}
	if p.Durability.Required() && p.Device == DeviceEmulated {
		return fmt.Errorf(
			"%w: StorageClass parameter %s is %s, and %s volumes are no persistent memory; leave it out, or set %s to %s or %s",
			ErrInvalid, keyDurability, p.Durability, DeviceEmulated, keyDevice, DeviceLVM, DeviceNamespace)
	}
	if p.FSType != "" {
		return CheckFSType(p.FSType)
	}
	return nil
}

// Attributes returns what goes into the PersistentVolume and comes back with every call for the volume.
func (p Params) Attributes() map[string]string {
	if p.Library {
		return map[string]string{contract.VolumeKindAttribute: contract.VolumeKindLibrary}
	}
	return map[string]string{contract.ParameterMode: string(p.Mode), keyDevice: p.Device}
}

// Attributes of a published volume: those of its PersistentVolume and what kubelet adds.
type Attributes struct {
	Mode      contract.Mode
	Device    string
	Pod       Pod
	Ephemeral bool
	// Library: the volume shows the library; an inline volume always does, a PersistentVolume when its class says so.
	Library bool
}

// ParseAttributes reads the volume context of a PersistentVolume.
func ParseAttributes(in map[string]string) (Attributes, error) {
	a := Attributes{
		Mode: contract.Mode(in[contract.ParameterMode]), Device: in[keyDevice], Ephemeral: in[keyEphemeral] == "true",
		Pod: Pod{Namespace: in[keyPodNamespace], Name: in[keyPodName], UID: in[keyPodUID]},
	}
	_, hasKind := in[contract.VolumeKindAttribute]
	switch {
	case a.Ephemeral && !hasKind:
		return a, fmt.Errorf(
			"%w: an inline volume of %s needs the attribute %s: %s; use a PersistentVolumeClaim to store data",
			ErrInvalid, contract.Driver, contract.VolumeKindAttribute, contract.VolumeKindLibrary)
	case a.Ephemeral:
		a.Library = true
		return a, checkKind("inline volume attribute", in, podKeys)
	case hasKind:
		a.Library = true
		return a, checkKind("volume attribute", in, append([]string{keyProvisioner}, podKeys...))
	}
	if err := checkKeys("volume attribute", in, []string{contract.ParameterMode, keyDevice},
		append([]string{keyProvisioner}, podKeys...)); err != nil {
		return a, err
	}
	if a.Mode != "" {
		if err := oneOf("volume attribute "+contract.ParameterMode, string(a.Mode), contract.ModeNames()); err != nil {
			return a, err
		}
	}
	if a.Device != "" {
		return a, oneOf("volume attribute "+keyDevice, a.Device, devices)
	}
	return a, nil
}

// checkKind checks what names a kind of volume. There is one kind besides volumes for data: the one that carries the
// library.
func checkKind(what string, in map[string]string, internal []string) error {
	if err := checkKeys(what, in, []string{contract.VolumeKindAttribute}, internal); err != nil {
		return err
	}
	return oneOf(what+" "+contract.VolumeKindAttribute, in[contract.VolumeKindAttribute], []string{
		contract.VolumeKindLibrary,
	})
}

// CheckFSType refuses a file system type that volumes cannot be formatted with.
func CheckFSType(fsType string) error { return oneOf("file system type", fsType, fsTypes) }

func oneOf(what, value string, allowed []string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%w: %s is %q; allowed: %s", ErrInvalid, what, value, strings.Join(allowed, ", "))
}

// checkKeys names the first unknown key (in sorted order, so that the message is stable) and the keys a user may set.
func checkKeys(what string, in map[string]string, user, internal []string) error {
	var unknown []string
	for key := range in {
		if !slices.Contains(user, key) && !slices.Contains(internal, key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("%w: unknown %s %q; allowed: %s", ErrInvalid, what, unknown[0], strings.Join(user, ", "))
}
