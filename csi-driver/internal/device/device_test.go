// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

type plain struct{ Manager }

func (plain) Name() string { return "plain" }

type choosy struct{ Manager }

func (choosy) Name() string         { return "choosy" }
func (choosy) OnlyDurable() Manager { return plain{} }

// TestGetFor: a volume that needs durable memory gets the manager's durable side, or none.
func TestGetFor(t *testing.T) {
	managers := NewManagers(plain{}, choosy{})
	if m, err := managers.GetFor("choosy", volume.DurabilityRequired); err != nil || m.Name() != "plain" {
		t.Errorf("%v, %v", m, err)
	}
	for _, durability := range []volume.Durability{volume.DurabilityAny, ""} {
		if m, err := managers.GetFor("choosy", durability); err != nil || m.Name() != "choosy" {
			t.Errorf("%q: %v, %v", durability, m, err)
		}
	}
	for _, name := range []string{"plain", "none"} {
		if _, err := managers.GetFor(name, volume.DurabilityRequired); !errors.Is(err, volume.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
