// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
	"strings"
)

// Mode is what a volume guarantees about a completed call; docs/architecture.md has the table.
type Mode string

const (
	Posix  Mode = "posix"
	Sync   Mode = "sync"
	Strict Mode = "strict"

	// Default is the mode of a StorageClass or volume that names none: what any kernel file system gives.
	Default = Posix
)

// Modes are all of them: each gives all that the ones before it give.
var Modes = []Mode{Posix, Sync, Strict}

// ParseMode accepts exactly the three names. Its error says what is wrong and what is allowed, and never repeats a long
// value.
func ParseMode(s string) (Mode, error) {
	if m := Mode(s); slices.Contains(Modes, m) {
		return m, nil
	}
	return "", fmt.Errorf("%s is not a mode; allowed are %s", Quote(s), strings.Join(ModeNames(), ", "))
}

// ModeNames are the names of all modes.
func ModeNames() []string {
	names := make([]string, 0, len(Modes))
	for _, m := range Modes {
		names = append(names, string(m))
	}
	return names
}

// Stronger says whether a mode gives more than another. What is no mode gives nothing.
func (m Mode) Stronger(other Mode) bool { return slices.Index(Modes, m) > slices.Index(Modes, other) }

// NeedsLibrary says whether the mode promises more than a kernel file system alone gives.
func (m Mode) NeedsLibrary() bool { return m.Stronger(Posix) }

// Fsync is what the library does in fsync, besides making the bytes durable.
type Fsync string

const (
	// Record makes fsync a record and a fence, and shows the bytes to programs without the library that are seen to have
	// the file open. It is what a program gets that asks for nothing.
	Record Fsync = "record"
	// Visible shows them to whoever may look.
	Visible Fsync = "visible"
)

// ParseFsync accepts exactly the two names.
func ParseFsync(s string) (Fsync, error) {
	if f := Fsync(s); f == Visible || f == Record {
		return f, nil
	}
	return "", fmt.Errorf(
		"%s is not allowed; allowed are %s (the default: fsync also shows the bytes to programs without "+
			"the library that have opened the file since this one asked for it) and %s (to all others, too, by a relink)",
		Quote(s),
		Record,
		Visible,
	)
}

// Protect says whether a stray store of the program is kept from what the library has mapped.
type Protect string

const (
	// ProtectOn takes protection keys; where the processor has none there is no protection.
	ProtectOn Protect = "on"
	// ProtectOff is what a program gets that asks for nothing.
	ProtectOff Protect = "off"
)

// ParseProtect accepts exactly the two names.
func ParseProtect(s string) (Protect, error) {
	if p := Protect(s); p == ProtectOn || p == ProtectOff {
		return p, nil
	}
	return "", fmt.Errorf(
		"%s is not allowed; allowed are %q (where the processor has protection keys) and %q (the default)",
		Quote(s),
		ProtectOn,
		ProtectOff,
	)
}

// Unserved is what becomes of programs without the library that open a file for writing.
type Unserved string

const (
	// Refuse: the open fails with EPERM.
	Refuse Unserved = "refuse"
	// Durable: the file becomes synchronous, so that each of their writes is durable when it returns.
	Durable Unserved = "durable"
	// Allow: they write as to any file system.
	Allow Unserved = "allow"
)

// ParseUnserved accepts exactly the three names.
func ParseUnserved(s string) (Unserved, error) {
	if u := Unserved(s); u == Refuse || u == Durable || u == Allow {
		return u, nil
	}
	return "", fmt.Errorf(
		"%s is not allowed; allowed are %s (programs without the library cannot open files for writing, the default "+
			"of mode strict), "+
			"%s (their writes are synchronous) and %s", Quote(s), Refuse, Durable, Allow)
}

// maxQuoted bounds what of a user's value appears in a message: enough to recognise a typing error, too little to carry
// a payload into logs and events.
const maxQuoted = 32

// Quote shows a value in a message when it is short and printable, and describes it otherwise.
func Quote(s string) string {
	switch {
	case s == "":
		return "an empty value"
	case len(s) > maxQuoted:
		return fmt.Sprintf("a value of %d bytes", len(s))
	}
	return fmt.Sprintf("%q", s)
}

// maxName is the longest name of an object in Kubernetes.
const maxName = 253

// Name shows the name of an object in a message. Admission comes before validation, so that a name can still be
// anything.
func Name(s string) string {
	if len(s) > maxName {
		return fmt.Sprintf("with a name of %d bytes", len(s))
	}
	return fmt.Sprintf("%q", s)
}
