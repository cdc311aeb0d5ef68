// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// poolInterval is how often thin pools are looked at.
const poolInterval = 30 * time.Second

// Pools returns the thin pools of the node. Where no class and no volume is thin nobody is asked.
func (n *Node) Pools(ctx context.Context) ([]device.Pool, error) {
	var pools []device.Pool
	names := n.DeviceNames()
	errs := make([]error, 0, len(names))
	for _, name := range names {
		found, err := n.poolsOf(ctx, n.config.Managers[name])
		pools = append(pools, found...)
		errs = append(errs, err)
	}
	return pools, errors.Join(errs...)
}

func (n *Node) poolsOf(ctx context.Context, m device.Manager) ([]device.Pool, error) {
	thin, ok := m.(device.Thin)
	if !ok || !thin.OffersThin() && !n.hasThin(m.Name()) {
		return nil, nil
	}
	pooled, ok := thin.Thin().(device.Pooled)
	if !ok {
		return nil, nil
	}
	return pooled.Pools(ctx)
}

func (n *Node) hasThin(name string) bool {
	for _, store := range []*volume.Store{n.store, n.snapshots} {
		records, _ := store.List() // whoever looks after volumes tells of those that cannot be read
		for _, rec := range records {
			if rec.Thin && rec.Device == name {
				return true
			}
		}
	}
	return false
}

// poolWatch remembers what was told of thin pools.
type poolWatch struct {
	looked time.Time
	failed bool
	told   map[string]device.PoolState
}

// watch tells the node's readers when a pool gets worse, once for each state.
func (w *poolWatch) watch(ctx context.Context, n *Node) {
	if !w.looked.IsZero() && time.Since(w.looked) < poolInterval {
		return
	}
	w.looked = time.Now()
	pools, err := n.Pools(ctx)
	if err != nil && !w.failed {
		klog.FromContext(ctx).Error(err, "Cannot look at all thin pools")
	}
	w.failed = err != nil
	for _, p := range pools {
		w.report(ctx, n, p)
	}
}

func (w *poolWatch) report(ctx context.Context, n *Node, p device.Pool) {
	key, state := p.Region+"/"+p.Name, p.State()
	before := w.told[key]
	if state == before || state == device.PoolWell && before == "" {
		return
	}
	if w.told == nil {
		w.told = map[string]device.PoolState{}
	}
	w.told[key] = state
	klog.FromContext(ctx).Info("A thin pool changed", "pool", p.String(), "state", state)
	const remedy = "delete volumes or snapshots, or make the pool larger (size of thinPool in devices.lvm.classes)"
	switch state {
	case device.PoolNearFull:
		n.config.Events.OnNode(ctx, n.config.Name, true, events.ReasonThinPoolNearFull, fmt.Sprintf("%s; %s", p, remedy))
	case device.PoolFilling:
		n.config.Events.OnNode(ctx, n.config.Name, true, events.ReasonThinPoolFull,
			fmt.Sprintf("%s; no new volume or snapshot is made in it; %s", p, remedy))
	case device.PoolFull:
		n.config.Events.OnNode(ctx, n.config.Name, true, events.ReasonThinPoolFull,
			fmt.Sprintf("%s; writes to its volumes that need space fail, and fsync says so; %s, then delete the pods of "+
				"volumes whose file system stopped", p, remedy))
	case device.PoolWell:
	}
}
