// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"strings"
	"testing"

	"splitfs.io/splitfs/internal/contract"
)

// TestPMEMCSIParameters: classes of pmem-csi are read; what cannot be given is refused with advice, never passed over.
func TestPMEMCSIParameters(t *testing.T) {
	for _, in := range []map[string]string{
		{"persistencyModel": "normal", "eraseAfter": "false", "kataContainers": "false", "usage": "AppDirect",
			"mode": "strict"},
		{"persistencyModel": "none", "eraseafter": "0", "nsmode": "fsdax", "mode": "strict"},
	} {
		before := len(in)
		p, err := ParseParams(in)
		if err != nil || p.Mode != contract.Strict || len(in) != before {
			t.Errorf("%v: %+v, %v", in, p, err)
		}
		for key := range p.Attributes() {
			if _, foreign := map[string]bool{"persistencyModel": true, "eraseafter": true, "eraseAfter": true}[key]; foreign {
				t.Errorf("%s is an attribute", key)
			}
		}
	}
	for key, values := range map[string][]string{
		"persistencyModel": {"cache", "ephemeral", ""}, "eraseafter": {"maybe", ""}, "kataContainers": {"true"},
		"usage": {"FileIO", ""}, "nsmode": {"sector"},
	} {
		for _, value := range values {
			_, err := ParseParams(map[string]string{key: value})
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "pmem-csi") || !strings.Contains(err.Error(), key) {
				t.Errorf("%s: %q: %v", key, value, err)
			}
		}
	}
	for value, want := range map[string]Erase{"true": EraseOverwrite, "1": EraseOverwrite, "false": EraseNone} {
		for _, more := range []map[string]string{{}, {"erase": string(want)}} {
			more["eraseafter"] = value
			if p, err := ParseParams(more); err != nil || p.Erase != want {
				t.Errorf("%v: %+v, %v", more, p, err)
			}
		}
		contradiction := map[string]string{"eraseAfter": value, "erase": string(EraseDiscard)}
		if _, err := ParseParams(contradiction); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "contradict") {
			t.Errorf("%v: %v", contradiction, err)
		}
	}
	if _, err := ParseParams(map[string]string{"persistency": "normal"}); err == nil {
		t.Error("an unknown key was accepted")
	}
}
