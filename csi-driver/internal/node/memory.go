// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// learnMemory asks what the memory of a volume that has just been staged is. That nobody can say it is no reason to
// keep it from its pods.
func (n *Node) learnMemory(ctx context.Context, rec *volume.Record) error {
	status, err := n.config.CLI.Status(ctx, n.root(rec))
	if err != nil {
		klog.FromContext(ctx).Error(err, "What the volume's memory is, is not known", "volume-id", rec.ID)
		return nil
	}
	if status.Memory == rec.Memory {
		return nil
	}
	rec.Memory = status.Memory
	return n.store.Put(rec)
}

// lessDurableMessage says what a volume's owner has to know of its memory: "" where it is durable, where nothing is
// known of it, and of emulated volumes, which have a message of their own.
func (n *Node) lessDurableMessage(rec *volume.Record) string {
	if rec.Device == volume.DeviceEmulated || rec.Thin || rec.Memory == "" || rec.Memory.Durable() {
		return ""
	}
	return fmt.Sprintf("the memory of volume %s on node %s is %q: nobody says that what was stored there, and not "+
		"fsynced, outlives a power failure; docs/durability.md says what each kind promises",
		rec.ID, n.config.Name, rec.Memory)
}

// Memory lists the node's persistent memory, whoever uses it, and volatile memory behind /dev/dax.
func (n *Node) Memory(ctx context.Context) ([]nvdimm.Range, error) { return n.config.CLI.Memory(ctx) }

// strongest returns the memory that promises most of what devices can be made of.
func strongest(manager device.Manager, regions []device.Region) volume.Memory {
	var best volume.Memory
	if manager.Emulated() {
		best = volume.MemoryEmulated
	}
	for _, r := range regions {
		best = volume.Stronger(best, r.Memory)
	}
	return best
}
