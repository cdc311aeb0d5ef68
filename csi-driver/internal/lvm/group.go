// SPDX-License-Identifier: Apache-2.0

package lvm

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/blank"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

const (
	// namespaceName is the name of the namespace that a region's volume group is on.
	namespaceName = "splitfs-lvm"
	// ownTag marks volume groups and logical volumes as this driver's.
	ownTag = "splitfs.io"
	// extentSize keeps every extent, and so every linear volume, at a multiple of 2 MiB.
	extentSize = nvdimm.HugePage
	// minGroup is the smallest namespace that is worth a volume group.
	minGroup = 64 << 20
	// signature of a physical volume, as wipefs names it.
	lvmMember = "LVM2_member"
	// unreadableGroup is what lvm calls the group of a physical volume whose metadata it cannot make out.
	unreadableGroup = "[unknown]"
)

// group is a volume group of ours.
type group struct {
	name, device string
	// region is where it is, kind what that is.
	region, kind string
	// set is the region's interleave set.
	set        nvdimm.InterleaveSet
	memory     volume.Memory
	size, free int64
	// less says why a volume that needs durable memory must not be here; nil when it may.
	less error
	// own: it is in a namespace that is this driver's by its name.
	own bool
}

// groupName names a volume group after the namespace that it is on, not after the region, whose name may change at a
// boot. So a group that an earlier namespace left in the same memory is never taken for this one's.
func groupName(ns nvdimm.Namespace) (string, error) {
	if len(ns.UUID) < 8 {
		return "", fmt.Errorf("namespace %s has no UUID", ns.Dev)
	}
	return "splitfs-" + ns.UUID[:8], nil
}

// unreadable is the error of a region that could not be looked at: volumes may be in it.
type unreadable struct {
	error
	// own: the namespace is this driver's by its name, so they most likely are.
	own bool
}

func (u unreadable) Unwrap() error { return u.error }

// groups returns the volume groups of ours. With create only regions count that the operator gives to the driver, and
// groups that are missing there are made. Without, all are looked at: an operator can take a region back, and what is
// there stays usable. Why a region has none to offer is in problems; unreadable are those that could not be looked at.
func (m *Manager) groups(ctx context.Context, create bool) (found []group, problems nvdimm.Problems, err error) {
	inventory, err := m.tool.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, region := range inventory.Regions() {
		selected := m.config.Regions.Selects(region)
		if create && !selected {
			continue
		}
		g, err := m.groupIn(ctx, region, selected, create)
		if err != nil {
			problems = append(problems, nvdimm.Problem{Region: region.Dev, Err: err})
		}
		if g != nil {
			found = append(found, *g)
		}
	}
	return found, problems, nil
}

// groupIn returns the volume group in a region, nil when there is none.
func (m *Manager) groupIn(ctx context.Context, region nvdimm.Region, selected, create bool) (*group, error) {
	if err := region.Unfit(); err != nil {
		return nil, err
	}
	ns, fresh, err := m.namespaceOf(ctx, region, selected, create)
	if err != nil || ns == nil {
		return nil, err
	}
	return m.groupOn(ctx, region, *ns, create, fresh)
}

// namespaceOf returns the namespace of a region that a volume group is on, or may be made on. A region with labels has
// one of ours, made from free space. One without labels is a single namespace that nobody can mark as ours: making it
// fsdax is the operator's.
func (m *Manager) namespaceOf(ctx context.Context, region nvdimm.Region,
	selected, create bool) (ns *nvdimm.Namespace, fresh bool, err error) {
	for _, candidate := range region.Used() {
		if region.Labeled() && candidate.Name != namespaceName {
			continue
		}
		if !candidate.Enabled() {
			if !region.Labeled() {
				if selected {
					err = unreadable{
						fmt.Errorf(
							"its namespace %s is disabled, so nothing says what is on it; enable it on the node: ndctl enable-namespace %s",
							candidate.Dev, candidate.Dev), false,
					}
				}
				continue // not known to be ours
			}
			if candidate, err = m.tool.Enable(ctx, candidate); err != nil {
				return nil, false, unreadable{err, true}
			}
		}
		// Memory that the kernel maps anyhow (memmap=) has the mode without a header, and then no UUID.
		if candidate.Mode == nvdimm.ModeFSDAX && (region.Labeled() || candidate.UUID != "") {
			return &candidate, false, nil
		}
		if !region.Labeled() {
			return nil, false, fmt.Errorf("it has no labels and its namespace %s has mode %q, UUID %q; if nobody needs what "+
				"is on it, make it usable on the node: ndctl create-namespace --force --reconfig=%s --mode=fsdax --align=2M",
				candidate.Dev, candidate.Mode, candidate.UUID, candidate.Dev)
		}
		// Enabled, and no info block of an fsdax namespace: making it was interrupted, before there could be a volume group.
		// Where that block cannot be read the kernel says the same.
		if candidate.BlockDev != "" {
			if err := readable("/dev/" + candidate.BlockDev); err != nil {
				return nil, false, unreadable{err, true}
			}
		}
		if !create {
			return nil, false, nil
		}
		if err := m.tool.Destroy(ctx, candidate); err != nil {
			return nil, false, err
		}
		break
	}
	if !create || !region.Labeled() {
		return nil, false, err
	}
	ns, err = m.makeNamespace(ctx, region)
	return ns, err == nil, err
}

// makeNamespace makes the namespace of a volume group out of what is free in a region.
func (m *Manager) makeNamespace(ctx context.Context, region nvdimm.Region) (*nvdimm.Namespace, error) {
	inventory, err := m.tool.List(ctx) // what was destroyed is free now
	if err != nil {
		return nil, err
	}
	for _, now := range inventory.Regions() {
		if now.Dev == region.Dev {
			region = now
		}
	}
	raw := min(region.LargestRoom(), region.Budget(m.config.Percent, m.config.Map))
	if raw < minGroup {
		return nil, fmt.Errorf(
			"it has no room for a volume group: %d MiB of %d are free in one piece, the driver's share is %d percent",
			int64(region.MaxAvailableExtent)>>20, int64(region.Size)>>20, m.config.Percent)
	}
	made, err := m.tool.Create(ctx, region, namespaceName, raw, m.config.Map)
	return &made, err
}

// groupOn returns the volume group on a namespace, nil when there is none.
func (m *Manager) groupOn(ctx context.Context, region nvdimm.Region, ns nvdimm.Namespace,
	create, fresh bool) (*group, error) {
	unreadableError := func(err error) error { return unreadable{err, region.Labeled()} }
	device, err := ns.Path()
	if err != nil {
		return nil, unreadableError(err)
	}
	name, err := groupName(ns)
	if err != nil {
		return nil, unreadableError(err)
	}
	// Of a device that it cannot read lvm says that nothing is on it.
	if err := readable(device); err != nil {
		return nil, unreadableError(err)
	}
	if fresh { // whatever shows here was left by a namespace that is gone
		if err := blank.Wipe(ctx, device); err != nil {
			return nil, err
		}
	}
	physical, _, err := list(ctx, []string{device}, "pvs", physicalFields)
	if err != nil {
		return nil, unreadableError(fmt.Errorf("look for a volume group on %s: %w", device, err))
	}
	for _, pv := range physical {
		if pv.Group == name && pv.GroupTags.has(ownTag) {
			if int64(pv.Start)%extentSize != 0 || int64(pv.ExtentSize)%extentSize != 0 {
				return nil, unreadableError(fmt.Errorf("volume group %s begins at byte %d with extents of %d bytes: "+
					"not multiples of 2 MiB, so huge pages would never be mapped", name, pv.Start, pv.ExtentSize))
			}
			return &group{
				name: name, device: device, region: region.Dev, set: region.ISetID, kind: region.Kind(),
				memory: region.Memory, less: region.Less(),
				size: int64(pv.Size), free: int64(pv.Free), own: region.Labeled(),
			}, nil
		}
		if pv.Group == unreadableGroup {
			return nil, unreadableError(
				fmt.Errorf("the metadata of the volume group on %s is damaged; see `vgck` and `vgcfgrestore`", device))
		}
		if pv.Group != "" {
			if !create {
				return nil, nil // so there is no volume of ours on it
			}
			return nil, fmt.Errorf("%s is in volume group %q, which is not this driver's", device, pv.Group)
		}
	}
	if !create {
		return nil, nil
	}
	if err := m.mayInitialize(ctx, region, device, len(physical) > 0); err != nil {
		return nil, err
	}
	if _, err := run(ctx, []string{device}, "vgcreate", assumeYes, "--alloc", "normal", "--setautoactivation", "n",
		"--dataalignment", bytesArg(extentSize), "--physicalextentsize", bytesArg(extentSize), addTag, ownTag,
		name, device); err != nil {
		return nil, fmt.Errorf("make volume group %s on %s: %w", name, device, err)
	}
	klog.FromContext(ctx).Info("Made a volume group", "volume-group", name, "device", device, "region", region.Dev)
	return m.groupOn(ctx, region, ns, false, false)
}

// readable reads where a volume group's metadata is, from the device and not from what the kernel remembers of it.
func readable(device string) error {
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look for a volume group: %w", err)
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, extentSize, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("look for a volume group on %s: %w", device, err)
	}
	if _, err := io.CopyN(io.Discard, f, extentSize); err != nil {
		return fmt.Errorf("look for a volume group on %s: %w", device, err)
	}
	return nil
}

// mayInitialize says whether a device may become a physical volume. With our own namespace name on it, one that is a
// physical volume of no group was begun by us and interrupted; anywhere else nothing but a blank device will do.
func (m *Manager) mayInitialize(ctx context.Context, region nvdimm.Region, device string, orphan bool) error {
	if !region.Labeled() {
		if err := blank.Check(ctx, device); err != nil {
			return fmt.Errorf("%w; if nobody needs that, remove it on the node: wipefs --all %s && blkdiscard --zeroout %s", err,
				device, device)
		}
		return nil
	}
	types, err := blank.Signatures(ctx, device)
	if err != nil {
		return err
	}
	for _, t := range types {
		if t != lvmMember || !orphan {
			return fmt.Errorf(
				"%s holds %s and no volume group of this driver; if nobody needs that, remove it on the node: wipefs --all %s",
				device, t, device)
		}
	}
	return nil
}

func bytesArg(n int64) string { return strconv.FormatInt(n, 10) + "b" }
