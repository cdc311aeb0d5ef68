// SPDX-License-Identifier: Apache-2.0

// Package preload knows how a container comes to load the library: the contract with the injector, of which docs/architecture.md tells.
package preload

import "strings"

const (
	// Dir is where containers see the directory that holds the library, Library the library in it.
	Dir     = "/opt/splitfs"
	Library = Dir + "/libsplit.so"
	// Variable names the objects that the dynamic linker loads first.
	Variable = "LD_PRELOAD"
)

// Elements are the objects that a value of Variable names, split as the dynamic linker does.
func Elements(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == ' ' })
}
