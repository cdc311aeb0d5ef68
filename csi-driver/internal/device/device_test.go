// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"strings"
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
	if m, err := managers.GetFor("choosy", "", volume.DurabilityRequired); err != nil || m.Name() != "plain" {
		t.Errorf("%v, %v", m, err)
	}
	for _, durability := range []volume.Durability{volume.DurabilityAny, ""} {
		if m, err := managers.GetFor("choosy", "", durability); err != nil || m.Name() != "choosy" {
			t.Errorf("%q: %v, %v", durability, m, err)
		}
	}
	for _, name := range []string{"plain", "none"} {
		if _, err := managers.GetFor(name, "", volume.DurabilityRequired); !errors.Is(err, volume.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// classy has the class "fast", which is the default.
type classy struct{ Manager }

func (classy) Name() string { return "classy" }
func (m classy) OfClass(class string) (Manager, string, error) {
	if class == "" || class == "fast" {
		return choosy{}, "fast", nil
	}
	return nil, "", NoClass("classy", class, []string{"fast"})
}
func (classy) Classes(context.Context) ([]Class, error) {
	return []Class{{Name: "fast", Default: true}}, nil
}

// TestClassOf: a class that is not defined is an error which says what is, and durability is looked at in the class.
func TestClassOf(t *testing.T) {
	managers := NewManagers(plain{}, classy{})
	for _, class := range []string{"", "fast"} {
		if got, err := managers.ClassOf("classy", class); got != "fast" || err != nil {
			t.Errorf("%q: %q, %v", class, got, err)
		}
		if m, err := managers.GetFor("classy", class, volume.DurabilityRequired); err != nil || m.Name() != "plain" {
			t.Errorf("%q: %v, %v", class, m, err)
		}
	}
	for name, words := range map[string]string{"classy": "it offers: fast", "plain": "have no classes"} {
		_, err := managers.GetFor(name, "slow", "")
		if !errors.Is(err, ErrNoClass) || !errors.Is(err, volume.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := managers.ClassOf("plain", ""); got != "" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
