// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
)

const (
	idPrefix = "splitfs-"
	// 128 bits of the name's digest: far beyond any chance of a collision, and short enough that "<id>.img" fits the 64 bytes
	// the kernel keeps of a loop device's backing file name.
	idHexLen = 32
)

var idPattern = regexp.MustCompile(`^` + idPrefix + `[0-9a-f]{32}$`)

// IDFromName derives a volume's ID from the name in the request, so that a repeated CreateVolume finds the volume of the first
// one without a table of names.
func IDFromName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return idPrefix + hex.EncodeToString(sum[:])[:idHexLen]
}

// ValidID says whether id can be one of ours. IDs become file names: anything else never reaches the file system.
func ValidID(id string) bool { return idPattern.MatchString(id) }

// CheckName refuses request names that no honest caller sends. CSI limits names to 128 bytes.
func CheckName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: the request has no volume name", ErrInvalid)
	}
	if len(name) > 128 {
		return fmt.Errorf("%w: the volume name is %d bytes long, at most 128 are allowed", ErrInvalid, len(name))
	}
	return nil
}
