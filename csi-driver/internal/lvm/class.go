// SPDX-License-Identifier: Apache-2.0

package lvm

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Class is a part of the volume groups to which the operator has given a name, for StorageClasses to ask for.
type Class struct {
	Name string
	// Regions are those whose volume groups it has; none: all that the driver is given.
	Regions nvdimm.Selector
	// Spare is what its volumes leave free in each of these groups.
	Spare int64
	// Default: it is for volumes that name no class.
	Default bool
	// Thin: its volumes are in thin pools; nil: they are linear.
	Thin *ThinPool
}

var className = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func checkClasses(classes []Class) error {
	known, pools := map[string]bool{}, map[string]bool{}
	defaults := 0
	for _, c := range classes {
		if !className.MatchString(c.Name) {
			return fmt.Errorf("device class %q: a name is made of up to 63 small letters, digits and dashes", c.Name)
		}
		if known[c.Name] {
			return fmt.Errorf("device class %q is defined twice", c.Name)
		}
		known[c.Name] = true
		if c.Spare < 0 {
			return fmt.Errorf("device class %q cannot spare %d bytes", c.Name, c.Spare)
		}
		if c.Default {
			defaults++
		}
		if c.Thin == nil {
			continue
		}
		if err := c.Thin.check(); err != nil {
			return fmt.Errorf("device class %q: %w", c.Name, err)
		}
		if pools[c.Thin.Name] {
			return fmt.Errorf("thin pool %q is that of two device classes", c.Thin.Name)
		}
		pools[c.Thin.Name] = true
	}
	if defaults > 1 {
		return errors.New("only one device class can be the default")
	}
	return nil
}

func (c Class) selects(g group) bool {
	return c.Regions.Empty() || c.Regions.Selects(nvdimm.Region{Dev: g.region, ISetID: g.set})
}

// where says in an error which volume groups were looked at.
func (w wanted) where() string {
	if w.class == nil {
		return "of this node"
	}
	where := fmt.Sprintf("that device class %q has on this node", w.class.Name)
	if w.class.Spare > 0 {
		where += fmt.Sprintf(" (%d MiB stay free in each)", w.class.Spare/volume.MiB)
	}
	return where
}

// OfClass implements device.Classed.
func (m *Manager) OfClass(class string) (device.Manager, string, error) {
	if class == "" && len(m.config.Classes) == 0 {
		return m, "", nil
	}
	var names []string
	for _, c := range m.config.Classes {
		if c.Name == class || class == "" && c.Default {
			if c.Thin != nil {
				return thinView{m, &c}, c.Name, nil
			}
			return view{m, wanted{class: &c}}, c.Name, nil
		}
		names = append(names, c.Name)
	}
	return nil, "", device.NoClass(m.Name(), class, names)
}

// Classes implements device.Classed.
func (m *Manager) Classes(ctx context.Context) ([]device.Class, error) {
	if len(m.config.Classes) == 0 {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	groups, err := m.groupsToFill(ctx)
	if err != nil {
		return nil, err
	}
	pools, problems := m.pools(ctx, groups)
	classes := make([]device.Class, 0, len(m.config.Classes))
	for _, c := range m.config.Classes {
		if c.Thin != nil {
			classes = append(classes, thinClass(c, pools))
			continue
		}
		fit, _ := fitting(groups, wanted{class: &c})
		class := device.Class{Name: c.Name, Default: c.Default, Available: roomiest(fit).free}
		for _, g := range fit {
			class.Capacity += max(0, g.size-c.Spare)
		}
		classes = append(classes, class)
	}
	return classes, problems.Err()
}

func thinClass(c Class, pools []pool) device.Class {
	class := device.Class{Name: c.Name, Default: c.Default, Thin: true}
	for _, p := range pools {
		if p.class != nil && p.class.Name == c.Name {
			class.Available = max(class.Available, p.room())
			class.Capacity += p.limit()
		}
	}
	return class
}
