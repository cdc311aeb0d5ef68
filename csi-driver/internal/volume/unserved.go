// SPDX-License-Identifier: Apache-2.0

package volume

// Unserved is what becomes of programs without the library that open a file of a volume for writing; "": what the mode has by default.
type Unserved string

// What a StorageClass or a pod can ask for.
const (
	// UnservedRefuse lets the open fail with EPERM.
	UnservedRefuse Unserved = "refuse"
	// UnservedDurable makes the file synchronous, so that each of their writes is durable when it returns.
	UnservedDurable Unserved = "durable"
	// UnservedAllow does nothing.
	UnservedAllow Unserved = "allow"
)

var unserveds = []string{string(UnservedRefuse), string(UnservedDurable), string(UnservedAllow)}

// Valid says whether u is one of the names.
func (u Unserved) Valid() bool {
	return u == UnservedRefuse || u == UnservedDurable || u == UnservedAllow
}
