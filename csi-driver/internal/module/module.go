// SPDX-License-Identifier: Apache-2.0

// Package module brings the kernel module ext4_splitfs into use on a node: ext4 with relink, beside the kernel's own
// ext4. It finds or builds a module for exactly the running kernel, checks it, loads it, and asks it whether it works.
// Whatever stands in the way ends in a State with a sentence for the operator; volumes are served without the module
// then. Nothing is written where a boot would find it (/lib/modules, the initramfs, modprobe.d), so a node always boots
// as it did before.
package module

import (
	"slices"
	"time"
)

// Names that the kernel knows the module by.
const (
	Name           = "ext4_splitfs"
	FileSystemType = "ext4_splitfs"
	// FileName is the module's file in the directory of its kernel release.
	FileName = Name + ".ko"
)

// State is how far the module has come on this node.
type State string

// States. Only in Ready do volumes use the module; in all others they are served by what the kernel offers itself.
const (
	// Pending: the node service has not looked yet.
	Pending State = "Pending"
	// NotConfigured: nobody asked for the module.
	NotConfigured State = "NotConfigured"
	// Unsupported: this kernel cannot load modules.
	Unsupported State = "Unsupported"
	// NoModuleForKernel: there is no module for this kernel release, and none was to be built.
	NoModuleForKernel State = "NoModuleForKernel"
	// BuildFailed: it was to be built, and could not be.
	BuildFailed State = "BuildFailed"
	// Invalid: there is a file, and it is damaged, for another kernel, or not what its manifest says.
	Invalid State = "Invalid"
	// LoadRefused: the node's policy (lockdown, signatures, modules disabled, missing capability) does not allow it.
	LoadRefused State = "LoadRefused"
	// LoadFailed: the kernel tried and failed.
	LoadFailed State = "LoadFailed"
	// Suspended: the machine went down the last time this very module was loaded, so it is not loaded again by itself.
	Suspended State = "Suspended"
	// VerifyFailed: it is loaded and does not do what it should.
	VerifyFailed State = "VerifyFailed"
	// Ready: it is loaded, and it answered.
	Ready State = "Ready"
)

// States returns all states, for metrics.
func States() []State {
	return []State{
		Pending, NotConfigured, Unsupported, NoModuleForKernel, BuildFailed, Invalid, LoadRefused, LoadFailed, Suspended,
		VerifyFailed, Ready,
	}
}

// Why details LoadRefused, for programs.
type Why string

// Reasons of LoadRefused.
const (
	WhyModulesDisabled Why = "modules-disabled"
	WhyLockdown        Why = "lockdown"
	WhySignature       Why = "signature"
	WhyCapability      Why = "capability"
)

// Status of the module on this node.
type Status struct {
	State State `json:"state"`
	// Why is set in LoadRefused only.
	Why Why `json:"why,omitempty"`
	// Message says it to people, and what to do.
	Message string `json:"message"`
	// Release is the running kernel's.
	Release string `json:"release"`
	// Path, Version and Signer belong to the module's file, when there is one.
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	Signed  bool   `json:"signed,omitempty"`
	// Loaded is the version in the kernel, "" when it is not loaded; a module without a version shows "unknown".
	Loaded string `json:"loaded,omitempty"`
	// Users is the kernel's reference count: the mounted file systems that use it.
	Users int       `json:"users"`
	Since time.Time `json:"since,omitzero"`
}

// Same says whether two statuses tell an operator the same.
func (s Status) Same(other Status) bool {
	return s.State == other.State && s.Why == other.Why && s.Message == other.Message && s.Release == other.Release &&
		s.Loaded == other.Loaded
}

// Trouble says whether somebody who asked for the module should look into it.
func (s Status) Trouble() bool {
	return !slices.Contains([]State{Pending, NotConfigured, Ready}, s.State)
}

// outcome is an error that ends the way to Ready in a State.
type outcome struct {
	state State
	why   Why
	err   error
}

func (o *outcome) Error() string { return o.err.Error() }
func (o *outcome) Unwrap() error { return o.err }
