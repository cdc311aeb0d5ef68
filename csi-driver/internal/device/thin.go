// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"fmt"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Thin is what a Manager implements that makes thin devices too. They take space when they are written to, out of a
// pool that may have promised more than it holds, and have no direct access: they are served as emulated ones are.
type Thin interface {
	// Thin returns the manager as it is for thin devices that exist.
	Thin() Manager
	// OffersThin says whether new devices can be thin.
	OffersThin() bool
}

// IsThin says whether a manager makes thin devices and no other.
func IsThin(m Manager) bool {
	_, thin := m.(Pooled)
	return thin
}

// Pooled is what the manager of thin devices implements.
type Pooled interface {
	Manager
	// Pools returns the pools that thin devices are in.
	Pools(ctx context.Context) ([]Pool, error)
}

// Pool is what thin devices take their space from.
type Pool struct {
	// Name is the operator's name of the pool, Region where it is, Class the device class that new devices in it are of:
	// empty when none is defined any more.
	Name, Region, Class string
	// Data is what it holds, DataUsed how much of it is taken. Virtual is what it has promised to all of its devices.
	Data, DataUsed, Virtual int64
	// Metadata is the space for the map of what is where.
	Metadata, MetadataUsed int64
	// Failure is what the kernel says when the pool does not work any more.
	Failure string
}

// What percentages of a pool's data or metadata mean. Between the two there is time to make room; from the second on
// nothing new is made in the pool, so that what is left is for the devices that are there.
const (
	poolWarns   = 80
	poolRefuses = 90
)

// Percent is how full the pool is, by data or metadata, whichever is fuller. A pool that has promised no more than it
// holds has data for all of its devices, however much of it they have taken.
func (p Pool) Percent() int64 {
	full := percent(p.MetadataUsed, p.Metadata)
	if p.Virtual > p.Data {
		full = max(full, percent(p.DataUsed, p.Data))
	}
	return full
}

func percent(used, size int64) int64 {
	if size <= 0 {
		return 0
	}
	return int64(float64(used) / float64(size) * 100)
}

// PoolState says how urgent it is to do something about a pool.
type PoolState string

// States of a pool, from good to bad.
const (
	PoolWell     PoolState = "Well"
	PoolNearFull PoolState = "NearFull"
	// PoolFilling: nothing new is made in it.
	PoolFilling PoolState = "Filling"
	// PoolFull: writes that need space fail.
	PoolFull PoolState = "Full"
)

// State of the pool.
func (p Pool) State() PoolState {
	switch {
	case p.Failure != "" || p.Percent() >= 100:
		return PoolFull
	case p.Percent() >= poolRefuses:
		return PoolFilling
	case p.Percent() >= poolWarns:
		return PoolNearFull
	}
	return PoolWell
}

// Refuses says why nothing new may be made in the pool, nil when it may.
func (p Pool) Refuses() error {
	if state := p.State(); state != PoolFilling && state != PoolFull {
		return nil
	}
	return fmt.Errorf("%w: %s", volume.ErrExhausted, p)
}

// String describes how full the pool is.
func (p Pool) String() string {
	text := fmt.Sprintf("thin pool %s in %s: %d of %d MiB of data are taken, %d percent of its metadata; its volumes may "+
		"take %d MiB", p.Name, p.Region, p.DataUsed/volume.MiB, p.Data/volume.MiB, percent(p.MetadataUsed, p.Metadata),
		p.Virtual/volume.MiB)
	if p.Failure != "" {
		text += "; the kernel says of it: " + p.Failure
	}
	return text
}

// Of returns the manager for a volume that exists.
func (m Managers) Of(rec *volume.Record) (Manager, error) {
	manager, err := m.Get(rec.Device)
	if err != nil || !rec.Thin {
		return manager, err
	}
	thin, ok := manager.(Thin)
	if !ok {
		return nil, fmt.Errorf("volume %s is thin, and %q devices never are", rec.ID, rec.Device)
	}
	return thin.Thin(), nil
}
