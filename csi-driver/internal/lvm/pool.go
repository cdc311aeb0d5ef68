// SPDX-License-Identifier: Apache-2.0

package lvm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// ThinPool is what makes a class thin: its volumes are in a pool of this name in each of its volume groups.
type ThinPool struct {
	Name string
	// Size is how large each pool is made, and grown to; 0: as large as there is room when it is made.
	Size int64
	// Overprovision is how many times what a pool holds its volumes may be promised together; at least 1.
	Overprovision float64
}

const (
	// poolTag marks thin pools as this driver's.
	poolTag = "splitfs.io.pool"
	// poolChunk is what a pool gives a volume at a time, and what is copied when a shared part is written to.
	poolChunk = 64 << 10
	// lvm's own bounds for a pool's metadata are 2 MiB and 15.8 GiB.
	minMetadata = 4 << 20
	maxMetadata = 15 << 30
	// whenFull is what lvm calls it that a write which finds no space is an error at once.
	whenFull = "error"
	// maxOverprovision is more than anybody can mean.
	maxOverprovision = 1000
)

// metadataFor is the size of a pool's metadata: twice what its chunks need, for snapshots have a map of their own.
func metadataFor(size int64) int64 {
	return min(max(roundUp((size+511)/512), minMetadata), maxMetadata)
}

// metadataCopies: lvm keeps as much free as the metadata takes, for its repair.
const metadataCopies = 2

func (p ThinPool) check() error {
	switch {
	case !className.MatchString(p.Name) || volume.ValidID(p.Name) || strings.HasPrefix(p.Name, "snapshot") ||
		strings.HasPrefix(p.Name, "pvmove") || strings.HasPrefix(p.Name, snapshotPrefix):
		return fmt.Errorf("thin pool %q: a name is made of up to 63 small letters, digits and dashes, and does not begin "+
			"with snapshot, pvmove or %s", p.Name, snapshotPrefix)
	case p.Size < 0:
		return fmt.Errorf("thin pool %q cannot have %d bytes", p.Name, p.Size)
	case !(p.Overprovision >= 1 && p.Overprovision <= maxOverprovision): // NaN is neither
		return fmt.Errorf("thin pool %q: the overprovision ratio is %v; it is at least 1 and at most %d", p.Name,
			p.Overprovision, maxOverprovision)
	}
	return nil
}

// pool is a thin pool of ours.
type pool struct {
	logicalVolume
	group group
	// class is nil when none is defined for it any more.
	class *Class
	// virtual is what its volumes may take together.
	virtual int64
}

// room is what can still be promised in the pool: nothing as soon as it is nearly full.
func (p pool) room() int64 {
	if p.class == nil || p.report().Refuses() != nil {
		return 0
	}
	return max(0, p.limit()-p.virtual) / extentSize * extentSize
}

// limit is what can be promised in all.
func (p pool) limit() int64 { return int64(float64(p.Size) * p.class.Thin.Overprovision) }

func (p pool) report() device.Pool {
	r := device.Pool{
		Name: p.Name, Region: p.group.region, Data: int64(p.Size), DataUsed: p.Data.of(int64(p.Size)), Virtual: p.virtual,
		Metadata: int64(p.MetadataSize), MetadataUsed: p.Metadata.of(int64(p.MetadataSize)), Failure: p.Health,
	}
	if p.class != nil {
		r.Class = p.class.Name
	}
	return r
}

// poolsOf returns the pools of a volume group, by what lvm lists there.
func (m *Manager) poolsOf(g group, logical []logicalVolume) []pool {
	var pools []pool
	for _, lv := range logical {
		if lv.Group != g.name || !lv.Tags.has(poolTag) {
			continue
		}
		p := pool{logicalVolume: lv, group: g, class: m.classOfPool(lv.Name, g)}
		for _, thin := range logical {
			if thin.Pool == lv.Name {
				p.virtual += int64(thin.Size)
			}
		}
		for _, r := range m.copied {
			if r.lv.Group == g.name && r.lv.Pool == lv.Name {
				p.virtual += r.size
			}
		}
		pools = append(pools, p)
	}
	return pools
}

func (m *Manager) classOfPool(name string, g group) *Class {
	for i := range m.config.Classes {
		c := &m.config.Classes[i]
		if c.Thin != nil && c.Thin.Name == name && c.selects(g) {
			return c
		}
	}
	return nil
}

// pools returns the thin pools in these groups, and why some could not be looked at.
func (m *Manager) pools(ctx context.Context, groups []group) (pools []pool, problems nvdimm.Problems) {
	for _, g := range groups {
		_, logical, err := list(ctx, []string{g.device}, lvList, logicalFields, g.name)
		if err != nil {
			problems = append(problems, nvdimm.Problem{
				Region: g.region, Err: fmt.Errorf("list the logical volumes of %s: %w", g.name, err),
			})
			continue
		}
		pools = append(pools, m.poolsOf(g, logical)...)
	}
	return pools, problems
}

// ensurePools makes the thin pools that the classes have in a group, and brings them to their size. What a pool takes
// the group has no more.
func (m *Manager) ensurePools(ctx context.Context, g *group) error {
	var errs []error
	for i := range m.config.Classes {
		c := &m.config.Classes[i]
		if c.Thin == nil || !c.selects(*g) {
			continue
		}
		if err := ensurePool(ctx, g, c); err != nil {
			errs = append(errs, fmt.Errorf("thin pool %s of device class %s: %w", c.Thin.Name, c.Name, err))
		}
	}
	return errors.Join(errs...)
}

func ensurePool(ctx context.Context, g *group, c *Class) error {
	devices := []string{g.device}
	_, logical, err := list(ctx, devices, lvList, logicalFields, g.name)
	if err != nil {
		return err
	}
	for _, lv := range logical {
		if lv.Name != c.Thin.Name {
			continue
		}
		if !lv.Tags.has(poolTag) {
			return fmt.Errorf("a logical volume %s/%s is there that is no pool of this driver's", g.name, lv.Name)
		}
		if lv.Minor < 0 { // how full it is can be seen only when it is active
			if _, err := run(ctx, devices, "lvchange", assumeYes, "--activate", "y", g.name+"/"+lv.Name); err != nil {
				return fmt.Errorf("activate it: %w", err)
			}
		}
		if lv.WhenFull != "" && lv.WhenFull != whenFull {
			if _, err := run(ctx, devices, "lvchange", assumeYes, "--errorwhenfull", "y", g.name+"/"+lv.Name); err != nil {
				return fmt.Errorf("have it fail writes that find no space: %w", err)
			}
		}
		if int64(lv.Size) >= roundUp(c.Thin.Size) {
			return nil
		}
		return growPool(ctx, g, c, lv)
	}
	return makePool(ctx, g, c)
}

func makePool(ctx context.Context, g *group, c *Class) error {
	size := roundUp(c.Thin.Size)
	metadata := metadataFor(size)
	if size == 0 {
		free := max(0, g.free-c.Spare)
		metadata = metadataFor(free)
		size = max(0, free-metadataCopies*metadata) / extentSize * extentSize
	}
	if needed := size + metadataCopies*metadata; size < minGroup || needed > g.free-c.Spare {
		return fmt.Errorf("%w in volume group %s: it needs %d MiB with its metadata, %d MiB are free, %d MiB of it spared",
			volume.ErrExhausted, g.name, max(needed, minGroup)/volume.MiB, g.free/volume.MiB, c.Spare/volume.MiB)
	}
	if _, err := run(ctx, []string{g.device}, makePoolArgs(g.name, c.Thin.Name, size, metadata)...); err != nil {
		return fmt.Errorf("make it in %s: %w", g.name, err)
	}
	klog.FromContext(ctx).Info("Made a thin pool", "volume-group", g.name, "pool", c.Thin.Name, "size", size,
		"metadata", metadata)
	return refresh(ctx, g)
}

// makePoolArgs: what a volume has not written it reads as zeros, whoever had the memory before.
func makePoolArgs(group, name string, size, metadata int64) []string {
	return []string{lvCreate, assumeYes, "--type", "thin-pool", sizeIs, bytesArg(size),
		"--poolmetadatasize", bytesArg(metadata), "--poolmetadataspare", "y", "--chunksize", bytesArg(poolChunk),
		"--zero", "y", addTag, poolTag, nameIs, name, group}
}

// growPool: the metadata first, because more data needs more of it.
func growPool(ctx context.Context, g *group, c *Class, lv logicalVolume) error {
	size := roundUp(c.Thin.Size)
	metadata := metadataFor(size)
	more := max(0, metadata-int64(lv.MetadataSize))
	if needed := size - int64(lv.Size) + metadataCopies*more; needed > g.free-c.Spare {
		return fmt.Errorf("%w in volume group %s: to grow from %d to %d MiB it needs %d MiB, %d MiB are free, %d MiB of it "+
			"spared", volume.ErrExhausted, g.name, int64(lv.Size)/volume.MiB, size/volume.MiB, needed/volume.MiB,
			g.free/volume.MiB, c.Spare/volume.MiB)
	}
	path := g.name + "/" + lv.Name
	if more > 0 {
		if _, err := run(ctx, []string{g.device}, "lvextend", assumeYes, "--poolmetadatasize", "+"+bytesArg(more),
			path); err != nil {
			return fmt.Errorf("grow its metadata: %w", err)
		}
	}
	if _, err := run(ctx, []string{g.device}, "lvextend", assumeYes, sizeIs, bytesArg(size), path); err != nil {
		return fmt.Errorf("grow it: %w", err)
	}
	klog.FromContext(ctx).Info("Grew a thin pool", "volume-group", g.name, "pool", lv.Name, "size", size)
	return refresh(ctx, g)
}

// refresh looks again how much of a group is free.
func refresh(ctx context.Context, g *group) error {
	physical, _, err := list(ctx, []string{g.device}, "pvs", physicalFields)
	if err != nil {
		return err
	}
	for _, pv := range physical {
		if pv.Group == g.name {
			g.free = int64(pv.Free)
		}
	}
	return nil
}
