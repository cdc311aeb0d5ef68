// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// pmemCSIParameter is a parameter that StorageClasses of pmem-csi.intel.com have. A class that is taken over says by it what it
// wants; what we give anyway is accepted and nothing else is passed over in silence.
type pmemCSIParameter struct {
	name string
	// accept says whether the value asks for what every volume has here.
	accept func(value string) bool
	advice string
}

var pmemCSIParameters = []pmemCSIParameter{
	{"persistencyModel", func(v string) bool { return v == "normal" || v == "none" },
		`only "normal" is known here; for volumes that live as long as their pod use ephemeral.volumeClaimTemplate in the pod`},
	{"eraseAfter", isFalse,
		`a volume's bytes are not overwritten here when it is deleted; set "false" or remove it`},
	{"kataContainers", isFalse, `volumes inside virtual machines of Kata Containers are not offered; set "false" or remove it`},
	{"usage", func(v string) bool { return strings.EqualFold(v, "AppDirect") },
		`only "AppDirect" is known here; sector mode ("FileIO") has no DAX, use another driver for it`},
	{"nsmode", func(v string) bool { return v == "fsdax" }, `only "fsdax" is known here; sector mode has no DAX, use another driver for it`},
}

func isFalse(v string) bool {
	b, err := strconv.ParseBool(v)
	return err == nil && !b
}

// withoutPMEMCSI returns parameters without those of pmem-csi that ask for nothing special, and refuses those that do.
func withoutPMEMCSI(in map[string]string) (map[string]string, error) {
	out := maps.Clone(in)
	for _, key := range slices.Sorted(maps.Keys(in)) {
		i := slices.IndexFunc(pmemCSIParameters, func(p pmemCSIParameter) bool { return strings.EqualFold(p.name, key) })
		if i < 0 {
			continue
		}
		if p := pmemCSIParameters[i]; !p.accept(in[key]) {
			return nil, fmt.Errorf("%w: StorageClass parameter %s is %q, which is of pmem-csi: %s; docs/migrate-pmem-csi.md has all of them", ErrInvalid, key, in[key], p.advice)
		}
		delete(out, key)
	}
	return out, nil
}
