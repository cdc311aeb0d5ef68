// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/csi-driver/internal/agent"
	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/module"
	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// fixedNode is a node with something of everything that the collectors can show.
type fixedNode struct{}

func (fixedNode) Reports(context.Context) ([]node.Report, error) {
	return []node.Report{served(), sick(), unused()}, nil
}
func (fixedNode) LibraryReady() error { return nil }
func (fixedNode) Memory(context.Context) ([]nvdimm.Range, error) {
	return []nvdimm.Range{
		{Name: "region0", Provider: "ACPI.NFIT", Bytes: 512 * volume.GiB, Memory: volume.MemoryADR},
		{Name: "region1", Provider: "e820", Bytes: volume.GiB, Memory: volume.MemoryVolatile},
	}, nil
}
func (fixedNode) Orphans() []node.Orphan {
	return []node.Orphan{{Kind: node.OrphanDevice, ID: "left"}}
}
func (fixedNode) Erasures([]node.Report) ([]node.Erasure, error) {
	return []node.Erasure{{ID: "gone", Bytes: volume.GiB, Err: errors.New("no")}, {ID: "going", Bytes: volume.GiB}}, nil
}
func (fixedNode) Jobs([]node.Report) ([]*volume.Record, error) {
	rec := record("snapshot-1", "data", contract.Strict)
	rec.Job = &volume.Job{Kind: volume.JobCopy, Done: volume.GiB, Total: 2 * volume.GiB}
	return []*volume.Record{rec}, nil
}
func (fixedNode) DeviceNames() []string { return []string{volume.DeviceEmulated, volume.DeviceLVM} }
func (fixedNode) Capacity(context.Context, volume.Params, bool) (node.Capacity, error) {
	return node.Capacity{Largest: 8 * volume.GiB}, nil
}
func (fixedNode) DeviceClasses(_ context.Context, name string) ([]device.Class, error) {
	if name != volume.DeviceLVM {
		return nil, nil
	}
	return []device.Class{{Name: "fast", Default: true, Capacity: 32 * volume.GiB, Available: 9 * volume.GiB}}, nil
}
func (fixedNode) Pools(context.Context) ([]device.Pool, error) {
	return []device.Pool{{
		Name: "pool", Region: "region0", Class: "bulk", Data: 16 * volume.GiB, DataUsed: 4 * volume.GiB,
		Metadata: 32 * volume.MiB, MetadataUsed: 2 * volume.MiB, Virtual: 20 * volume.GiB,
	}}, nil
}
func (fixedNode) Status() module.Status {
	return module.Status{
		State: module.LoadRefused, Why: module.WhyLockdown, Release: "6.1.0-1-amd64", Version: "1",
		Since: time.Unix(1700000000, 0),
	}
}
func (fixedNode) Providers() map[string]string { return map[string]string{"xfs": "reflink"} }

func record(id, claim string, mode contract.Mode) *volume.Record {
	return &volume.Record{
		ID: id, Mode: mode, Device: volume.DeviceEmulated, FSType: volume.XFS,
		PVC:    volume.PVC{Namespace: "shop", Name: claim},
		Memory: volume.MemoryEmulated, Size: volume.GiB, DeviceSize: 2 * volume.GiB, Staged: &volume.Staging{
			Path: "/staging",
		},
	}
}

// served is a volume that does all that a volume does.
func served() node.Report {
	s := &splitfs.Status{Provider: "reflink", Totals: map[string]int64{}}
	s.Pool.Bytes, s.Pool.FreeBytes = 128*volume.MiB, 32*volume.MiB
	s.Processes = append(s.Processes,
		splitfs.Process{PID: 1, Mode: "strict", Alive: true, Counters: map[string]int64{"peek_ops": 5, "unpeek_ops": 3}},
		splitfs.Process{PID: 2, Mode: "strict", Alive: true, Counters: map[string]int64{"unpeek_ops": 1}},
		splitfs.Process{PID: 3, Mode: "strict", Counters: map[string]int64{"peek_ops": 9}})
	for i, c := range counters {
		s.Totals[c.name] = int64(1000 * (i + 1))
	}
	s.Unserved = splitfs.Unserved{Enforcement: splitfs.EnforcementOn, Refused: 2, Durable: 1}
	s.Latency = map[string]map[string]splitfs.Latency{"strict": {}}
	for i, call := range []string{"append", "overwrite", "read", "fsync"} {
		ns := uint64(256) << i
		s.Latency["strict"][call] = splitfs.Latency{
			Timed: 101, SumNS: 101 * ns, Buckets: [][2]uint64{{ns, 100}, {ns * 64, 1}},
		}
	}
	s.Recovery.Runs, s.Recovery.Records, s.Recovery.Replayed = 1, 10, 5
	return node.Report{
		Record: record("splitfs-1", "data", contract.Strict), Emulated: true, Agent: agent.State{Ready: true, Restarts: 1},
		Status: s,
	}
}

// sick has a problem of each severity, no agent and no answer.
func sick() node.Report {
	return node.Report{
		Record: record("splitfs-2", "cache", contract.Sync), Emulated: true, StatusErr: errors.New("no answer"),
		Agent: agent.State{Restarts: 4},
		Problems: []node.Problem{
			{Severity: node.Degraded, Reason: "NoAgent"}, {Severity: node.Inaccessible, Reason: "NotMounted"},
			{Severity: node.DataLoss, Reason: "RecoveryQuarantined"},
		},
	}
}

func unused() node.Report {
	r := node.Report{Record: record("splitfs-3", "logs", contract.Posix), Emulated: true}
	r.Record.Staged = nil
	return r
}

// TestSamples keeps charts/splitfs/testdata/metrics/node.prom what the collectors print.
func TestSamples(t *testing.T) {
	logger := klog.LoggerWithName(ktesting.NewLogger(t, ktesting.NewConfig()), "metrics")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(logger, fixedNode{}), NewModuleCollector(fixedNode{}))
	charttest.CheckSamples(t, "node", registry, "splitfs_")
}
