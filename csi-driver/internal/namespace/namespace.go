// SPDX-License-Identifier: Apache-2.0

// Package namespace provides devices that are fsdax namespaces: each volume has one of its own, named by the volume's
// ID, and nothing lies between it and the persistent memory. Namespaces are contiguous and do not grow.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Config says where namespaces may be made.
type Config struct {
	Regions nvdimm.Selector
	// Percent is the most of each region that the driver takes.
	Percent int
	Map     nvdimm.Map
	// OnProblem is told when a selected region cannot be used.
	OnProblem func(ctx context.Context, message string)
}

// Manager is a device.Manager.
type Manager struct {
	config Config
	tool   *nvdimm.Tool
	// mu makes "is there room" and "take it" one step.
	mu       sync.Mutex
	reporter nvdimm.ProblemReporter
}

var (
	_ device.Manager   = (*Manager)(nil)
	_ device.Lister    = (*Manager)(nil)
	_ device.Inventory = (*Manager)(nil)
	_ device.Durable   = (*Manager)(nil)
)

// New returns a manager.
func New(config Config, tool *nvdimm.Tool) (*Manager, error) {
	if config.Regions.Empty() {
		return nil, errors.New("volumes on namespaces need at least one region that the driver may use; set --regions")
	}
	if err := nvdimm.CheckPercent(config.Percent); err != nil {
		return nil, err
	}
	return &Manager{config: config, tool: tool, reporter: nvdimm.ProblemReporter{OnProblem: config.OnProblem}}, nil
}

// Name implements device.Manager.
func (m *Manager) Name() string { return volume.DeviceNamespace }

// Emulated implements device.Manager.
func (m *Manager) Emulated() bool { return false }

// Check implements device.Manager. A region that cannot be used makes the node smaller, not unusable.
func (m *Manager) Check(ctx context.Context) error {
	_, err := m.list(ctx)
	return err
}

// list returns the node's memory, and tells what of the selected cannot be used.
func (m *Manager) list(ctx context.Context) (nvdimm.Inventory, error) {
	inventory, err := m.tool.List(ctx)
	if err != nil {
		return nil, err
	}
	m.reporter.Report(ctx, m.Name(), m.problems(inventory))
	return inventory, nil
}

// problems are those of the selected regions.
func (m *Manager) problems(inventory nvdimm.Inventory) nvdimm.Problems {
	var problems nvdimm.Problems
	for _, region := range m.config.Regions.Of(inventory) {
		if err := unusable(region); err != nil {
			problems = append(problems, nvdimm.Problem{Region: region.Dev, Err: err})
		}
	}
	return problems
}

// unusable says why no namespace can be made in a region, however much of it is free.
func unusable(region nvdimm.Region) error {
	if err := region.Unfit(); err != nil {
		return err
	}
	if !region.Labeled() {
		return fmt.Errorf("it has no labels, so it is one namespace that cannot be divided; make labels on the node, as "+
			"docs/devices.md says, or use it for %s", volume.DeviceLVM)
	}
	return nil
}

// OnlyDurable implements device.Durable.
func (m *Manager) OnlyDurable() device.Manager { return durable{m} }

// durable is a Manager that makes namespaces in durable memory only.
type durable struct{ *Manager }

// Available implements device.Manager.
func (d durable) Available(ctx context.Context) (int64, error) {
	return d.available(ctx, volume.DurabilityRequired)
}

// Create implements device.Manager.
func (d durable) Create(ctx context.Context, id string, size int64) error {
	return d.create(ctx, id, size, volume.DurabilityRequired)
}

// Available implements device.Manager. A namespace is contiguous: what counts is the largest extent.
func (m *Manager) Available(ctx context.Context) (int64, error) {
	return m.available(ctx, volume.DurabilityAny)
}

func (m *Manager) available(ctx context.Context, durability volume.Durability) (int64, error) {
	inventory, err := m.list(ctx)
	if err != nil {
		return 0, err
	}
	var largest int64
	for _, region := range m.config.Regions.Of(inventory) {
		largest = max(largest, nvdimm.UsableSize(m.room(region, durability), m.config.Map))
	}
	return largest, nil
}

// room is how large a namespace can be that is made in the region now for a volume of this durability, as it is counted
// there.
func (m *Manager) room(region nvdimm.Region, durability volume.Durability) int64 {
	if unusable(region) != nil || durability.Required() && region.Less() != nil {
		return 0
	}
	return min(region.LargestRoom(), region.Budget(m.config.Percent, m.config.Map))
}

// choose returns the region whose room a new namespace of size bytes leaves least of, so that large ones still fit
// elsewhere.
func (m *Manager) choose(inventory nvdimm.Inventory, size int64,
	durability volume.Durability) (region nvdimm.Region, raw int64, err error) {
	best := int64(-1)
	var largest int64
	for _, candidate := range m.config.Regions.Of(inventory) {
		room := m.room(candidate, durability)
		largest = max(largest, nvdimm.UsableSize(room, m.config.Map))
		need := nvdimm.RawSize(size, m.config.Map, candidate.Step())
		if left := room - need; left >= 0 && (best < 0 || left < best) {
			best, region, raw = left, candidate, need
		}
	}
	if best < 0 {
		err := fmt.Errorf(
			"%w in the regions of this node: a namespace of %d MiB is needed, the largest that can be made has %d MiB",
			volume.ErrExhausted, size/volume.MiB, largest/volume.MiB)
		unfit := m.problems(inventory)
		if durability.Required() {
			unfit = append(unfit, nvdimm.LessDurable(m.config.Regions.Of(inventory))...)
		}
		if unused := unfit.Err(); unused != nil {
			err = fmt.Errorf("%w; not usable: %w", err, unused)
		}
		return region, 0, err
	}
	return region, raw, nil
}

// Create implements device.Manager.
func (m *Manager) Create(ctx context.Context, id string, size int64) error {
	return m.create(ctx, id, size, volume.DurabilityAny)
}

func (m *Manager) create(ctx context.Context, id string, size int64, durability volume.Durability) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	inventory, ns, err := m.find(ctx, id)
	if err != nil {
		return err
	}
	if ns != nil {
		if ns.Mode == nvdimm.ModeFSDAX {
			if int64(ns.Size) < size {
				return fmt.Errorf("namespace %s (%q) %w: it has %d bytes, %d are needed", ns.Dev, id, volume.ErrExists, ns.Size,
					size)
			}
			return nil
		}
		// It is enabled and shows no info block of an fsdax namespace: making it was interrupted, and nobody ever had it.
		if err := m.tool.Destroy(ctx, ns.Namespace); err != nil {
			return err
		}
		if inventory, err = m.tool.List(ctx); err != nil {
			return err
		}
	}
	region, raw, err := m.choose(inventory, size, durability)
	if err != nil {
		return err
	}
	made, err := m.tool.Create(ctx, region, id, raw, m.config.Map)
	if err != nil {
		return err
	}
	if int64(made.Size) < size {
		return errors.Join(
			fmt.Errorf("namespace %s (%q) has %d bytes, %d are needed: this kernel keeps more for itself than expected; set "+
				"the page map to %q",
				made.Dev, id, made.Size, size, nvdimm.MapMem), m.tool.Destroy(ctx, made))
	}
	return nil
}

// find returns the volume's namespace, enabled, or nil when there is none.
func (m *Manager) find(ctx context.Context, id string) (nvdimm.Inventory, *nvdimm.Named, error) {
	inventory, err := m.tool.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	ns, err := inventory.Find(id)
	if err != nil || ns == nil || ns.Enabled() {
		return inventory, ns, err
	}
	if ns.Namespace, err = m.tool.Enable(ctx, ns.Namespace); err != nil {
		return nil, nil, err
	}
	return inventory, ns, nil
}

// Grow implements device.Manager: what follows a namespace in its region belongs to others.
func (m *Manager) Grow(ctx context.Context, id string, size int64) error {
	_, ns, err := m.find(ctx, id)
	if err != nil {
		return err
	}
	if ns == nil {
		return fmt.Errorf("the namespace of volume %s: %w", id, volume.ErrNotFound)
	}
	if int64(ns.Size) >= size {
		return nil
	}
	return fmt.Errorf("%w: volume %s is a namespace of %d MiB, and namespaces do not grow; make a larger claim and copy "+
		"the data, or use a StorageClass with device: %s",
		volume.ErrPrecondition, id, int64(ns.Size)/volume.MiB, volume.DeviceLVM)
}

// Attach implements device.Manager.
func (m *Manager) Attach(ctx context.Context, id string) (string, error) {
	_, ns, err := m.find(ctx, id)
	if err != nil {
		return "", err
	}
	if ns == nil {
		return "", fmt.Errorf("the namespace of volume %s: %w", id, volume.ErrNotFound)
	}
	return ns.Path()
}

// Detach implements device.Manager. A namespace stays enabled: disabling it would gain nothing.
func (m *Manager) Detach(context.Context, string) error { return nil }

// Delete implements device.Manager. ndctl refuses to destroy what is in use.
func (m *Manager) Delete(ctx context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ns, err := m.find(ctx, id)
	if err != nil || ns == nil {
		return err
	}
	return m.tool.Destroy(ctx, ns.Namespace)
}

// List implements device.Lister. Namespaces are not attached and detached.
func (m *Manager) List(ctx context.Context) ([]device.Found, error) {
	inventory, err := m.tool.List(ctx)
	if err != nil {
		return nil, err
	}
	var found []device.Found
	for region, ns := range inventory.Used() {
		if volume.ValidID(ns.Name) || volume.ValidSnapshotID(ns.Name) {
			found = append(found, device.Found{ID: ns.Name, Where: ns.Dev + " in " + region.Dev})
		}
	}
	return found, nil
}

// Regions implements device.Inventory.
func (m *Manager) Regions(ctx context.Context) ([]device.Region, error) {
	inventory, err := m.tool.List(ctx)
	if err != nil {
		return nil, err
	}
	var regions []device.Region
	for _, region := range m.config.Regions.Of(inventory) {
		regions = append(regions, device.Region{
			Name: region.Dev, Type: region.Kind(), Memory: region.Memory, Capacity: region.Share(m.config.Percent),
			Available: nvdimm.UsableSize(m.room(region, volume.DurabilityAny), m.config.Map),
		})
	}
	return regions, nil
}
