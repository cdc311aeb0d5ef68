// SPDX-License-Identifier: Apache-2.0

package pmemcsi

import (
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
)

func TestNames(t *testing.T) {
	digest, old := strings.Repeat("0a", 28), strings.Repeat("9f", 20)
	for name, want := range map[string]bool{
		"pvc-0d-" + digest: true, "a-" + digest: true, old: true, digest: false, "longer-name-" + digest: false,
		"pvc-0d-" + digest + "0": false,
		"pmem-csi":               false, "": false, "splitfs-0123456789abcdef0123456789abcdef": false,
		"pvc-0d-" + strings.ToUpper(digest): false,
	} {
		if IsVolume(name) != want {
			t.Errorf("%q is a volume: %t", name, !want)
		}
	}
	for name, want := range map[string]bool{
		"ndbus0region0fsdax": true, "ndbus0region12": true, "ndbus1region0sector": true, "ndbus0region0fsdax2": false,
		"vg0": false,
	} {
		if IsGroup(name) != want {
			t.Errorf("%q is a volume group: %t", name, !want)
		}
	}
}

func TestFind(t *testing.T) {
	volume := "pvc-0d-" + strings.Repeat("0a", 28)
	found := Find(nvdimm.Inventory{{Regions: []nvdimm.Region{{Dev: "region0", Namespaces: []nvdimm.Namespace{
		{Dev: "namespace0.0", Name: "pmem-csi", Size: 1 << 30, BlockDev: "pmem0"},
		{Dev: "namespace0.1", Name: volume, Size: 1 << 20},
		{Dev: "namespace0.2", Name: "splitfs-lvm", Size: 1 << 20},
		{Dev: "namespace0.3", Name: "pmem-csi"}, // a seed that kept a name
	}}}}})
	if len(found) != 2 || found[0].Volume || found[0].Device != "/dev/pmem0" || !found[1].Volume ||
		found[1].Name != volume {
		t.Fatalf("%+v", found)
	}
	if text := found[1].String(); !strings.Contains(text, volume) ||
		!strings.Contains(text, "namespace0.1 of region0 (1 MiB)") {
		t.Error(text)
	}
}
