// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

const (
	idPrefix       = "splitfs-"
	snapshotPrefix = "snapshot-"
	groupPrefix    = "group-"
	libraryPrefix  = "library-"
	// 128 bits of the name's digest: far beyond any chance of a collision, and short enough that "<id>.img" fits the 64
	// bytes the kernel keeps of a loop device's backing file name.
	idHexLen = 32
)

var (
	idPattern = regexp.MustCompile(`^` + idPrefix + `[0-9a-f]{32}$`)
	// A snapshot's ID also has part of the digest of its node's name: another node that is asked for it can tell that it
	// is elsewhere from that it is gone.
	snapshotIDPattern = regexp.MustCompile(`^` + snapshotPrefix + `[0-9a-f]{32}-[0-9a-f]{8}$`)
	groupIDPattern    = regexp.MustCompile(`^` + groupPrefix + `[0-9a-f]{32}-[0-9a-f]{8}$`)
)

// IDFromName derives a volume's ID from the name in the request, so that a repeated CreateVolume finds the volume of
// the first one without a table of names.
func IDFromName(name string) string {
	return idPrefix + digest(name, idHexLen)
}

// LibraryID derives the ID of a volume that shows the library from the name in the request. It is no ID of a volume
// (ValidID): the node has neither state nor device for it.
func LibraryID(name string) string { return libraryPrefix + digest(name, idHexLen) }

func digest(s string, length int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:length]
}

// SnapshotID derives a snapshot's ID from its name and its node's.
func SnapshotID(name, node string) string {
	return snapshotPrefix + digest(name, idHexLen) + "-" + nodeDigest(node)
}

func nodeDigest(node string) string { return digest(node, 8) }

// ValidSnapshotID says whether id can be one of our snapshots.
func ValidSnapshotID(id string) bool { return snapshotIDPattern.MatchString(id) }

// GroupID derives the ID of a group of snapshots from its name and its node's.
func GroupID(name, node string) string {
	return groupPrefix + digest(name, idHexLen) + "-" + nodeDigest(node)
}

// ValidGroupID says whether id can be one of our groups of snapshots.
func ValidGroupID(id string) bool { return groupIDPattern.MatchString(id) }

// SnapshotOnNode says whether a valid ID of a snapshot or a group of them was given out on a node of that name.
func SnapshotOnNode(id, node string) bool { return strings.HasSuffix(id, "-"+nodeDigest(node)) }

// ValidID says whether id can be one of ours. IDs become file names: anything else never reaches the file system.
func ValidID(id string) bool { return idPattern.MatchString(id) }

// CheckName refuses names, of what is to be made, that no honest caller sends. CSI limits names to 128 bytes.
func CheckName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%w: the request has no %s name", ErrInvalid, what)
	}
	if len(name) > 128 {
		return fmt.Errorf("%w: the %s name is %d bytes long, at most 128 are allowed", ErrInvalid, what, len(name))
	}
	return nil
}
