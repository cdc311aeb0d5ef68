// SPDX-License-Identifier: Apache-2.0

// Package pmemcsi knows what the driver pmem-csi.intel.com, which is not developed any more, leaves on a node, so that
// its users can see what there is to bring over. It only looks: names are all it needs. docs/migrate-pmem-csi.md says
// how to go on.
package pmemcsi

import (
	"fmt"
	"regexp"

	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
)

// NamespaceName is the name of namespaces that its volume groups are on.
const NamespaceName = "pmem-csi"

var (
	// groupName is how it names volume groups: bus, region, and the mode of the namespaces in it.
	groupName = regexp.MustCompile(`^ndbus[0-9]+region[0-9]+(fsdax|sector)?$`)
	// volumeID is how it names volumes: up to six characters of their own name and a digest. Early versions had the digest
	// alone.
	volumeID = regexp.MustCompile(`^(.{1,6}-[0-9a-f]{56}|[0-9a-f]{40})$`)
)

// IsGroup says whether a volume group is pmem-csi's.
func IsGroup(name string) bool { return groupName.MatchString(name) }

// IsVolume says whether a logical volume or a namespace is named as one of its volumes.
func IsVolume(name string) bool { return volumeID.MatchString(name) }

// Finding is something of pmem-csi's.
type Finding struct {
	Region    string `json:"region"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Size      int64  `json:"size"`
	Device    string `json:"device,omitempty"`
	// Volume: the namespace is a volume itself (mode "direct"). Else it carries, or was made for, a volume group (mode
	// "LVM").
	Volume bool `json:"volume"`
}

// String says what was found.
func (f Finding) String() string {
	if f.Volume {
		return fmt.Sprintf("volume %s is namespace %s of %s (%d MiB)", f.Name, f.Namespace, f.Region, f.Size>>20)
	}
	return fmt.Sprintf("namespace %s of %s (%d MiB) is for its volume group", f.Namespace, f.Region, f.Size>>20)
}

// Find returns what is named as pmem-csi names things.
func Find(inventory nvdimm.Inventory) []Finding {
	var findings []Finding
	for region, ns := range inventory.Used() {
		if ns.Name != NamespaceName && !IsVolume(ns.Name) {
			continue
		}
		f := Finding{
			Region: region.Dev, Namespace: ns.Dev, Name: ns.Name, Size: int64(ns.Size), Volume: ns.Name != NamespaceName,
		}
		if ns.BlockDev != "" {
			f.Device = "/dev/" + ns.BlockDev
		}
		findings = append(findings, f)
	}
	return findings
}
