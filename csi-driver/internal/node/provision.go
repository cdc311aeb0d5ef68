// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// CreateRequest asks for a volume.
type CreateRequest struct {
	Name   string
	Params volume.Params
	// Block asks for a raw block volume; FSType is the file system type of any other, never empty.
	Block  bool
	FSType string
	// MountFlags are the mount options that the volume will be staged with.
	MountFlags []string
	// Source is what the volume is to be a copy of; nil: it begins empty.
	Source *volume.Source
	// Required and Limit bound the size; 0 is no bound.
	Required, Limit int64
	// Released, if any, is called when Source is not needed any more.
	Released func()
}

// Create makes a volume, or finds the one that an earlier call for the same name made.
func (n *Node) Create(ctx context.Context, req CreateRequest) (*volume.Record, error) {
	manager, err := n.config.Managers.GetFor(req.Params.Device, req.Params.Class, req.Params.WantedDurability())
	if err != nil {
		return nil, err
	}
	if !req.Block {
		if _, err := filesystem.MountOptions(req.FSType, req.MountFlags, !manager.Emulated()); err != nil {
			return nil, err
		}
	}
	if err := checkErase(manager, req.Params.Erase); err != nil {
		return nil, err
	}
	id := volume.IDFromName(req.Name)
	rec, err := n.store.Get(id)
	switch {
	case err == nil:
		if err := compatible(rec, req); err != nil {
			return nil, err
		}
		if rec.Phase == volume.PhaseReady {
			return rec, nil
		}
		if err := n.beginAnew(ctx, n.store, rec); err != nil {
			return nil, err
		}
	case errors.Is(err, volume.ErrNotFound):
		if rec, err = n.plan(ctx, manager, id, req); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	if err := n.store.Put(rec); err != nil {
		return nil, err
	}
	if err := n.makeDevice(ctx, manager, rec, req.Released); err != nil {
		return nil, n.copyFailed(ctx, n.store, rec, cannotFinish(rec, err))
	}
	return rec, n.made(ctx, manager, rec)
}

// made writes down that a new volume is whole, and says to its user what it is.
func (n *Node) made(ctx context.Context, manager device.Manager, rec *volume.Record) error {
	rec.Phase, rec.Cut = volume.PhaseReady, false
	if err := n.store.Put(rec); errors.Is(err, volume.ErrExhausted) {
		return isHere(rec, err)
	} else if err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Created a volume", "volume-id", rec.ID, "size", rec.Size,
		"device-size", rec.DeviceSize, "device", rec.Device)
	if manager.Emulated() {
		n.config.Events.OnPVC(ctx, rec.PVC, false, events.ReasonEmulated, n.emulatedMessage(rec))
	}
	if rec.Block {
		n.config.Events.OnPVC(ctx, rec.PVC, false, events.ReasonRawBlock, rawBlockMessage(rec))
	}
	return nil
}

// cannotFinish is the error of a volume whose device could not be made, or not be made whole.
func cannotFinish(rec *volume.Record, err error) error {
	if rec.Cut && errors.Is(err, volume.ErrExhausted) {
		return isHere(rec, err)
	}
	return fmt.Errorf("create volume %s: %w", rec.ID, err)
}

// isHere says that there is no room for something else than a volume's device, which is here: the volume is not to be
// made on another node now.
func isHere(rec *volume.Record, err error) error {
	return fmt.Errorf("create volume %s: %w: %w", rec.ID, volume.ErrUnavailable, err)
}

// FinishCopy makes a volume whole that was cut before the node service ended.
func (n *Node) FinishCopy(ctx context.Context, rec *volume.Record) error {
	manager, err := n.config.Managers.Of(rec)
	if err != nil {
		return err
	}
	if err := n.copyDevice(ctx, n.store, nil, rec, nil); err != nil {
		return cannotFinish(rec, err)
	}
	return n.made(ctx, manager, rec)
}

// makeDevice makes the device of a new volume, empty or as a copy.
func (n *Node) makeDevice(ctx context.Context, manager device.Manager, rec *volume.Record, released func()) error {
	if rec.Source == nil {
		return manager.Create(ctx, rec.ID, rec.DeviceSize)
	}
	var source *volume.Record
	if !rec.Cut {
		var err error
		if source, err = n.source(rec.Source); err != nil {
			return err
		}
	}
	return n.copyDevice(ctx, n.store, source, rec, released)
}

// plan chooses a new volume's sizes and refuses what cannot fit before anything is written.
func (n *Node) plan(ctx context.Context, manager device.Manager, id string, req CreateRequest) (*volume.Record, error) {
	size, err := volume.Size(req.Required, req.Limit)
	if err != nil {
		return nil, err
	}
	rec := &volume.Record{
		ID: id, Name: req.Name, Phase: volume.PhaseCreating,
		Mode: req.Params.Mode, Device: req.Params.Device, Block: req.Block, FSType: req.FSType, PVC: req.Params.PVC,
		Size: size, Unserved: req.Params.Unserved,
	}
	if rec.Class, err = n.config.Managers.ClassOf(req.Params.Device, req.Params.Class); err != nil {
		return nil, err
	}
	rec.Thin = device.IsThin(manager)
	rec.SetErase(req.Params.Erase)
	rec.SetDurability(req.Params.WantedDurability())
	if !req.Block {
		rec.Pool = n.poolOf(req.Params)
		rec.Overhead = rec.Pool + n.config.LogReserve
	}
	rec.DeviceSize = deviceSize(rec, size)
	if req.Source != nil {
		if err := n.planCopy(rec, req); err != nil {
			return nil, err
		}
	}
	available, err := manager.Available(ctx)
	if err != nil {
		return nil, err
	}
	if rec.DeviceSize > available {
		return nil, n.tooLarge(ctx, manager, rec, available)
	}
	return rec, nil
}

// tooLarge says in the user's terms, the size of a claim, what would have fitted.
func (n *Node) tooLarge(ctx context.Context, manager device.Manager, rec *volume.Record, available int64) error {
	err := fmt.Errorf("%w on node %s: the volume would hold %d MiB, the largest that fits now holds %d MiB; ask for "+
		"less, delete volumes, or raise the node's capacity",
		volume.ErrExhausted, n.config.Name, rec.Size/volume.MiB, largest(rec, available)/volume.MiB)
	if pooled, ok := manager.(device.Pooled); ok {
		pools, _ := pooled.Pools(ctx) // it was asked for what is available a moment ago
		for _, p := range pools {
			if p.Class == rec.Class {
				err = fmt.Errorf("%w. Its device class %q is thin: %s", err, rec.Class, p)
			}
		}
	} else if rec.Class != "" {
		err = fmt.Errorf("%w. It is of device class %q, so only the volume groups of that class count, less what they are "+
			"to keep free", err, rec.Class)
	}
	if rec.Durability.Required() {
		err = fmt.Errorf("%w. The claim's class wants durable memory, so other regions do not count (durability: any would "+
			"take them; `kubectl splitfs status` shows what memory nodes have)", err)
	}
	return err
}

// deviceSize returns how large a volume's device must be for the volume to hold size bytes.
func deviceSize(rec *volume.Record, size int64) int64 {
	if rec.Block {
		return size
	}
	return filesystem.DeviceSize(rec.FSType, size+rec.Overhead)
}

// poolOf returns the size of the staging pool of a new volume.
func (n *Node) poolOf(params volume.Params) int64 { return cmp.Or(params.Pool, n.config.Pool) }

// largest returns the most a volume can hold in available bytes of device.
func largest(rec *volume.Record, available int64) int64 {
	if rec.Block {
		return available / volume.MiB * volume.MiB
	}
	return max(0, filesystem.LargestSize(rec.FSType, available)-rec.Overhead)
}

// compatible says whether a volume is what a request asks for.
func compatible(rec *volume.Record, req CreateRequest) error {
	differs := func(what string, have, want any) error {
		return fmt.Errorf("volume %q %w: its %s is %v, the request wants %v", req.Name, volume.ErrExists, what, have, want)
	}
	switch {
	case rec.Phase == volume.PhaseDeleting:
		return fmt.Errorf("volume %s: %w: it is being deleted", rec.ID, volume.ErrBusy)
	case rec.Phase == volume.PhaseErasing:
		return beingErased("volume " + rec.ID)
	case !sameSource(rec.Source, req.Source):
		return differs("source", rec.Source, req.Source)
	case rec.Mode != req.Params.Mode:
		return differs("mode", rec.Mode, req.Params.Mode)
	case rec.Device != req.Params.Device:
		return differs("device", rec.Device, req.Params.Device)
	case req.Params.Class != "" && rec.Class != req.Params.Class:
		// what the default is may be another after a restart
		return differs("device class", rec.Class, req.Params.Class)
	case rec.Erase.OrNone() != req.Params.Erase.OrNone():
		return differs("erase policy", rec.Erase.OrNone(), req.Params.Erase.OrNone())
	case rec.Durability.Required() && !req.Params.WantedDurability().Required():
		return differs("durability", rec.Durability, req.Params.WantedDurability())
	case rec.Pool != 0 && req.Params.Pool != 0 && rec.Pool != req.Params.Pool:
		// what the node chose may be another after a restart
		return differs("staging pool", rec.Pool, req.Params.Pool)
	case rec.Unserved != req.Params.Unserved:
		return differs("policy for programs without the library", rec.Unserved, req.Params.Unserved)
	case rec.Block != req.Block:
		return differs("volume mode", volumeMode(rec.Block), volumeMode(req.Block))
	case rec.FSType != req.FSType:
		return differs("file system type", rec.FSType, req.FSType)
	case rec.Size < req.Required:
		return differs("size", rec.Size, fmt.Sprintf("at least %d", req.Required))
	case req.Limit > 0 && rec.Size > req.Limit:
		return differs("size", rec.Size, fmt.Sprintf("at most %d", req.Limit))
	}
	return nil
}

func sameSource(a, b *volume.Source) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// Delete removes a volume and its data, or leaves it to the eraser. A volume that is in use is not deleted; one that is
// not known is deleted already.
func (n *Node) Delete(ctx context.Context, id string) error {
	if !volume.ValidID(id) {
		return nil // none of ours: there is nothing to delete
	}
	rec, err := n.store.Get(id)
	if errors.Is(err, volume.ErrNotFound) {
		return n.deleteLeftover(ctx, id)
	}
	if err != nil {
		return err
	}
	if rec.Phase == volume.PhaseErasing {
		return n.beginErasing(ctx, n.store, rec)
	}
	if user, err := inUse(rec); err != nil {
		return err
	} else if user != "" {
		return fmt.Errorf("volume %s: %w: it is in use at %s", id, volume.ErrPrecondition, user)
	}
	manager, err := n.config.Managers.Of(rec)
	if err != nil {
		return err
	}
	if err := n.agents.Stop(ctx, id); err != nil {
		return err
	}
	if mustErase(rec) {
		return n.beginErasing(ctx, n.store, rec)
	}
	rec.Phase = volume.PhaseDeleting
	if err := n.store.PutReleasing(rec); err != nil {
		return err
	}
	if err := n.mounter.Cleanup(n.settlePath(id)); err != nil {
		return err
	}
	if err := n.destroy(ctx, manager, rec); err != nil {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted a volume", "volume-id", id)
	return nil
}

// deleteLeftover removes a device whose state is lost; the caller has asked for exactly this ID to be deleted. Nothing
// says what kind of device it would be: only when no kind has one there is none.
func (n *Node) deleteLeftover(ctx context.Context, id string) error {
	if err := n.mounter.Cleanup(n.settlePath(id)); err != nil {
		return err
	}
	var errs []error
	for name, m := range n.config.Managers {
		err := refuseMounted(ctx, m, id)
		if err == nil {
			err = m.Delete(ctx, id)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("delete %s, of which this node has no state, from %s devices: %w", id, name, err))
		}
	}
	return errors.Join(errs...)
}

// refuseMounted looks whether a device is mounted of which no state says where.
func refuseMounted(ctx context.Context, m device.Manager, id string) error {
	lister, ok := m.(device.Lister)
	if !ok {
		return nil
	}
	found, err := lister.List(ctx)
	for _, d := range found {
		if d.ID != id || d.Node == "" {
			continue
		}
		major, minor, err := mounts.DeviceNumbers(d.Node)
		if err != nil {
			return err
		}
		all, err := mounts.OfDevice(major, minor)
		if err != nil {
			return err
		}
		if len(all) > 0 {
			return fmt.Errorf("%w: it is in use at %s", volume.ErrPrecondition, all[0].MountPoint)
		}
	}
	return err
}

func (n *Node) destroy(ctx context.Context, manager device.Manager, rec *volume.Record) error {
	if err := manager.Delete(ctx, rec.ID); err != nil {
		return err
	}
	return n.store.Remove(rec.ID)
}

// inUse returns a path where the volume is mounted, "" when there is none.
func inUse(rec *volume.Record) (string, error) {
	if rec.Staged != nil {
		if mounted, err := mounts.At(rec.Staged.Path); err != nil {
			return "", err
		} else if mounted != nil {
			return rec.Staged.Path, nil
		}
	}
	return publishedAt(rec)
}

// publishedAt returns a path where a pod has the volume, "" when there is none.
func publishedAt(rec *volume.Record) (string, error) {
	for target := range rec.Published {
		if mounted, err := mounts.At(target); err != nil {
			return "", err
		} else if mounted != nil {
			return target, nil
		}
	}
	return "", nil
}

// CheckUse says whether a volume can be used in a way that a request asks for.
func (n *Node) CheckUse(rec *volume.Record, block bool, fsType string, mountFlags []string) error {
	if rec.Block != block {
		return fmt.Errorf("%w: volume %s has the volume mode %s, the request wants %s", volume.ErrInvalid, rec.ID,
			volumeMode(rec.Block), volumeMode(block))
	}
	if fsType != "" && fsType != rec.FSType {
		return fmt.Errorf("%w: volume %s was made for %s, the request wants %s", volume.ErrInvalid, rec.ID, rec.FSType,
			fsType)
	}
	if block {
		return nil
	}
	manager, err := n.config.Managers.Of(rec)
	if err != nil {
		return err
	}
	_, err = mountOptions(manager, rec, mountFlags)
	return err
}

// volumeMode is what Kubernetes calls it.
func volumeMode(block bool) string {
	if block {
		return "Block"
	}
	return "Filesystem"
}

// Volume returns a volume that exists.
func (n *Node) Volume(id string) (*volume.Record, error) { return n.get(id) }

// Capacity is what a node still offers to the volumes of a class.
type Capacity struct {
	// Largest is the most that a new volume can hold: a pool, logs and a file system's own needs come on top of it.
	Largest int64
	// Growth is how much the volumes that are there can grow, all together.
	Growth int64
}

// Capacity returns what the node offers to volumes of these parameters.
func (n *Node) Capacity(ctx context.Context, params volume.Params, block bool) (Capacity, error) {
	manager, err := n.config.Managers.GetFor(params.Device, params.Class, params.WantedDurability())
	if errors.Is(err, device.ErrNoClass) {
		// As for a StorageClass that is wrong otherwise: the error of CreateVolume reaches the claim's owner.
		manager, err = n.config.Managers.Get(params.Device)
	}
	if err != nil {
		return Capacity{}, err
	}
	available, err := manager.Available(ctx)
	if err != nil {
		return Capacity{}, err
	}
	rec := &volume.Record{
		Block: block, FSType: cmp.Or(params.FSType, volume.XFS), Overhead: n.poolOf(params) + n.config.LogReserve,
	}
	c := Capacity{Largest: largest(rec, available)}
	c.Growth = c.Largest
	if !block {
		c.Growth = filesystem.LargestGrowth(rec.FSType, available)
	}
	return c, nil
}

// CheckExpand says whether a volume could grow, and to what size, without doing it.
func (n *Node) CheckExpand(ctx context.Context, id string, required, limit int64) (int64, error) {
	rec, err := n.get(id)
	if err != nil {
		return 0, err
	}
	size, err := expandedSize(rec, required, limit)
	if err != nil {
		return 0, err
	}
	manager, err := n.config.Managers.Of(rec)
	if err != nil {
		return 0, err
	}
	return size, n.roomToGrow(ctx, manager, rec, size)
}

// DeviceClasses returns the classes that are defined for a kind of device.
func (n *Node) DeviceClasses(ctx context.Context, name string) ([]device.Class, error) {
	manager, err := n.config.Managers.Get(name)
	if err != nil {
		return nil, err
	}
	if classed, ok := manager.(device.Classed); ok {
		return classed.Classes(ctx)
	}
	return nil, nil
}

func (n *Node) roomToGrow(ctx context.Context, manager device.Manager, rec *volume.Record, size int64) error {
	missing := deviceSize(rec, size) - rec.DeviceSize
	if missing <= 0 {
		return nil
	}
	// A class that is not defined any more spares nothing.
	if of, err := n.config.Managers.GetFor(rec.Device, rec.Class, ""); err == nil && device.IsThin(of) == rec.Thin {
		manager = of
	}
	available, err := growable(ctx, manager, rec.ID)
	if err != nil {
		return err
	}
	if missing > available {
		return fmt.Errorf(
			"volume %s cannot grow from %d to %d MiB: %w on node %s: %d MiB more are needed, %d MiB are available",
			rec.ID, rec.Size/volume.MiB, size/volume.MiB, volume.ErrOutOfRange, n.config.Name, missing/volume.MiB,
			available/volume.MiB)
	}
	return nil
}

// growable returns how many bytes more a device can have.
func growable(ctx context.Context, manager device.Manager, id string) (int64, error) {
	if placed, ok := manager.(device.Placed); ok {
		return placed.Growable(ctx, id)
	}
	return manager.Available(ctx)
}

// expandedSize returns the size a volume has after an expansion; volumes never shrink.
func expandedSize(rec *volume.Record, required, limit int64) (int64, error) {
	if required == 0 && limit == 0 {
		return 0, fmt.Errorf("%w: no size to expand volume %s to", volume.ErrInvalid, rec.ID)
	}
	if limit > 0 && rec.Size > limit {
		return 0, fmt.Errorf("volume %s: %w: it holds %d bytes already and must not hold more than %d; volumes do not shrink",
			rec.ID, volume.ErrOutOfRange, rec.Size, limit)
	}
	if required <= rec.Size {
		return rec.Size, nil
	}
	return volume.Size(required, limit)
}

func (n *Node) emulatedMessage(rec *volume.Record) string {
	if rec.Thin {
		return fmt.Sprintf("volume %s is emulated: it is in a thin pool of node %s, which has no direct access to its "+
			"memory; it behaves like a volume on persistent memory, is slower, and what is not fsynced can be lost when the "+
			"power fails", rec.ID, n.config.Name)
	}
	return fmt.Sprintf("volume %s is emulated: a file on a loop device of node %s, not persistent memory; it behaves "+
		"like the real one, its speed does not tell anything about it",
		rec.ID, n.config.Name)
}
