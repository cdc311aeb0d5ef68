// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/agent"
	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/filesystem"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Stats measures a volume at a path where it is mounted.
func (n *Node) Stats(id, path string) (filesystem.Usage, error) {
	rec, err := n.store.Get(id)
	if errors.Is(err, volume.ErrNotFound) {
		if isLibrary, err := n.showsLibrary(path); err != nil {
			return filesystem.Usage{}, err
		} else if isLibrary { // kubelet asks for inline volumes too
			return filesystem.Measure(path)
		}
	}
	if err != nil {
		return filesystem.Usage{}, err
	}
	mounted, err := mounts.At(path)
	if err != nil {
		return filesystem.Usage{}, err
	}
	if mounted == nil {
		return filesystem.Usage{}, fmt.Errorf("volume %s: %w at %s: nothing is mounted there", rec.ID, volume.ErrNotFound,
			path)
	}
	if rec.Block {
		return filesystem.Usage{Total: rec.Size}, nil
	}
	return filesystem.Measure(path)
}

// showsLibrary says whether path shows the library to a pod.
func (n *Node) showsLibrary(path string) (bool, error) {
	mounted, err := mounts.At(path)
	if err != nil || mounted == nil {
		return false, err
	}
	return sameFile(path, n.library.podDir(filepath.Base(mounted.Root))) || sameFile(path, n.library.dir), nil
}

// Health returns what is wrong with a volume.
func (n *Node) Health(id string) ([]Problem, error) {
	rec, err := n.get(id)
	if err != nil {
		return nil, err
	}
	return n.problems(rec)
}

// Report is what monitoring wants to know of one volume.
type Report struct {
	Record   *volume.Record
	Emulated bool
	Agent    agent.State
	Problems []Problem
	// Status is nil when the volume is not mounted or did not answer; StatusErr says why in the second case.
	Status    *splitfs.Status
	StatusErr error
}

// statusTimeout keeps one sick volume from holding up the metrics of all.
const statusTimeout = 3 * time.Second

// Reports returns a report of every volume, and what is wrong with those that have none.
func (n *Node) Reports(ctx context.Context) ([]Report, error) {
	records, listErr := n.store.List()
	errs := []error{listErr}
	reports := make([]Report, 0, len(records))
	for _, rec := range records {
		r := Report{Record: rec}
		r.Agent, _ = n.agents.State(rec.ID)
		var err error
		if r.Problems, err = n.problems(rec); err != nil {
			errs = append(errs, err)
		}
		if manager, err := n.config.Managers.Of(rec); err == nil {
			r.Emulated = manager.Emulated()
		}
		if rec.Staged != nil && r.Agent.Ready {
			statusCtx, cancel := context.WithTimeout(ctx, statusTimeout)
			r.Status, r.StatusErr = n.config.CLI.Status(statusCtx, rec.Staged.Path)
			cancel()
		}
		reports = append(reports, r)
	}
	return reports, errors.Join(errs...)
}

// DeviceReport is what monitoring wants to know of one device manager.
type DeviceReport struct {
	Name      string
	Emulated  bool
	Available int64
	// Memory is the strongest that devices can be made of.
	Memory volume.Memory
	// Regions are what the devices are made of, where the manager can say it.
	Regions []device.Region
	// Pools are the thin pools that it keeps.
	Pools []device.Pool
	// Err says why no device can be made now.
	Err error
}

// DeviceNames are the kinds of devices that volumes can be made of here, in order.
func (n *Node) DeviceNames() []string { return slices.Sorted(maps.Keys(n.config.Managers)) }

// Devices reports on every device manager, by name.
func (n *Node) Devices(ctx context.Context) []DeviceReport {
	reports := make([]DeviceReport, 0, len(n.config.Managers))
	for _, name := range n.DeviceNames() {
		m := n.config.Managers[name]
		r := DeviceReport{Name: name, Emulated: m.Emulated(), Err: m.Check(ctx)}
		var err error
		if r.Available, err = m.Available(ctx); err != nil {
			r.Err = errors.Join(r.Err, err)
		}
		if inventory, ok := m.(device.Inventory); ok {
			if r.Regions, err = inventory.Regions(ctx); err != nil {
				r.Err = errors.Join(r.Err, err)
			}
		}
		if r.Pools, err = n.poolsOf(ctx, m); err != nil {
			r.Err = errors.Join(r.Err, err)
		}
		r.Memory = strongest(m, r.Regions)
		reports = append(reports, r)
	}
	return reports
}

// LibraryDigest returns the SHA-256 of the library that pods find on this node.
func (n *Node) LibraryDigest() (string, error) {
	content, err := os.ReadFile(n.library.path())
	if err != nil {
		return "", fmt.Errorf("the library: %w", err)
	}
	return digest(content), nil
}

// LibraryReady says whether pods find the library on this node.
func (n *Node) LibraryReady() error { return unix.Access(n.library.path(), unix.R_OK) }

func ignoreNotFound(err error) error {
	if errors.Is(err, volume.ErrNotFound) {
		return nil
	}
	return err
}
