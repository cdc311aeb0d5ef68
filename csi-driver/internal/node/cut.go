// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/changes"
	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// catchUps is how often it is tried to find all changes in the time for which writers may wait.
const catchUps = 3

// cutter is a way to make a copy that holds what its original holds at one moment.
type cutter interface {
	// prepare does what takes long, while the original's writers go on. It is called before each try of the moment.
	prepare(ctx context.Context) error
	// moment makes the copy what the original is now. Nobody writes to the original; those who would have waited long
	// enough at until, which is zero when there are none.
	moment(ctx context.Context, until time.Time) error
	// end is called once, and makes a copy that is whole durable.
	end(ctx context.Context, whole bool) error
}

// copying is a copy until it is cut.
type copying struct {
	cutter
	manager     device.Manager
	store       *volume.Store
	source, rec *volume.Record
	// used is a path where the original is in use, "" when there is none: nobody else has its lock, so this stays so.
	used string
}

func (n *Node) newCopying(ctx context.Context, store *volume.Store, source, rec *volume.Record) (*copying, error) {
	manager, err := n.makerOf(rec)
	if err != nil {
		return nil, err
	}
	if err := refuseRawInUse(source); err != nil {
		return nil, err
	}
	c := &copying{manager: manager, store: store, source: source, rec: rec}
	if c.used, err = inUse(source); err != nil {
		return nil, err
	}
	if rec.Job != nil && rec.Job.Kind == volume.JobCopy {
		c.cutter = &byteCopy{n: n, c: c} // an interrupted call's, gone on with
		return c, nil
	}
	if err := n.clearHalfMade(ctx, manager, rec.ID); err != nil {
		return nil, err
	}
	c.cutter = &byteCopy{n: n, c: c}
	// What is written to storage that is shared goes elsewhere, and what was there can never be erased.
	if copier, ok := manager.(device.Copier); ok && !rec.Erase.Wanted() {
		c.cutter = &sharing{n: n, c: c, copier: copier}
	}
	return c, nil
}

// makerOf returns the manager that makes the device of a copy. A thin copy is made where its original is, whatever has
// become of its class.
func (n *Node) makerOf(rec *volume.Record) (device.Manager, error) {
	if rec.Thin {
		return n.config.Managers.Of(rec)
	}
	manager, err := n.config.Managers.GetFor(rec.Device, rec.Class, rec.Durability)
	if err == nil && device.IsThin(manager) {
		err = fmt.Errorf(
			"%w: %s is not thin, and its device class %q has become so",
			volume.ErrPrecondition,
			rec.ID,
			rec.Class,
		)
	}
	return manager, err
}

// copyBytes is for a copy whose original's storage cannot be shared.
func (n *Node) copyBytes(ctx context.Context, c *copying) error {
	klog.FromContext(ctx).V(2).Info("Storage cannot be shared, so it is copied", "from", c.source.ID, "to", c.rec.ID)
	c.cutter = &byteCopy{n: n, c: c}
	return n.clearHalfMade(ctx, c.manager, c.rec.ID)
}

// cutTogether makes copies independent of what happens to their originals from now on, all of the same moment.
func (n *Node) cutTogether(ctx context.Context, copies []*copying) (err error) {
	defer func() {
		whole := err == nil
		for _, c := range copies {
			if errEnd := c.end(ctx, whole); errEnd != nil {
				err = errors.Join(err, errEnd)
			}
		}
	}()
	for tries := 0; ; {
		for _, c := range copies {
			if err := c.prepare(ctx); err != nil {
				return err
			}
		}
		failed, err := n.momentOf(ctx, copies)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, device.ErrNotShared): // which is so for each of them once at most
			if err := n.copyBytes(ctx, failed); err != nil {
				return err
			}
		case failed != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			// Each time that this was not enough more of the changes are copied already.
			if tries++; tries == catchUps {
				return n.tooLong(failed)
			}
		default:
			return err
		}
	}
}

func (n *Node) tooLong(c *copying) error {
	var looking time.Duration
	var looked int64
	if b, ok := c.cutter.(*byteCopy); ok {
		looking, looked = b.looking, b.looked
	}
	return fmt.Errorf("volume %s: %w: it is in use, and looking through what may have changed since it was copied, %d of "+
		"its %d MiB, takes %v, longer than the %v for which its writers may wait (--freeze-limit, node.freezeLimit of "+
		"the chart); stop its pods first, or raise the limit",
		c.source.ID, volume.ErrPrecondition, looked/volume.MiB, c.rec.DeviceSize/volume.MiB,
		looking.Round(time.Millisecond), n.config.FreezeLimit)
}

// momentOf chooses the moment of copies, and says which of them failed.
func (n *Node) momentOf(ctx context.Context, copies []*copying) (failed *copying, err error) {
	sources := make([]*volume.Record, 0, len(copies))
	used := false
	for _, c := range copies {
		sources = append(sources, c.source)
		used = used || c.used != ""
	}
	err = n.whileFrozen(ctx, sources, func() error {
		now := time.Now()
		var until time.Time
		if used {
			until = now.Add(n.config.FreezeLimit)
		}
		for _, c := range copies {
			c.rec.Taken = taken(c.rec, now)
			if err := c.moment(ctx, until); err != nil {
				failed = c
				return err
			}
		}
		return nil
	})
	return failed, err
}

// sharing makes a copy out of the original's own storage. Writers wait for a moment, however large it is.
type sharing struct {
	n      *Node
	c      *copying
	copier device.Copier
}

func (s *sharing) prepare(ctx context.Context) error {
	return s.copier.Reserve(ctx, s.c.source.ID, s.c.rec.ID, s.c.rec.DeviceSize)
}

func (s *sharing) moment(ctx context.Context, _ time.Time) error {
	return s.copier.Share(ctx, s.c.source.ID, s.c.rec.ID)
}

func (*sharing) end(context.Context, bool) error { return nil }

// byteCopy copies from one device node to the other. What is behind the original's bytes is zero afterwards. Both stay
// attached only if they are used otherwise. The original is copied while it is used; then its writers wait while what
// they changed meanwhile is looked for and copied, but for what is known not to have changed.
type byteCopy struct {
	n *Node
	c *copying
	// begun: prepare was called. pair is nil as long as there is nothing to copy.
	begun bool
	pair  *filesystem.DeviceCopy
	let   []func() error
	job   *job
	// changing: what was copied may have changed since. files knows what has not, nil where nobody does.
	changing bool
	files    *changes.Tracker
	// looking is how long it took to look for changes last, and looked in how many bytes.
	looking time.Duration
	looked  int64
}

func (b *byteCopy) prepare(ctx context.Context) error {
	if !b.begun {
		b.begun = true
		if empty, err := b.open(ctx); err != nil || empty {
			return err
		}
		if err := b.write(ctx); err != nil {
			return err
		}
	}
	if b.pair == nil || !b.changing {
		return nil
	}
	// Most of what changed since, while the writers go on.
	for turns := 1; ; turns++ {
		known, err := b.round(ctx)
		if err != nil {
			return err
		}
		if err := b.update(ctx, known); err != nil || b.files == nil {
			return err
		}
		// Where it took long the writers have changed much meanwhile. What of one file that is can be known only from the
		// second look on, and there is less of it each time.
		if b.looking < b.n.config.FreezeLimit/2 || turns == catchUps || !b.files.Marked() {
			break
		}
	}
	if err := b.files.Clean(ctx); err != nil {
		return b.withoutFiles(ctx, err)
	}
	return nil
}

// write copies all that an interrupted call has not.
func (b *byteCopy) write(ctx context.Context) (err error) {
	source, rec := b.c.source, b.c.rec
	// What was copied before an interruption may have changed since: nobody had the original's lock.
	b.changing = b.c.used != "" || rec.Job != nil
	if b.job, err = b.n.beginJob(b.c.store, rec, volume.JobCopy, b.pair.Size()); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Copying a device byte by byte", "from", source.ID, "to", rec.ID,
		"bytes", b.pair.Size(), "done", rec.Job.Done, "in-use", b.c.used != "")
	if b.c.used != "" && !source.Block {
		if b.files, err = changes.New(b.c.used, controlDir); err != nil {
			return err
		}
		// At the end: the last close of a file without a name waits as long as the file system is frozen.
		b.let = append(b.let, b.files.Close)
		if rec.Job.Done == 0 { // otherwise all has to be looked at once before it is known that a file is as it was
			if _, err := b.round(ctx); err != nil {
				return err
			}
			if b.files != nil {
				b.files.Release() // this takes long
			}
		}
	}
	return b.pair.Write(ctx, rec.Job.Done, func(at int64) error {
		if time.Since(b.job.saved) < jobSave {
			return nil
		}
		return errors.Join(b.pair.Sync(), b.job.at(ctx, at, b.pair.Size()))
	})
}

// round returns what is known not to have changed since the last round.
func (b *byteCopy) round(ctx context.Context) (changes.Ranges, error) {
	if b.files == nil {
		return nil, nil
	}
	known, err := b.files.Round(ctx, func(do func(context.Context) error) error {
		return b.n.whileFrozen(ctx, []*volume.Record{b.c.source}, func() error {
			bounded, cancel := context.WithTimeout(ctx, b.n.config.FreezeLimit)
			defer cancel()
			return do(bounded)
		})
	})
	if err != nil {
		return nil, b.withoutFiles(ctx, err)
	}
	return known, nil
}

// withoutFiles goes on where the files cannot be looked at: everything may have changed then.
func (b *byteCopy) withoutFiles(ctx context.Context, err error) error {
	if errStop := ctx.Err(); errStop != nil {
		return errStop
	}
	klog.FromContext(ctx).Error(err, "Which files have changed is not known, so all of the volume is looked through",
		"volume", b.c.source.ID)
	b.files = nil
	return nil
}

// update copies what has changed.
func (b *byteCopy) update(ctx context.Context, known changes.Ranges) (err error) {
	started := time.Now()
	b.looked, err = b.pair.Update(ctx, known)
	b.looking = time.Since(started)
	klog.FromContext(ctx).V(2).Info("Looked for changes of a volume that is copied", "volume", b.c.source.ID,
		"bytes", b.looked, "known", known.Bytes(), "took", b.looking, "err", err)
	return err
}

// open makes the copy's device and opens both; empty: there is nothing to copy.
func (b *byteCopy) open(ctx context.Context) (empty bool, err error) {
	c := b.c
	from, letFrom, err := b.n.content(ctx, c.manager, c.source)
	if err != nil {
		return false, err
	}
	b.let = append(b.let, letFrom)
	length, err := filesystem.DeviceLength(from)
	if err != nil {
		return false, err
	}
	// A device can be larger than it was asked for, and its file system with it.
	if err := c.manager.Create(ctx, c.rec.ID, max(c.rec.DeviceSize, length)); err != nil {
		return false, err
	}
	if !c.source.Formatted && !c.source.Cleared && !c.manager.Emulated() {
		return true, nil // nobody has had it yet, so what is on it is nobody's
	}
	to, letTo, err := b.n.content(ctx, c.manager, c.rec)
	if err != nil {
		return false, err
	}
	b.let = append(b.let, letTo)
	b.pair, err = filesystem.OpenCopy(from, to)
	return false, err
}

func (b *byteCopy) moment(ctx context.Context, until time.Time) error {
	if b.pair == nil || !b.changing {
		return nil
	}
	if !until.IsZero() {
		bounded, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		ctx = bounded
	}
	var known changes.Ranges
	if b.files != nil {
		var err error
		if known, err = b.files.Frozen(ctx); err != nil {
			if err = b.withoutFiles(ctx, err); err != nil {
				return err
			}
		}
	}
	return b.update(ctx, known)
}

func (b *byteCopy) end(ctx context.Context, whole bool) (err error) {
	if b.pair != nil {
		if whole {
			err = b.pair.Sync()
		}
		if whole && err == nil {
			b.job.end(ctx)
		}
		err = errors.Join(err, b.pair.Close())
	}
	for i := len(b.let) - 1; i >= 0; i-- {
		err = errors.Join(err, b.let[i]())
	}
	return err
}

// whileFrozen does something while nobody can write to any of the volumes. That a file system is frozen is on disk
// before it is: when this process dies meanwhile, the next one lets the volume's users go on.
func (n *Node) whileFrozen(ctx context.Context, list []*volume.Record, do func() error) (err error) {
	var written []*volume.Record
	for _, rec := range list {
		if rec.Block || rec.Staged == nil {
			continue
		}
		mounted, err := mounts.At(rec.Staged.Path)
		if err != nil {
			return err
		}
		if mounted != nil {
			written = append(written, rec)
		}
	}
	if written, err = n.withoutFreezers(written); err != nil {
		return err
	}
	if len(written) == 0 {
		return do()
	}
	started := time.Now()
	defer func() {
		marked := slices.DeleteFunc(slices.Clone(written), func(rec *volume.Record) bool { return !rec.Frozen })
		err = errors.Join(err, n.thaw(marked...))
		klog.FromContext(ctx).V(2).Info("The writers of volumes waited while these were copied",
			"volumes", len(written), "first", written[0].ID, "waited", time.Since(started))
	}()
	for _, rec := range written {
		rec.Frozen = true
		if err := n.store.Put(rec); err != nil {
			return err
		}
		// What is not on the device yet goes there while writers go on, for the most part.
		if err := filesystem.Sync(rec.Staged.Path); err != nil {
			return err
		}
	}
	started = time.Now()
	for _, rec := range written {
		if err := filesystem.Freeze(rec.Staged.Path); err != nil {
			return err
		}
	}
	return do()
}

// withoutFreezers leaves out a volume that whoever makes its copy freezes, where it could not do so to one that is
// frozen. As long as all others are frozen meanwhile its moment is theirs; of two such volumes each would have its own.
func (n *Node) withoutFreezers(written []*volume.Record) ([]*volume.Record, error) {
	var rest []*volume.Record
	var alone *volume.Record
	for _, rec := range written {
		manager, err := n.config.Managers.Of(rec)
		if err != nil {
			return nil, err
		}
		freezer, ok := manager.(device.Freezer)
		switch {
		case !ok || freezer.NestsFreezes():
			rest = append(rest, rec)
		case alone != nil:
			return nil, fmt.Errorf("volumes %s and %s: %w: both are thin and in use, and this node's kernel cannot have device "+
				"mapper take snapshots of both at one moment (6.8 and newer can); stop the pods of one of them", alone.ID, rec.ID,
				volume.ErrPrecondition)
		default:
			alone = rec
		}
	}
	if alone != nil {
		return rest, filesystem.Sync(alone.Staged.Path) // so that device mapper has little left to write
	}
	return rest, nil
}
