// SPDX-License-Identifier: Apache-2.0

// Package metrics shows the node's volumes to Prometheus.
package metrics

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

const (
	prefix = "splitfs_"
	// collectTimeout bounds one scrape, cacheFor spares the volumes when several scrapers come at once.
	collectTimeout = 8 * time.Second
	cacheFor       = 3 * time.Second
)

// counters are the data path's counters, in the order of docs/architecture.md, and what they count.
var counters = []struct{ name, help string }{
	{"read_ops", "Reads served by the library."},
	{"read_bytes", "Bytes read by the library."},
	{"append_ops", "Appends served by the library."},
	{"append_bytes", "Bytes appended by the library."},
	{"overwrite_ops", "Overwrites served by the library."},
	{"overwrite_bytes", "Bytes overwritten by the library."},
	{"staged_bytes", "Bytes written to staging files."},
	{"relink_ops", "Relinks of staged ranges into their files."},
	{"relink_bytes", "Bytes relinked into their files."},
	{"fsync_ops", "fsync and fdatasync calls served by the library."},
	{"records", "Log records written."},
	{"passthrough_ops", "Calls that were handed to the kernel."},
	{"checkpoints", "Times a log was cleared after everything in it was in place."},
	{"peek_ops", "Snapshots taken without a copy."},
	{"unpeek_ops", "Snapshots given back."},
	{"saved_bytes", "Bytes of snapshots that were copied because their file changed."},
	{"patch_ops", "Buffers that were patched into files."},
	{"patch_bytes", "Bytes patched into files."},
	{"adopted_bytes", "Bytes of patches that became parts of files without a copy."},
	{"swap_ops", "Ranges of two files that changed places."},
	{"swap_bytes", "Bytes of each of the two files that changed places."},
	{"atomic_ops", "Atomic writes of several ranges."},
	{"atomic_bytes", "Bytes of these."},
}

// Source is where the reports come from.
type Source interface {
	Reports(ctx context.Context) ([]node.Report, error)
	LibraryReady() error
	Memory(ctx context.Context) ([]nvdimm.Range, error)
	Orphans() []node.Orphan
	Erasures(reports []node.Report) ([]node.Erasure, error)
	Jobs(reports []node.Report) ([]*volume.Record, error)
	DeviceNames() []string
	Capacity(ctx context.Context, params volume.Params, block bool) (node.Capacity, error)
	DeviceClasses(ctx context.Context, name string) ([]device.Class, error)
	Pools(ctx context.Context) ([]device.Pool, error)
}

// deviceLabel is the kind of a device, as the StorageClass parameter of this name says it.
const deviceLabel = "device"

// classLabel is a device class.
const classLabel = "class"

var volumeLabels = []string{"volume_id", "namespace", "persistentvolumeclaim"}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, append(append([]string{}, volumeLabels...), labels...), nil)
}

func nodeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, nil, nil)
}

var (
	volumeInfo = desc("volume_info", "Properties of a volume; always 1.", "mode", deviceLabel, "fstype", "emulated",
		"provider", "memory", "durability")
	volumeSize     = desc("volume_size_bytes", "What the volume was promised to hold.")
	volumeDevice   = desc("volume_device_bytes", "What the volume takes of the node: size, pool, logs and file system.")
	volumeStaged   = desc("volume_staged", "1 when the volume is staged on this node.")
	volumeProblem  = desc("volume_problem", "1 for each thing that is wrong with the volume.", "severity", "reason")
	volumeStatusUp = desc("volume_status_up", "1 when the volume answered to splitfs status.")
	agentUp        = desc("agent_up", "1 when the volume's agent serves.")
	agentRestarts  = desc("agent_restarts_total", "How often the volume's agent died since the node service started.")
	poolBytes      = desc("volume_pool_bytes", "Size of the staging pool.")
	poolFreeBytes  = desc("volume_pool_free_bytes", "Bytes of the staging pool that are not in use.")
	processes      = desc("volume_processes", "Live processes that use the volume through the library.", "mode")
	snapshotsHeld  = desc("volume_snapshots_held",
		"Snapshots without a copy that living processes have taken and not given back.")
	unservedOpens = desc("volume_unserved_opens_total",
		"Opens for writing by programs without the library that were refused, or made the file durable, since "+
			"the agent started.", "did")
	unservedState = desc("volume_unserved_enforced",
		"1 when the agent sees all opens of programs without the library, 0 when it is to and cannot; absent when "+
			"nobody asks for it.")
	recoveryRuns    = desc("recovery_runs_total", "Recoveries of the volume.")
	recoveryRecords = desc("recovery_records_total", "Log records that recoveries read.")
	recoveryReplays = desc("recovery_replayed_total", "Log records that recoveries replayed.")
	recoveryAside   = desc("recovery_quarantined_total", "Damaged or foreign log files that recoveries set aside.")
	protocolRefused = desc("protocol_refused_total",
		"How often the agent refused a process whose library speaks no version of the protocol that it knows.")

	libraryInstalled = nodeDesc("node_library_installed", "1 when pods on this node find libsplit.so.")
	availableBytes   = prometheus.NewDesc(prefix+"node_available_bytes",
		"The most that one more volume of a device could hold.", []string{deviceLabel}, nil)
	classAvailable = prometheus.NewDesc(prefix+"device_class_available_bytes",
		"The most that one more volume of a device class could hold.", []string{deviceLabel, classLabel}, nil)
	classCapacity = prometheus.NewDesc(prefix+"device_class_capacity_bytes",
		"What the volumes of a device class can take together.", []string{deviceLabel, classLabel}, nil)
	poolLabels   = []string{"pool", "region", classLabel}
	poolData     = prometheus.NewDesc(prefix+"thin_pool_data_bytes", "What a thin pool holds.", poolLabels, nil)
	poolDataUsed = prometheus.NewDesc(prefix+"thin_pool_data_used_bytes",
		"How much of a thin pool is taken; when it is all, writes fail.", poolLabels, nil)
	poolMetadata = prometheus.NewDesc(prefix+"thin_pool_metadata_bytes",
		"Space for a thin pool's map of what is where.", poolLabels, nil)
	poolMetadataUsed = prometheus.NewDesc(prefix+"thin_pool_metadata_used_bytes",
		"How much of that is taken; when it is all, writes fail.", poolLabels, nil)
	poolVirtual = prometheus.NewDesc(prefix+"thin_pool_virtual_bytes",
		"What the volumes and snapshots in a thin pool may take together.", poolLabels, nil)
	poolState = prometheus.NewDesc(prefix+"thin_pool_refuses",
		"1 when a thin pool is so full that nothing new is made in it.", poolLabels, nil)
	memoryBytes = prometheus.NewDesc(prefix+"node_memory_bytes",
		"Persistent memory of the node, and volatile memory that shows itself like it, by what it promises when "+
			"the power fails.", []string{"range", "provider", "memory", "durable"}, nil)
	jobBytes = desc("job_bytes", "Size of the work that a volume or snapshot waits for; kind says what it is.",
		"kind")
	jobDoneBytes = desc("job_done_bytes", "How much of it is done.", "kind")
	orphans      = prometheus.NewDesc(prefix+"node_orphans",
		"Things found on the node that no volume accounts for, by kind.", []string{"kind"}, nil)
	erasing = nodeDesc("node_erasing",
		"Deleted volumes and snapshots whose bytes are being erased, or wait for it.")
	erasingBytes = nodeDesc("node_erasing_bytes", "The space that these still take.")
	eraseFailed  = nodeDesc("node_erase_failed", "How many of these could not be erased so far.")
	reportErrors = nodeDesc("node_report_errors", "1 when the last collection could not report on everything.")

	counterDescs = func() []*prometheus.Desc {
		list := make([]*prometheus.Desc, 0, len(counters))
		for _, c := range counters {
			list = append(list, desc(c.name+"_total", c.help))
		}
		return list
	}()
)

// Collector is a prometheus.Collector over the volumes of a node.
type Collector struct {
	source Source
	logger klog.Logger

	mu     sync.Mutex
	at     time.Time
	cached []node.Report
	err    error
}

// NewCollector returns a Collector.
func NewCollector(logger klog.Logger, source Source) *Collector {
	return &Collector{source: source, logger: logger}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{
		volumeInfo, volumeSize, volumeDevice, volumeStaged, volumeProblem, volumeStatusUp, agentUp, agentRestarts, poolBytes,
		poolFreeBytes,
		processes, snapshotsHeld, unservedOpens, unservedState, recoveryRuns, recoveryRecords, recoveryReplays, recoveryAside,
		protocolRefused, libraryInstalled,
		availableBytes, classAvailable, classCapacity, memoryBytes,
		poolData, poolDataUsed, poolMetadata, poolMetadataUsed, poolVirtual, poolState,
		callSeconds, jobBytes, jobDoneBytes, orphans, erasing, erasingBytes, eraseFailed,
		reportErrors,
	}, counterDescs...) {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), c.logger), collectTimeout)
	defer cancel()
	reports, err := c.reports(ctx)
	if err != nil {
		c.logger.Error(err, "Cannot report on all volumes")
	}
	ch <- gauge(reportErrors, boolean(err != nil))
	ch <- gauge(libraryInstalled, boolean(c.source.LibraryReady() == nil))
	c.collectPools(ctx, ch) // what is urgent comes first: a slow machine may not come to the end of this
	for _, name := range c.source.DeviceNames() {
		if capacity, err := c.source.Capacity(ctx, volume.Params{Device: name, Durability: volume.DurabilityAny},
			false); err != nil {
			c.logger.Error(err, "Cannot report the capacity", deviceLabel, name)
		} else {
			ch <- gauge(availableBytes, float64(capacity.Largest), name)
		}
		c.collectClasses(ctx, ch, name)
	}
	c.collectMemory(ctx, ch)
	c.collectJobs(ch, reports)
	c.collectOrphans(ch)
	c.collectErasures(ch, reports)
	for _, r := range reports {
		c.collectVolume(ch, r)
	}
}

func (c *Collector) collectClasses(ctx context.Context, ch chan<- prometheus.Metric, name string) {
	classes, err := c.source.DeviceClasses(ctx, name)
	if err != nil {
		c.logger.Error(err, "Cannot report the device classes", deviceLabel, name)
	}
	for _, class := range classes {
		ch <- gauge(classCapacity, float64(class.Capacity), name, class.Name)
		params := volume.Params{Device: name, Class: class.Name, Durability: volume.DurabilityAny}
		capacity, err := c.source.Capacity(ctx, params, false)
		if err != nil {
			c.logger.Error(err, "Cannot report the capacity", deviceLabel, name, classLabel, class.Name)
			continue
		}
		ch <- gauge(classAvailable, float64(capacity.Largest), name, class.Name)
	}
}

func (c *Collector) collectPools(ctx context.Context, ch chan<- prometheus.Metric) {
	pools, err := c.source.Pools(ctx)
	if err != nil {
		c.logger.Error(err, "Cannot report all thin pools")
	}
	for _, p := range pools {
		labels := []string{p.Name, p.Region, p.Class}
		ch <- gauge(poolData, float64(p.Data), labels...)
		ch <- gauge(poolDataUsed, float64(p.DataUsed), labels...)
		ch <- gauge(poolMetadata, float64(p.Metadata), labels...)
		ch <- gauge(poolMetadataUsed, float64(p.MetadataUsed), labels...)
		ch <- gauge(poolVirtual, float64(p.Virtual), labels...)
		ch <- gauge(poolState, boolean(p.Refuses() != nil), labels...)
	}
}

func (c *Collector) collectMemory(ctx context.Context, ch chan<- prometheus.Metric) {
	ranges, err := c.source.Memory(ctx)
	if err != nil {
		c.logger.Error(err, "Cannot report the node's memory")
	}
	for _, r := range ranges {
		ch <- gauge(memoryBytes, float64(r.Bytes), r.Name, r.Provider, string(r.Memory),
			strconv.FormatBool(r.Memory.Durable()))
	}
}

func (c *Collector) collectOrphans(ch chan<- prometheus.Metric) {
	count := map[node.OrphanKind]int{}
	for _, o := range c.source.Orphans() {
		count[o.Kind]++
	}
	for _, kind := range node.OrphanKinds {
		ch <- gauge(orphans, float64(count[kind]), string(kind))
	}
}

func (c *Collector) collectJobs(ch chan<- prometheus.Metric, reports []node.Report) {
	list, err := c.source.Jobs(reports)
	if err != nil {
		c.logger.Error(err, "Cannot report everything that is being worked on")
	}
	for _, rec := range list {
		labels := []string{rec.ID, rec.PVC.Namespace, rec.PVC.Name, string(rec.Job.Kind)}
		ch <- gauge(jobBytes, float64(rec.Job.Total), labels...)
		ch <- gauge(jobDoneBytes, float64(rec.Job.Done), labels...)
	}
}

func (c *Collector) collectErasures(ch chan<- prometheus.Metric, reports []node.Report) {
	list, err := c.source.Erasures(reports)
	if err != nil {
		c.logger.Error(err, "Cannot report everything that is being erased")
	}
	var bytes int64
	failed := 0
	for _, e := range list {
		bytes += e.Bytes
		if e.Err != nil {
			failed++
		}
	}
	ch <- gauge(erasing, float64(len(list)))
	ch <- gauge(erasingBytes, float64(bytes))
	ch <- gauge(eraseFailed, float64(failed))
}

func (c *Collector) reports(ctx context.Context) ([]node.Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || time.Since(c.at) > cacheFor {
		c.cached, c.err = c.source.Reports(ctx)
		c.at = time.Now()
	}
	return c.cached, c.err
}

func (c *Collector) collectVolume(ch chan<- prometheus.Metric, r node.Report) {
	labels := []string{r.Record.ID, r.Record.PVC.Namespace, r.Record.PVC.Name}
	with := func(more ...string) []string { return append(append([]string{}, labels...), more...) }
	provider := ""
	if r.Status != nil {
		provider = r.Status.Provider
	}
	ch <- gauge(volumeInfo, 1,
		with(string(r.Record.Mode), r.Record.Device, r.Record.FSType, strconv.FormatBool(r.Emulated), provider,
			string(r.Record.Memory), string(r.Record.Durability.OrAny()))...)
	ch <- gauge(volumeSize, float64(r.Record.Size), labels...)
	ch <- gauge(volumeDevice, float64(r.Record.DeviceSize), labels...)
	ch <- gauge(volumeStaged, boolean(r.Record.Staged != nil), labels...)
	type problem struct{ severity, reason string }
	told := map[problem]bool{} // two problems of one kind are one series
	for _, p := range r.Problems {
		if kind := (problem{string(p.Severity), p.Reason}); !told[kind] {
			told[kind] = true
			ch <- gauge(volumeProblem, 1, with(kind.severity, kind.reason)...)
		}
	}
	if r.Record.Staged == nil || r.Record.Block { // nothing serves it
		return
	}
	ch <- gauge(agentUp, boolean(r.Agent.Ready), labels...)
	ch <- counter(agentRestarts, float64(r.Agent.Restarts), labels...)
	ch <- gauge(volumeStatusUp, boolean(r.Status != nil), labels...)
	if r.StatusErr != nil {
		c.logger.Error(r.StatusErr, "A volume does not answer", "volume-id", r.Record.ID)
	}
	if r.Status != nil {
		collectStatus(ch, r, labels, with)
	}
}

func collectStatus(ch chan<- prometheus.Metric, r node.Report, labels []string, with func(...string) []string) {
	s := r.Status
	ch <- gauge(poolBytes, float64(s.Pool.Bytes), labels...)
	ch <- gauge(poolFreeBytes, float64(s.Pool.FreeBytes), labels...)
	ch <- gauge(snapshotsHeld, float64(held(s.Processes)), labels...)
	alive := map[string]int{}
	for _, p := range s.Processes {
		if p.Alive {
			alive[p.Mode]++
		}
	}
	for mode, n := range alive {
		ch <- gauge(processes, float64(n), with(mode)...)
	}
	ch <- counter(unservedOpens, float64(s.Unserved.Refused), with(string(contract.Refuse))...)
	ch <- counter(unservedOpens, float64(s.Unserved.Durable), with(string(contract.Durable))...)
	switch s.Unserved.Enforcement {
	case splitfs.EnforcementOn:
		ch <- gauge(unservedState, 1, labels...)
	case splitfs.EnforcementCannot:
		ch <- gauge(unservedState, 0, labels...)
	}
	ch <- counter(recoveryRuns, float64(s.Recovery.Runs), labels...)
	ch <- counter(recoveryRecords, float64(s.Recovery.Records), labels...)
	ch <- counter(recoveryReplays, float64(s.Recovery.Replayed), labels...)
	ch <- counter(recoveryAside, float64(s.Recovery.Quarantined), labels...)
	ch <- counter(protocolRefused, float64(s.Protocol.Refused), labels...)
	collectLatency(ch, s.Latency, with)
	for i, c := range counters {
		ch <- counter(counterDescs[i], float64(s.Totals[c.name]), labels...)
	}
}

// held are the snapshots that living processes have taken and not given back. A child gives back what its parent has
// taken.
func held(processes []splitfs.Process) (n int64) {
	for _, p := range processes {
		if p.Alive {
			n += max(0, p.Counters["peek_ops"]-p.Counters["unpeek_ops"])
		}
	}
	return n
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
