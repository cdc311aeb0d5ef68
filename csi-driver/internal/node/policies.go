// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// policiesName is below the directory of the agents' supervisor. The agent of a volume reads there what becomes of
// programs without the library, by pod; it follows each change at once.
const policiesName = "unserved"

func (n *Node) policiesDir() string { return filepath.Join(n.config.AgentsDir, policiesName) }

func (n *Node) policiesFile(rec *volume.Record) string { return filepath.Join(n.policiesDir(), rec.ID) }

// writePolicies tells a volume's agent of the pods that have it. Those that are not named may do as they like.
func (n *Node) writePolicies(rec *volume.Record) error {
	pods := map[string]contract.Unserved{}
	for _, p := range rec.Published {
		if podUID.MatchString(p.Pod.UID) && p.Unserved != "" && p.Unserved != contract.Allow {
			pods[p.Pod.UID] = p.Unserved
		}
	}
	var text strings.Builder
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		fmt.Fprintf(&text, "%s %s\n", uid, pods[uid])
	}
	var err error
	if file := n.policiesFile(rec); text.Len() == 0 {
		err = volume.RemoveIfThere(file)
	} else {
		err = writeIfOther(file, text.String())
	}
	if err != nil {
		return fmt.Errorf("tell the agent of volume %s what becomes of programs without the library: %w", rec.ID, err)
	}
	return nil
}
