// SPDX-License-Identifier: Apache-2.0

// Package device says what the driver needs of whatever provides block devices on a node. The emulated manager (backing
// files on loop devices) is one implementation; LVM and fsdax namespaces fit behind the same methods.
package device

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Manager makes and keeps the block devices of one kind on this node. All methods are idempotent, because each of them
// may have been interrupted by a crash and is then called again. Calls for one ID never run at the same time; calls for
// different IDs do.
type Manager interface {
	// Name is the value of the StorageClass parameter "device".
	Name() string
	// Emulated says that the devices are not persistent memory; every place that shows such a volume says so too.
	Emulated() bool
	// Check says whether devices can be made and attached now.
	Check(ctx context.Context) error
	// Available returns how many bytes of devices can still be made.
	Available(ctx context.Context) (int64, error)
	// Create makes a device of at least size bytes, all of which are really there. volume.ErrExhausted when they are not.
	Create(ctx context.Context, id string, size int64) error
	// Grow makes a device larger, also while it is attached and in use. A device that is larger already is left alone.
	Grow(ctx context.Context, id string, size int64) error
	// Attach makes the device usable and returns the path of its node.
	Attach(ctx context.Context, id string) (string, error)
	// Detach undoes Attach.
	Detach(ctx context.Context, id string) error
	// Delete detaches the device and gives its space back. That there is none is no error, that it cannot be known is one:
	// who is told that a volume is deleted never asks again.
	Delete(ctx context.Context, id string) error
}

// Placed is what a Manager implements whose devices are each in one part of what it has, and stay there.
type Placed interface {
	// Growable returns how many bytes more a device can have where it is.
	Growable(ctx context.Context, id string) (int64, error)
}

// Durable is what a Manager implements whose devices may be made of memory that is not durable.
type Durable interface {
	// OnlyDurable returns the manager as it is for volumes that need durable memory: others are not made, and nothing else
	// is available.
	OnlyDurable() Manager
}

// Region is a part of what a manager's devices are made of.
type Region struct {
	Name string
	// Type says what it is, in one word: "directory", "pmem", "cxl".
	Type string
	// Memory is what the platform and the administrator say of it.
	Memory volume.Memory
	// Capacity is what it can hold, Available what can still be given to devices.
	Capacity, Available int64
}

// Inventory is what a Manager implements that can say what its capacity is made of.
type Inventory interface {
	Regions(ctx context.Context) ([]Region, error)
}

// Managers are the managers of a node, by name.
type Managers map[string]Manager

// NewManagers collects managers.
func NewManagers(list ...Manager) Managers {
	m := Managers{}
	for _, manager := range list {
		m[manager.Name()] = manager
	}
	return m
}

// Get returns the manager for the StorageClass parameter "device".
func (m Managers) Get(name string) (Manager, error) {
	if manager, ok := m[name]; ok {
		return manager, nil
	}
	return nil, m.noSuch(name)
}

// GetFor is Get for new volumes of this class and durability.
func (m Managers) GetFor(name, class string, durability volume.Durability) (Manager, error) {
	manager, err := m.Get(name)
	if err != nil {
		return nil, err
	}
	if manager, class, err = ofClass(manager, class); err != nil || !durability.Required() {
		return manager, err
	}
	if IsThin(manager) {
		return nil, fmt.Errorf("%w: the claim's StorageClass wants durable memory mapped directly (DAX), and its device "+
			"class %q is thin: device mapper's thin volumes have no direct access. Name a class that is not thin, or set "+
			"durability to any", volume.ErrInvalid, class)
	}
	durable, ok := manager.(Durable)
	if !ok {
		return nil, fmt.Errorf("%w: the claim's class asks for durable memory, and %q devices are none", volume.ErrInvalid,
			name)
	}
	return durable.OnlyDurable(), nil
}

func (m Managers) noSuch(name string) error {
	names := slices.Sorted(maps.Keys(m))
	return fmt.Errorf("%w: this node offers no %q devices; it offers: %s", volume.ErrInvalid, name,
		strings.Join(names, ", "))
}
