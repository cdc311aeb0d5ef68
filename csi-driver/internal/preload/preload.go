// SPDX-License-Identifier: Apache-2.0

// Package preload knows how a container comes to load the library: the contract with the injector, of which docs/architecture.md tells.
package preload

import "strings"

const (
	// Dir is where containers see the directory that holds the library, Library the library in it.
	Dir     = "/opt/splitfs"
	Library = Dir + "/libsplit.so"
	// File is what glibc's dynamic linker reads of objects to load into every program, also those that Variable does not reach. A container
	// has it from FileSubPath of the library's volume.
	File        = "/etc/ld.so.preload"
	FileSubPath = "ld.so.preload"
	// Config is what the library reads where the environment says nothing. A container has it from ConfigSubPath of the library's volume, by
	// its name.
	Config        = Dir + "/config"
	ConfigSubPath = "containers"
	// Variable names the objects that the dynamic linker loads first.
	Variable = "LD_PRELOAD"
)

// Elements are the objects that a value of Variable names, split as the dynamic linker does.
func Elements(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == ' ' })
}
