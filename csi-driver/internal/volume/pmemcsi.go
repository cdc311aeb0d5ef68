// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// pmemCSIParameter is a parameter that StorageClasses of pmem-csi.intel.com have. A class that is taken over says by it
// what it wants; what we give anyway is accepted and nothing else is passed over in silence.
type pmemCSIParameter struct {
	name string
	// accept says whether the value asks for what every volume has here.
	accept func(value string) bool
	advice string
	// ours is the parameter here that says the same, and is set in its place; nil: every volume is so.
	ours func(value string) (key, is string)
}

var pmemCSIParameters = []pmemCSIParameter{
	{"persistencyModel", func(v string) bool { return v == "normal" || v == "none" },
		`only "normal" is known here; for volumes that live as long as their pod use ` +
			`ephemeral.volumeClaimTemplate in the pod`, nil},
	{"eraseAfter", func(v string) bool { return isTrue(v) || isFalse(v) },
		`it is "true" or "false"; the parameter here is ` + keyErase + `: ` + string(EraseOverwrite) + ` or ` +
			string(EraseNone), eraseOf},
	{"kataContainers", isFalse,
		`volumes inside virtual machines of Kata Containers are not offered; set "false" or remove it`, nil},
	{"usage", func(v string) bool { return strings.EqualFold(v, "AppDirect") },
		`only "AppDirect" is known here; sector mode ("FileIO") has no DAX, use another driver for it`, nil},
	{"nsmode", func(v string) bool { return v == "fsdax" },
		`only "fsdax" is known here; sector mode has no DAX, use another driver for it`, nil},
}

func eraseOf(eraseAfter string) (key, is string) {
	if isTrue(eraseAfter) {
		return keyErase, string(EraseOverwrite)
	}
	return keyErase, string(EraseNone)
}

func isTrue(v string) bool {
	b, err := strconv.ParseBool(v)
	return err == nil && b
}

func isFalse(v string) bool {
	b, err := strconv.ParseBool(v)
	return err == nil && !b
}

// withoutPMEMCSI returns parameters without those of pmem-csi that ask for what every volume has, with ours in place of
// those that ask for something we offer under another name, and refuses all others.
func withoutPMEMCSI(in map[string]string) (map[string]string, error) {
	out := maps.Clone(in)
	for _, key := range slices.Sorted(maps.Keys(in)) {
		i := slices.IndexFunc(pmemCSIParameters, func(p pmemCSIParameter) bool { return strings.EqualFold(p.name, key) })
		if i < 0 {
			continue
		}
		p := pmemCSIParameters[i]
		if !p.accept(in[key]) {
			return nil, fmt.Errorf(
				"%w: StorageClass parameter %s is %q, which is of pmem-csi: %s; docs/migrate-pmem-csi.md has all of them",
				ErrInvalid, key, in[key], p.advice)
		}
		delete(out, key)
		if p.ours == nil {
			continue
		}
		name, is := p.ours(in[key])
		if said, ok := out[name]; ok && said != is {
			return nil, fmt.Errorf("%w: StorageClass parameters %s: %q and %s: %q contradict each other; remove one of them",
				ErrInvalid, key, in[key], name, said)
		}
		out[name] = is
	}
	return out, nil
}
