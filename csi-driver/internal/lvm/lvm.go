// SPDX-License-Identifier: Apache-2.0

// Package lvm provides devices that are logical volumes on persistent memory. Each region that the operator gives to
// the driver gets one namespace and on it one volume group, both marked as the driver's; volumes are linear, and device
// mapper passes DAX through. Every extent begins at a multiple of 2 MiB, so huge pages are mapped as on the namespace
// itself, and volumes grow in use.
package lvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/command"
	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// checkInterval is for how long a successful check is believed; probes come more often.
const checkInterval = time.Minute

// Config says where volume groups may be made.
type Config struct {
	Regions nvdimm.Selector
	// Percent is the most of each region that the driver takes.
	Percent int
	Map     nvdimm.Map
	// Classes divide the volume groups; none: all of them are for all volumes.
	Classes []Class
	// OnProblem is told when a selected region, or a thin pool in it, cannot be used.
	OnProblem func(ctx context.Context, message string)
}

// Manager is a device.Manager.
type Manager struct {
	config Config
	tool   *nvdimm.Tool
	// mu lets one call at a time change volumes: "is there room" and "take it" are one step.
	mu       sync.Mutex
	checked  time.Time
	reporter nvdimm.ProblemReporter
	// copied are the thin volumes of which copies are about to be made, and copies that have still to grow.
	copied map[string]reserved
}

var (
	_ device.Manager   = (*Manager)(nil)
	_ device.Lister    = (*Manager)(nil)
	_ device.Inventory = (*Manager)(nil)
	_ device.Durable   = (*Manager)(nil)
	_ device.Classed   = (*Manager)(nil)
	_ device.Placed    = (*Manager)(nil)
	_ device.Placed    = view{}
)

// New returns a manager.
func New(config Config, tool *nvdimm.Tool) (*Manager, error) {
	if config.Regions.Empty() {
		return nil, errors.New("volumes on LVM need at least one region that the driver may use; set --regions")
	}
	if err := nvdimm.CheckPercent(config.Percent); err != nil {
		return nil, err
	}
	if err := checkClasses(config.Classes); err != nil {
		return nil, err
	}
	return &Manager{
		config:   config,
		tool:     tool,
		reporter: nvdimm.ProblemReporter{OnProblem: config.OnProblem},
		copied:   map[string]reserved{},
	}, nil
}

// Name implements device.Manager.
func (m *Manager) Name() string { return volume.DeviceLVM }

// Emulated implements device.Manager.
func (m *Manager) Emulated() bool { return false }

// Check implements device.Manager. A region that cannot be used makes the node smaller, not unusable, and a node
// without any region is one among others in a cluster.
func (m *Manager) Check(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.checked) < checkInterval {
		return nil
	}
	if _, err := command.Run(ctx, "lvm", "version"); err != nil {
		return fmt.Errorf("lvm on this node: %w", err)
	}
	if _, err := m.groupsToFill(ctx); err != nil {
		return err
	}
	m.checked = time.Now()
	return nil
}

// groupsToFill returns the groups that new volumes may go to, making those that are missing.
func (m *Manager) groupsToFill(ctx context.Context) ([]group, error) {
	all, problems, err := m.groups(ctx, true)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := m.ensurePools(ctx, &all[i]); err != nil {
			problems = append(problems, nvdimm.Problem{Region: all[i].region, Err: err})
		}
	}
	m.reporter.Report(ctx, m.Name(), problems)
	return all, nil
}

// OnlyDurable implements device.Durable.
func (m *Manager) OnlyDurable() device.Manager {
	return view{m, wanted{durability: volume.DurabilityRequired}}
}

// wanted is what a new volume may be made of.
type wanted struct {
	// class: nil is any.
	class      *Class
	durability volume.Durability
}

// view is a Manager that makes volumes of these kinds only.
type view struct {
	*Manager
	wanted wanted
}

// OnlyDurable implements device.Durable.
func (v view) OnlyDurable() device.Manager {
	v.wanted.durability = volume.DurabilityRequired
	return v
}

// Available implements device.Manager.
func (v view) Available(ctx context.Context) (int64, error) { return v.available(ctx, v.wanted) }

// Create implements device.Manager.
func (v view) Create(ctx context.Context, id string, size int64) error {
	return v.create(ctx, id, size, v.wanted)
}

// Available implements device.Manager. A volume does not span groups.
func (m *Manager) Available(ctx context.Context) (int64, error) { return m.available(ctx, wanted{}) }

func (m *Manager) available(ctx context.Context, w wanted) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	groups, err := m.groupsToFill(ctx)
	if err != nil {
		return 0, err
	}
	fit, _ := fitting(groups, w)
	return roomiest(fit).free, nil
}

// fitting are the groups that a volume may be in, with what is free there for it, and why not in the others of its
// class.
func fitting(groups []group, w wanted) (fit []group, less nvdimm.Problems) {
	for _, g := range groups {
		if w.class != nil {
			if !w.class.selects(g) {
				continue
			}
			g.free = max(0, g.free-w.class.Spare) / extentSize * extentSize
		}
		if w.durability.Required() && g.less != nil {
			less = append(less, nvdimm.Problem{Region: g.region, Err: g.less})
			continue
		}
		fit = append(fit, g)
	}
	return fit, less
}

// roomiest returns the group with the most free space, which keeps regions evenly filled; the zero group when there is
// none.
func roomiest(groups []group) group {
	var best group
	for _, g := range groups {
		if g.free > best.free {
			best = g
		}
	}
	return best
}

// snapshotPrefix comes before the IDs of snapshots: lvm keeps names that begin with "snapshot" for itself.
const snapshotPrefix = "splitfs-"

// logicalName returns the name of the logical volume of a volume or snapshot.
func logicalName(id string) string {
	if volume.ValidSnapshotID(id) {
		return snapshotPrefix + id
	}
	return id
}

// idOf is the inverse of logicalName; ours is false for names of nobody's.
func idOf(name string) (id string, ours bool) {
	if id := strings.TrimPrefix(name, snapshotPrefix); volume.ValidSnapshotID(id) {
		return id, id != name
	}
	return name, volume.ValidID(name)
}

// found is a logical volume and the group it is in.
type found struct {
	logicalVolume
	group group
}

func (f *found) path() string { return f.Group + "/" + f.Name }

func (f *found) run(ctx context.Context, args ...string) error {
	_, err := run(ctx, []string{f.group.device}, append(args, f.path())...)
	return err
}

// volumes returns the logical volumes of all groups, and of which regions nothing is known (unreadable): there may be
// more.
func (m *Manager) volumes(ctx context.Context) (all []found, unknown nvdimm.Problems, err error) {
	groups, problems, err := m.groups(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range problems {
		if errors.As(p.Err, &unreadable{}) {
			unknown = append(unknown, p)
		}
	}
	for _, g := range groups {
		// Asked for a group, lvm says so when it does not find it.
		_, logical, err := list(ctx, []string{g.device}, lvList, logicalFields, g.name)
		if err != nil {
			err = fmt.Errorf("list the logical volumes of %s: %w", g.name, err)
			unknown = append(unknown, nvdimm.Problem{Region: g.region, Err: unreadable{err, g.own}})
		}
		for _, lv := range logical {
			if lv.Group == g.name && lv.Tags.has(ownTag) {
				all = append(all, found{lv, g})
			}
		}
	}
	return all, unknown, nil
}

// find returns the logical volume of a volume, nil when it is nowhere. That some place could not be looked at is an
// error.
func (m *Manager) find(ctx context.Context, id string) (*found, error) {
	lv, unknown, err := m.findSeen(ctx, id)
	if err == nil && lv == nil {
		err = notEverywhere(id, unknown)
	}
	return lv, err
}

// findSeen is find among what could be looked at.
func (m *Manager) findSeen(ctx context.Context, id string) (*found, nvdimm.Problems, error) {
	all, unknown, err := m.volumes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range all {
		if all[i].Name == logicalName(id) {
			return &all[i], unknown, nil
		}
	}
	return nil, unknown, nil
}

// notEverywhere is the error of a search that found nothing and could not look everywhere; nil when it could.
func notEverywhere(id string, unknown nvdimm.Problems) error {
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf(
		"%w: whether there is a logical volume of volume %s is not known, because not every region could be looked at: %w",
		volume.ErrUnavailable, id, unknown.Err())
}

// mustFind is find for a volume that has to be there.
func (m *Manager) mustFind(ctx context.Context, id string) (*found, error) {
	lv, err := m.find(ctx, id)
	if err == nil && lv == nil {
		err = fmt.Errorf("the logical volume of volume %s: %w in any volume group of this driver", id, volume.ErrNotFound)
	}
	return lv, err
}

// Create implements device.Manager.
func (m *Manager) Create(ctx context.Context, id string, size int64) error {
	return m.create(ctx, id, size, wanted{})
}

func (m *Manager) create(ctx context.Context, id string, size int64, w wanted) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	lv, unknown, err := m.findSeen(ctx, id)
	if err != nil {
		return err
	}
	if lv != nil {
		return grow(ctx, lv, size)
	}
	// What is not the driver's by its name and cannot be looked at makes the node smaller, not unusable.
	unknown = slices.DeleteFunc(unknown, func(p nvdimm.Problem) bool {
		var h unreadable
		return errors.As(p.Err, &h) && !h.own
	})
	if err := notEverywhere(id, unknown); err != nil {
		return err
	}
	groups, err := m.groupsToFill(ctx)
	if err != nil {
		return err
	}
	fit, less := fitting(groups, w)
	g := roomiest(fit)
	size = roundUp(size)
	if g.free < size {
		err := fmt.Errorf("%w in the volume groups %s: %d MiB are needed, the roomiest has %d MiB",
			volume.ErrExhausted, w.where(), size/volume.MiB, g.free/volume.MiB)
		if told := m.reporter.Current(); told != "" {
			err = fmt.Errorf("%w; not usable: %s", err, told)
		}
		if len(less) > 0 {
			err = fmt.Errorf("%w; not durable: %w", err, less.Err())
		}
		return err
	}
	if _, err := run(ctx, []string{g.device}, lvCreate, assumeYes, "--type", "linear", "--wipesignatures", "y",
		"--zero", "y", sizeIs, bytesArg(size), addTag, ownTag, nameIs, logicalName(id), g.name); err != nil {
		return fmt.Errorf("make logical volume %s in %s: %w", id, g.name, err)
	}
	klog.FromContext(ctx).V(2).Info("Made a logical volume", "volume-id", id, "volume-group", g.name, "region", g.region,
		"size", size)
	// It had to be active to lose old signatures; nobody has attached it.
	made := &found{logicalVolume{Name: logicalName(id), Group: g.name}, g}
	return made.deactivate(ctx)
}

func (f *found) deactivate(ctx context.Context) error {
	if err := f.run(ctx, "lvchange", assumeYes, "--activate", "n"); err != nil {
		return fmt.Errorf("deactivate logical volume %s: %w", f.path(), err)
	}
	return nil
}

// node is the path of the kernel's own device node, which is there whether udev is or not; "" when the volume is not
// active.
func (f *found) node() string {
	if f.Minor < 0 {
		return ""
	}
	return fmt.Sprintf("/dev/dm-%d", f.Minor)
}

func roundUp(n int64) int64 { return (n + extentSize - 1) / extentSize * extentSize }

// Grow implements device.Manager.
func (m *Manager) Grow(ctx context.Context, id string, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	lv, err := m.mustFind(ctx, id)
	if err != nil {
		return err
	}
	return grow(ctx, lv, size)
}

// Growable implements device.Placed.
func (m *Manager) Growable(ctx context.Context, id string) (int64, error) {
	return m.growable(ctx, id, wanted{})
}

// Growable implements device.Placed.
func (v view) Growable(ctx context.Context, id string) (int64, error) {
	return v.growable(ctx, id, v.wanted)
}

// growable is what a volume's own group has left, but for what its class spares there.
func (m *Manager) growable(ctx context.Context, id string, w wanted) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lv, err := m.mustFind(ctx, id)
	if err != nil {
		return 0, err
	}
	free := lv.group.free
	if w.class != nil && w.class.selects(lv.group) {
		free = max(0, free-w.class.Spare) / extentSize * extentSize
	}
	return free, nil
}

func grow(ctx context.Context, lv *found, size int64) error {
	size = roundUp(size)
	missing := size - int64(lv.Size)
	if missing <= 0 {
		return nil
	}
	if missing > lv.group.free {
		return fmt.Errorf("%w in volume group %s: %s needs %d MiB more, %d MiB are free; a volume stays in its region",
			volume.ErrExhausted, lv.Group, lv.Name, missing/volume.MiB, lv.group.free/volume.MiB)
	}
	if err := lv.run(ctx, "lvextend", assumeYes, sizeIs, bytesArg(size)); err != nil {
		return fmt.Errorf("grow logical volume %s: %w", lv.path(), err)
	}
	return nil
}

// Attach implements device.Manager.
func (m *Manager) Attach(ctx context.Context, id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lv, err := m.mustFind(ctx, id)
	if err != nil {
		return "", err
	}
	if lv.node() == "" {
		if err := lv.run(ctx, "lvchange", assumeYes, "--activate", "y"); err != nil {
			return "", fmt.Errorf("activate logical volume %s: %w", lv.path(), err)
		}
		if lv, err = m.mustFind(ctx, id); err != nil {
			return "", err
		}
	}
	path := lv.node()
	if path == "" {
		return "", fmt.Errorf("logical volume %s was activated and has no device", lv.path())
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("device of logical volume %s: %w (is /dev mounted from the host?)", lv.path(), err)
	}
	return path, nil
}

// Detach implements device.Manager. lvm refuses while the device is in use.
func (m *Manager) Detach(ctx context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	lv, err := m.find(ctx, id)
	if err != nil || lv == nil || lv.node() == "" {
		return err
	}
	return lv.deactivate(ctx)
}

// Delete implements device.Manager. lvm refuses while the device is in use.
func (m *Manager) Delete(ctx context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(id)
	lv, err := m.find(ctx, id)
	if err != nil || lv == nil {
		return err
	}
	if err := lv.run(ctx, "lvremove", assumeYes); err != nil {
		return fmt.Errorf("remove logical volume %s: %w", lv.path(), err)
	}
	return nil
}

// List implements device.Lister. Beside the error of what it could not look at it returns what it found.
func (m *Manager) List(ctx context.Context) ([]device.Found, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, unknown, err := m.volumes(ctx)
	if err != nil {
		return nil, err
	}
	var list []device.Found
	for i := range all {
		if id, ours := idOf(all[i].Name); ours {
			list = append(list, device.Found{ID: id, Where: all[i].path(), Node: all[i].node()})
		}
	}
	return list, unknown.Err()
}

// Regions implements device.Inventory. What a group holds is what the region can: the rest is not the driver's.
func (m *Manager) Regions(ctx context.Context) ([]device.Region, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	groups, err := m.groupsToFill(ctx)
	if err != nil {
		return nil, err
	}
	var regions []device.Region
	for _, g := range groups {
		regions = append(regions, device.Region{
			Name: g.region, Type: g.kind, Memory: g.memory, Capacity: g.size, Available: g.free,
		})
	}
	return regions, nil
}
