// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// TestPoolOfVolume: a class's pool comes on top of the promised size, in what a node offers too, and a volume keeps
// what it was made with.
func TestPoolOfVolume(t *testing.T) {
	f := newFixture(t, "")
	const size, pool = 128 * volume.MiB, 512 * volume.MiB
	params := volume.Params{Mode: contract.Strict, Device: volume.DeviceEmulated}
	small, err := f.Capacity(f.ctx, params, false)
	f.must(err)
	params.Pool = pool
	large, err := f.Capacity(f.ctx, params, false)
	f.must(err)
	if small.Largest-large.Largest != pool-f.configs.Pool {
		t.Errorf("the node offers %d with a pool of %d, %d with one of %d", small.Largest, f.configs.Pool, large.Largest,
			pool)
	}
	if block, err := f.Capacity(f.ctx, params, true); err != nil || block.Largest <= small.Largest {
		t.Errorf("the node offers %d as a raw block volume, which has no pool, %v", block.Largest, err)
	}

	request := CreateRequest{Name: "large", FSType: volume.XFS, Required: size, Params: params}
	rec, err := f.Create(f.ctx, request)
	f.must(err)
	usage, err := filesystem.Measure(f.stageAt(rec))
	f.must(err)
	if usage.Available < size+pool+f.configs.LogReserve {
		t.Errorf("%d bytes are available, promised are %d, and a pool of %d", usage.Available, size, pool)
	}
	request.Params.Pool = 2 * pool
	if _, err := f.Create(f.ctx, request); !errors.Is(err, volume.ErrExists) {
		t.Errorf("the same volume with another pool: %v", err)
	}

	usual := f.create("usual", volume.XFS, size)
	f.Shutdown()
	f.configs.Pool *= 2
	f.start()
	for _, v := range []struct {
		rec  *volume.Record
		pool int64
	}{{rec, pool}, {usual, f.configs.Pool / 2}, {f.create("usual", volume.XFS, size), f.configs.Pool / 2},
		{f.create("new", volume.XFS, size), f.configs.Pool}} {
		now, err := f.Volume(v.rec.ID)
		f.must(err)
		if now.Pool != v.pool || now.Overhead != v.pool+f.configs.LogReserve {
			t.Errorf("%s has a pool of %d and an overhead of %d, wanted a pool of %d", v.rec.Name, now.Pool, now.Overhead,
				v.pool)
		}
	}
	f.remove(rec)
}

// TestPoolOfOldVolume: the state of a driver that had one size for all volumes of a node says nothing of it.
func TestPoolOfOldVolume(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("old", volume.XFS, 128*volume.MiB)
	rec.Pool = 0
	f.must(f.store.Put(rec))
	f.stageAt(rec)
	rec, err := f.Volume(rec.ID)
	f.must(err)
	if got := f.poolServed(rec); got != f.configs.Pool {
		t.Errorf("it is served with a pool of %d", got)
	}
	f.Shutdown()
	made := f.configs.Pool
	f.configs.Pool *= 2
	f.start()
	rec, err = f.Volume(rec.ID)
	f.must(err)
	if got := f.poolServed(rec); got != made {
		t.Errorf("made with a pool of %d, it is served with one of %d after the node's was raised", made, got)
	}
	f.remove(rec)
}

// TestPoolOfCopy: a copy has the pool of its class, and room for its original's files of the pool, which come with it.
func TestPoolOfCopy(t *testing.T) {
	for _, fsType := range []string{volume.XFS, volume.Ext4} {
		t.Run(fsType, func(t *testing.T) {
			f := newFixture(t, "")
			const size, pool = 128 * volume.MiB, 256 * volume.MiB
			params := volume.Params{Mode: contract.Strict, Device: volume.DeviceEmulated}
			small := f.create("small", fsType, size)
			f.stageAt(small)
			params.Pool = pool
			large, err := f.Create(f.ctx, CreateRequest{Name: "large", FSType: fsType, Required: size, Params: params})
			f.must(err)
			f.stageAt(large)
			for _, c := range []struct {
				name string
				of   *volume.Record
				pool int64
			}{{"larger", small, pool}, {"smaller", large, 0}} {
				params.Pool = c.pool
				rec, err := f.Create(f.ctx, CreateRequest{
					Name: c.name, FSType: fsType, Required: size, Params: params, Source: &volume.Source{VolumeID: c.of.ID},
				})
				f.must(err)
				usage, err := filesystem.Measure(f.stageAt(rec))
				f.must(err)
				if want := size + max(c.pool, c.of.Pool) + f.configs.LogReserve; usage.Available < want-volume.MiB {
					t.Errorf("%s: %d bytes are available, wanted %d", c.name, usage.Available, want)
				}
				if want := max(c.pool, f.configs.Pool); rec.Pool != want {
					t.Errorf("%s: a pool of %d, wanted %d", c.name, rec.Pool, want)
				}
				f.remove(rec)
			}
			f.remove(small)
			f.remove(large)
		})
	}
}
