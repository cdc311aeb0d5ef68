// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"testing"

	"splitfs.io/splitfs/internal/contract"
)

// TestDurability: what a class that does not say it asks for, and what cannot be asked for.
func TestDurability(t *testing.T) {
	for _, c := range []struct {
		mode, device, says string
		want               Durability
	}{
		{"strict", "lvm", "", DurabilityRequired},
		{"sync", "namespace", "", DurabilityRequired},
		{"posix", "lvm", "", DurabilityAny},
		{"strict", "emulated", "", DurabilityAny},
		{"strict", "lvm", "any", DurabilityAny},
		{"posix", "namespace", "required", DurabilityRequired},
		{"strict", "emulated", "any", DurabilityAny},
		{"strict", "emulated", "required", ""},
		{"strict", "lvm", "maybe", ""},
		{"strict", "lvm", "Required", ""},
	} {
		in := map[string]string{contract.ParameterMode: c.mode, keyDevice: c.device}
		if c.says != "" {
			in[keyDurability] = c.says
		}
		p, err := ParseParams(in)
		if c.want == "" {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v was accepted: %v", in, err)
			}
			continue
		}
		if err != nil || p.WantedDurability() != c.want {
			t.Errorf("%v: %q, %v; wanted %q", in, p.WantedDurability(), err, c.want)
		}
	}
	// A VolumeAttributesClass changes the mode, and with it what the class leaves open.
	posix := Params{Mode: contract.Posix, Device: DeviceLVM}
	if d := posix.With(Changes{Mode: contract.Strict}).WantedDurability(); d != DurabilityRequired {
		t.Errorf("strict by a VolumeAttributesClass wants %q", d)
	}
	if r := (Record{}); r.Durability.Required() || r.Durability.OrAny() != DurabilityAny {
		t.Error("a volume of an earlier driver needs durable memory")
	}
}

func TestMemory(t *testing.T) {
	for memory, want := range map[Memory]bool{
		MemoryEADR: true, MemoryADR: true, MemoryGPF: true,
		MemoryUnstated: false, MemoryVirtio: false, MemoryVolatile: false, MemoryEmulated: false, "": false,
		"unheard of": false,
	} {
		if memory.Durable() != want {
			t.Errorf("%q is durable: %t", memory, !want)
		}
	}
	if Stronger(MemoryADR, MemoryVolatile) != MemoryADR || Stronger("", MemoryVirtio) != MemoryVirtio ||
		Stronger(MemoryGPF, MemoryEADR) != MemoryEADR {
		t.Error("the stronger of two kinds is the other one")
	}
}
