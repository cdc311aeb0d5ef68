// SPDX-License-Identifier: Apache-2.0

package lvm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// thinView is a Manager of thin volumes: of a class, or of those that exist. Device mapper's thin volumes have no
// direct access, so they are emulated ones.
type thinView struct {
	*Manager
	// class is that of new volumes; nil: none can be made, except as copies.
	class *Class
}

var (
	_ device.Thin    = (*Manager)(nil)
	_ device.Pooled  = thinView{}
	_ device.Copier  = thinView{}
	_ device.Freezer = thinView{}
	_ device.Eraser  = thinView{}
	_ device.Placed  = thinView{}
)

// Thin implements device.Thin.
func (m *Manager) Thin() device.Manager { return thinView{Manager: m} }

// OffersThin implements device.Thin.
func (m *Manager) OffersThin() bool {
	return slices.ContainsFunc(m.config.Classes, func(c Class) bool { return c.Thin != nil })
}

// Emulated implements device.Manager.
func (thinView) Emulated() bool { return true }

// Pools implements device.Pooled.
func (v thinView) Pools(ctx context.Context) ([]device.Pool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	groups, _, err := v.groups(ctx, false)
	if err != nil {
		return nil, err
	}
	pools, problems := v.pools(ctx, groups)
	reports := make([]device.Pool, 0, len(pools))
	for _, p := range pools {
		reports = append(reports, p.report())
	}
	return reports, problems.Err()
}

// Available implements device.Manager.
func (v thinView) Available(ctx context.Context) (int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pools, err := v.poolsToFill(ctx)
	if err != nil {
		return 0, err
	}
	return roomiestPool(pools).room(), nil
}

// poolsToFill are the pools of the class; without one, of all classes.
func (v thinView) poolsToFill(ctx context.Context) ([]pool, error) {
	groups, err := v.groupsToFill(ctx)
	if err != nil {
		return nil, err
	}
	pools, problems := v.pools(ctx, groups)
	pools = slices.DeleteFunc(pools, func(p pool) bool {
		return p.class == nil || v.class != nil && p.class.Name != v.class.Name
	})
	if len(pools) == 0 {
		return nil, problems.Err()
	}
	return pools, nil
}

// roomiestPool returns the pool that can promise most; the zero pool, which has no room, when there is none.
func roomiestPool(pools []pool) pool {
	var best pool
	for _, p := range pools {
		if p.room() > best.room() {
			best = p
		}
	}
	return best
}

// Create implements device.Manager. Of its size nothing is taken yet.
func (v thinView) Create(ctx context.Context, id string, size int64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	lv, err := v.find(ctx, id)
	if err != nil {
		return err
	}
	if lv != nil {
		return v.grow(ctx, lv, size)
	}
	if v.class == nil {
		return fmt.Errorf("%w: a thin volume is made in a device class", volume.ErrInvalid)
	}
	pools, err := v.poolsToFill(ctx)
	if err != nil {
		return err
	}
	size = roundUp(size)
	p := roomiestPool(pools)
	if p.room() < size {
		return v.noRoom(pools, size)
	}
	if _, err := run(ctx, []string{p.group.device}, makeThinArgs(p.Group, p.Name, logicalName(id), size)...); err != nil {
		return fmt.Errorf("make thin volume %s in %s/%s: %w", id, p.Group, p.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Made a thin volume", "volume-id", id, "volume-group", p.Group, "pool", p.Name,
		"size", size)
	made := &found{logicalVolume{Name: logicalName(id), Group: p.Group}, p.group}
	return made.deactivate(ctx)
}

func makeThinArgs(group, pool, name string, size int64) []string {
	return []string{lvCreate, assumeYes, "--type", "thin", "--virtualsize", bytesArg(size), "--thinpool", pool,
		"--wipesignatures", "n", "--setactivationskip", "n", addTag, ownTag, nameIs, name, group}
}

func (v thinView) noRoom(pools []pool, size int64) error {
	err := fmt.Errorf("%w in the thin pools of device class %s: %d MiB are needed, %d MiB can still be promised",
		volume.ErrExhausted, v.class.Name, size/volume.MiB, roomiestPool(pools).room()/volume.MiB)
	for _, p := range pools {
		if full := p.report().Refuses(); full != nil {
			err = fmt.Errorf("%w; nothing more is made in %s", err, p.report())
		}
	}
	if told := v.reporter.Current(); told != "" {
		err = fmt.Errorf("%w; not usable: %s", err, told)
	}
	return err
}

// Grow implements device.Manager.
func (v thinView) Grow(ctx context.Context, id string, size int64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	lv, err := v.mustFind(ctx, id)
	if err != nil {
		return err
	}
	kept, isKept := v.copied[id]
	v.release(id)
	if err = v.grow(ctx, lv, size); err != nil && isKept {
		v.copied[id] = kept
	}
	return err
}

// Growable implements device.Placed: what can still be promised in the volume's own pool.
func (v thinView) Growable(ctx context.Context, id string) (int64, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	lv, err := v.mustFind(ctx, id)
	if err != nil {
		return 0, err
	}
	p, err := v.poolOf(ctx, lv)
	return p.room(), err
}

func (v thinView) grow(ctx context.Context, lv *found, size int64) error {
	size = roundUp(size)
	missing := size - int64(lv.Size)
	if missing <= 0 {
		return nil
	}
	p, err := v.poolOf(ctx, lv)
	if err != nil {
		return err
	}
	if missing > p.room() {
		return fmt.Errorf("%w: %s needs %d MiB more, %d MiB can still be promised: %s", volume.ErrExhausted, lv.Name,
			missing/volume.MiB, p.room()/volume.MiB, p.report())
	}
	if err := lv.run(ctx, "lvextend", assumeYes, sizeIs, bytesArg(size)); err != nil {
		return fmt.Errorf("grow thin volume %s: %w", lv.path(), err)
	}
	return nil
}

// poolOf returns the pool that a volume is in.
func (v thinView) poolOf(ctx context.Context, lv *found) (pool, error) {
	pools, problems := v.pools(ctx, []group{lv.group})
	for _, p := range pools {
		if p.Name == lv.Pool {
			return p, nil
		}
	}
	return pool{}, errors.Join(fmt.Errorf("logical volume %s is in no thin pool of this driver", lv.path()),
		problems.Err())
}

// reserved is what was promised and is not taken yet: a copy of a volume that is about to be made, or what one that is
// there has still to grow by.
type reserved struct {
	lv   *found
	to   string
	size int64
}

// release gives back what was reserved for a copy that is not made.
func (m *Manager) release(to string) {
	maps.DeleteFunc(m.copied, func(_ string, r reserved) bool { return r.to == to })
}

// keepGrowth reserves what a copy that is there, and as large as lv, has still to grow by.
func (m *Manager) keepGrowth(lv *found, to string, size int64) {
	if more := roundUp(size) - int64(lv.Size); more > 0 {
		m.copied[to] = reserved{lv, to, more}
	}
}

// Reserve implements device.Copier. The copy begins with its original's size and is grown to its own when it is there,
// so the promise is looked at here and nothing is made yet: a half-made copy is none. Others, of the same group above
// all, count with it.
func (v thinView) Reserve(ctx context.Context, from, to string, size int64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.copied, from) // of an earlier call
	v.release(to)
	lv, err := v.mustFind(ctx, from)
	if err != nil {
		return err
	}
	p, err := v.poolOf(ctx, lv)
	if err != nil {
		return err
	}
	size = max(roundUp(size), int64(lv.Size))
	if size > p.room() {
		return fmt.Errorf("%w: a copy of %s may take %d MiB, %d MiB can still be promised: %s", volume.ErrExhausted, from,
			size/volume.MiB, p.room()/volume.MiB, p.report())
	}
	v.copied[from] = reserved{lv, to, size}
	before, err := v.find(ctx, to)
	if err != nil || before == nil {
		return err
	}
	if err := before.run(ctx, "lvremove", assumeYes); err != nil {
		return fmt.Errorf("remove what was left of %s: %w", before.path(), err)
	}
	return nil
}

// Share implements device.Copier, by a thin snapshot.
func (v thinView) Share(ctx context.Context, from, to string) (err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	copied, known := v.copied[from] // nobody looks for it while its users wait
	delete(v.copied, from)
	lv := copied.lv
	if !known {
		if lv, err = v.mustFind(ctx, from); err != nil {
			return err
		}
	}
	defer func() {
		if err == nil && known {
			v.keepGrowth(lv, to, copied.size)
		}
	}()
	if _, err := run(ctx, []string{lv.group.device}, makeSnapshotArgs(lv.path(), logicalName(to))...); err != nil {
		return fmt.Errorf("make thin snapshot %s of %s: %w", to, lv.path(), err)
	}
	return nil
}

func makeSnapshotArgs(origin, name string) []string {
	return []string{lvCreate, assumeYes, "--snapshot", "--setactivationskip", "n", "--activate", "n", addTag, ownTag,
		nameIs, name, origin}
}

// Unshare implements device.Copier. A thin copy goes on sharing: what is shared when it is written to takes space then,
// as anything in a pool does. It gets the size that it was reserved.
func (v thinView) Unshare(ctx context.Context, to string, _ int64, done func(at int64) error) error {
	v.mu.Lock()
	lv, err := v.mustFind(ctx, to)
	v.mu.Unlock()
	if err != nil {
		return err
	}
	return done(int64(lv.Size))
}

// Resume implements device.Copier. A thin copy is counted as soon as it is there, whatever it shares.
func (v thinView) Resume(ctx context.Context, to string, _, size int64) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.release(to)
	lv, err := v.find(ctx, to)
	if err == nil && lv != nil {
		v.keepGrowth(lv, to, size)
	}
	return err
}

// NestsFreezes implements device.Freezer. Device mapper freezes what it takes a snapshot of, and kernels before 6.8
// refuse to freeze what is frozen.
func (thinView) NestsFreezes() bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false
	}
	return nestsFreezes(unix.ByteSliceToString(name.Release[:]))
}

func nestsFreezes(release string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 6 || major == 6 && minor >= 8
}

// CheckErase implements device.Eraser.
func (thinView) CheckErase(how volume.Erase) error {
	if !how.Wanted() {
		return nil
	}
	return fmt.Errorf("%w: StorageClass parameter erase is %s, and a thin volume cannot be erased: what is written to it "+
		"may go elsewhere than what was there. Nobody else sees its bytes: a pool's space is zeroed before it is given "+
		"out again", volume.ErrInvalid, how)
}

// Erase implements device.Eraser.
func (v thinView) Erase(_ context.Context, _ string, how volume.Erase) error {
	return v.CheckErase(how)
}
