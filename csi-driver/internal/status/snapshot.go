// SPDX-License-Identifier: Apache-2.0

// Package status shows a node and its volumes as Kubernetes objects, SplitFSNode and SplitFSVolume. It only reports:
// nothing waits for it, and nothing acts on what it wrote.
package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/driverinfo"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/module"
	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// What the objects list at most; the schema has the same numbers.
const (
	maxSummaries = 128
	maxPods      = 64
	maxRanges    = 64
	// maxMessage is what the API allows in a condition.
	maxMessage = 32768
)

// Node is where the state of the node and its volumes comes from.
type Node interface {
	Reports(ctx context.Context) ([]node.Report, error)
	Devices(ctx context.Context) []node.DeviceReport
	Erasures(reports []node.Report) ([]node.Erasure, error)
	Memory(ctx context.Context) ([]nvdimm.Range, error)
	LibraryDigest() (string, error)
	Check(ctx context.Context) error
}

// Module is where the state of the kernel module comes from.
type Module interface {
	Status() module.Status
	Providers() map[string]string
}

// snapshot is all that there is to write.
type snapshot struct {
	node    v1alpha1.SplitFSNodeStatus
	volumes map[string]v1alpha1.SplitFSVolumeStatus
	// complete says that every volume of the node is in volumes: only then may objects of others be removed.
	complete bool
}

func observe(ctx context.Context, name string, n Node, m Module) snapshot {
	reports, err := n.Reports(ctx)
	s := snapshot{volumes: map[string]v1alpha1.SplitFSVolumeStatus{}, complete: err == nil}
	for _, r := range reports {
		s.volumes[r.Record.ID] = volumeStatus(name, r)
	}
	s.node = v1alpha1.SplitFSNodeStatus{
		DriverVersion: driverinfo.Version,
		Module:        moduleStatus(m.Status()),
		Relink:        relink(m.Providers()),
		VolumeCount:   int32(len(reports)),
		Volumes:       summaries(s.volumes),
	}
	devices := n.Devices(ctx)
	addDevices(&s.node, devices)
	addMemory(ctx, &s.node, n, devices)
	addVolumes(&s.node, reports)
	addErasures(&s.node, n, reports)
	addLibrary(&s.node, n)
	setDevicesReady(&s.node, devices)
	setThinPools(&s.node, devices)
	setModuleReady(&s.node, m.Status(), m.Providers())
	setVolumesHealthy(&s.node, s.volumes, err)
	setReady(&s.node, n.Check(ctx))
	return s
}

func quantity(bytes int64) *resource.Quantity { return resource.NewQuantity(bytes, resource.BinarySI) }

func moduleStatus(s module.Status) v1alpha1.Module {
	return v1alpha1.Module{
		State: string(s.State), Kernel: s.Release, Version: s.Version, LoadedVersion: s.Loaded, Users: int32(s.Users),
	}
}

// relink writes the providers in one line, always in the same order.
func relink(providers map[string]string) string {
	list := make([]string, 0, len(providers))
	for _, fsType := range slices.Sorted(maps.Keys(providers)) {
		list = append(list, fsType+":"+providers[fsType])
	}
	return strings.Join(list, ",")
}

func addDevices(s *v1alpha1.SplitFSNodeStatus, devices []node.DeviceReport) {
	var capacity, available int64
	known := false
	for _, d := range devices {
		m := v1alpha1.DeviceManager{Name: d.Name, Emulated: d.Emulated, Available: quantity(d.Available)}
		available += d.Available
		var sum int64
		for _, r := range d.Regions {
			m.Regions = append(m.Regions, v1alpha1.Region{
				Name: r.Name, Type: r.Type, Memory: string(r.Memory), Capacity: quantity(r.Capacity),
				Available: quantity(r.Available),
			})
			sum += r.Capacity
		}
		if len(d.Regions) > 0 {
			m.Capacity = quantity(sum)
			capacity += sum
			known = true
		}
		if d.Err != nil {
			m.Problem = d.Err.Error()
		}
		s.Devices = append(s.Devices, m)
	}
	s.Available = quantity(available)
	if known {
		s.Capacity = quantity(capacity)
	}
}

// addMemory: what volumes can be made of, and all that the node has.
func addMemory(ctx context.Context, s *v1alpha1.SplitFSNodeStatus, n Node, devices []node.DeviceReport) {
	var best volume.Memory
	for _, d := range devices {
		best = volume.Stronger(best, d.Memory)
	}
	s.Memory, s.Durable = string(best), best.Durable()
	ranges, err := n.Memory(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The SplitFSNode shows no memory")
		return
	}
	for _, r := range ranges[:min(len(ranges), maxRanges)] {
		s.MemoryRanges = append(s.MemoryRanges, v1alpha1.MemoryRange{
			Name: r.Name, Provider: r.Provider, Size: quantity(r.Bytes), Memory: string(r.Memory), Durable: r.Memory.Durable(),
			Reason: r.Why,
		})
	}
}

func addVolumes(s *v1alpha1.SplitFSNodeStatus, reports []node.Report) {
	var allocated, size, used int64
	for _, r := range reports {
		allocated += r.Record.DeviceSize
		if r.Status != nil {
			size += r.Status.Pool.Bytes
			used += r.Status.Pool.Bytes - r.Status.Pool.FreeBytes
		}
	}
	s.Allocated = quantity(allocated)
	if size > 0 {
		s.Pool = &v1alpha1.Pool{Size: quantity(size), Used: quantity(used)}
	}
}

func addErasures(s *v1alpha1.SplitFSNodeStatus, n Node, reports []node.Report) {
	list, _ := n.Erasures(reports) // the search for orphans tells of snapshots whose records cannot be read
	var bytes int64
	for _, e := range list {
		bytes += e.Bytes
	}
	if bytes > 0 {
		s.Erasing = quantity(bytes)
	}
}

func addLibrary(s *v1alpha1.SplitFSNodeStatus, n Node) {
	digest, err := n.LibraryDigest()
	s.Library = v1alpha1.Library{Installed: err == nil, SHA256: digest}
	if err != nil {
		set(&s.Conditions, v1alpha1.NodeLibraryInstalled, false, "Missing",
			err.Error()+
				"; programs that start now run without it. The node service puts it back by itself: its log and the events of "+
				"the node say what hinders it")
		return
	}
	set(&s.Conditions, v1alpha1.NodeLibraryInstalled, true, "Installed", "pods of the node find libsplit.so")
}

func setDevicesReady(s *v1alpha1.SplitFSNodeStatus, devices []node.DeviceReport) {
	var problems []string
	for _, d := range devices {
		if d.Err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", d.Name, d.Err))
		}
	}
	if len(problems) > 0 {
		set(&s.Conditions, v1alpha1.NodeDevicesReady, false, "NotUsable", strings.Join(problems, "; "))
		return
	}
	set(&s.Conditions, v1alpha1.NodeDevicesReady, true, "Usable", "all device managers work")
}

// setThinPools says nothing where there are no pools.
func setThinPools(s *v1alpha1.SplitFSNodeStatus, devices []node.DeviceReport) {
	worst := device.PoolWell
	order := []device.PoolState{device.PoolWell, device.PoolNearFull, device.PoolFilling, device.PoolFull}
	var all []string
	for _, d := range devices {
		for _, p := range d.Pools {
			all = append(all, p.String())
			if slices.Index(order, p.State()) > slices.Index(order, worst) {
				worst = p.State()
			}
		}
	}
	if len(all) > 0 {
		set(&s.Conditions, v1alpha1.NodeThinPoolsHaveRoom, worst == device.PoolWell, string(worst), strings.Join(all, "; "))
	}
}

// setModuleReady also says what the node's own kernel gives without the module: that is what most clusters run.
func setModuleReady(s *v1alpha1.SplitFSNodeStatus, m module.Status, providers map[string]string) {
	message := m.Message
	if message == "" {
		message = "the node service has not looked at the kernel module yet"
	}
	if m.State != module.Ready {
		message += fmt.Sprintf(
			"; without it ext4 volumes relink by %s, XFS volumes by %s",
			providers["ext4"],
			providers["xfs"],
		)
	}
	set(&s.Conditions, v1alpha1.NodeModuleReady, m.State == module.Ready, string(m.State), message)
}

func setVolumesHealthy(s *v1alpha1.SplitFSNodeStatus, volumes map[string]v1alpha1.SplitFSVolumeStatus, listErr error) {
	var sick []string
	for _, id := range slices.Sorted(maps.Keys(volumes)) {
		if health := volumes[id].Health; health != v1alpha1.HealthHealthy {
			sick = append(sick, fmt.Sprintf("%s (%s)", id, health))
		}
	}
	switch {
	case listErr != nil:
		set(&s.Conditions, v1alpha1.NodeVolumesHealthy, false, "NoReport", listErr.Error())
	case len(sick) > 0:
		set(&s.Conditions, v1alpha1.NodeVolumesHealthy, false, "Problems",
			fmt.Sprintf("something is wrong with %d of %d volumes, see their SplitFSVolume: %s", len(sick), len(volumes),
				strings.Join(sick, ", ")))
	default:
		set(&s.Conditions, v1alpha1.NodeVolumesHealthy, true, "Healthy", "nothing is wrong with any volume")
	}
}

// setReady comes last: it repeats what of the other conditions keeps volumes from being used.
func setReady(s *v1alpha1.SplitFSNodeStatus, err error) {
	installed := meta.FindStatusCondition(s.Conditions, v1alpha1.NodeLibraryInstalled)
	switch {
	case err != nil:
		set(&s.Conditions, v1alpha1.NodeReady, false, "NotUsable", err.Error())
	case installed.Status != metav1.ConditionTrue:
		set(&s.Conditions, v1alpha1.NodeReady, false, "LibraryMissing", installed.Message)
	default:
		set(&s.Conditions, v1alpha1.NodeReady, true, "Ready", "volumes can be made and used")
	}
}

func set(conditions *[]metav1.Condition, kind string, good bool, reason, message string) {
	state := metav1.ConditionFalse
	if good {
		state = metav1.ConditionTrue
	}
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	meta.SetStatusCondition(conditions, metav1.Condition{Type: kind, Status: state, Reason: reason, Message: message})
}

func summaries(volumes map[string]v1alpha1.SplitFSVolumeStatus) []v1alpha1.VolumeSummary {
	var list []v1alpha1.VolumeSummary
	for _, id := range slices.Sorted(maps.Keys(volumes)) {
		if len(list) == maxSummaries {
			break
		}
		v := volumes[id]
		s := v1alpha1.VolumeSummary{ID: id, Claim: v.Claim, Mode: v.Mode, Phase: v.Phase}
		if healthy := meta.FindStatusCondition(v.Conditions, v1alpha1.VolumeHealthy); healthy.Status != metav1.ConditionTrue {
			s.Problem = healthy.Reason
		}
		list = append(list, s)
	}
	return list
}

func volumeStatus(nodeName string, r node.Report) v1alpha1.SplitFSVolumeStatus {
	rec := r.Record
	s := v1alpha1.SplitFSVolumeStatus{
		NodeName: nodeName, VolumeName: rec.Name, Mode: string(rec.Mode), Device: rec.Device, Memory: string(rec.Memory),
		FSType: rec.FSType,
		Size:   quantity(rec.Size), DeviceSize: quantity(rec.DeviceSize), Phase: phase(rec), Pods: pods(rec),
	}
	if rec.PVC.Name != "" {
		s.Claim = rec.PVC.Namespace + "/" + rec.PVC.Name
	}
	if r.Status != nil {
		s.Provider = r.Status.Provider
		s.Pool = &v1alpha1.Pool{
			Size: quantity(r.Status.Pool.Bytes), Used: quantity(r.Status.Pool.Bytes - r.Status.Pool.FreeBytes),
		}
	}
	if last := rec.Recovery; last != nil {
		s.LastRecovery = &v1alpha1.Recovery{
			Time: metav1.NewTime(last.Time), Replayed: last.Replayed, Quarantined: last.Quarantined,
		}
	}
	setHealth(&s, r.Problems)
	setServed(&s, r)
	switch {
	case r.Emulated:
		set(&s.Conditions, v1alpha1.VolumePersistentMemory, false, "Emulated",
			"the volume is emulated: it behaves like persistent memory, its speed does not tell anything about it")
	case rec.Memory != "" && !rec.Memory.Durable():
		set(&s.Conditions, v1alpha1.VolumePersistentMemory, false, events.ReasonLessDurable,
			fmt.Sprintf(
				"the volume's memory is %q: nobody says that what was stored there, and not fsynced, outlives a power failure",
				rec.Memory))
	default:
		set(&s.Conditions, v1alpha1.VolumePersistentMemory, true, "PersistentMemory", "the volume is on persistent memory")
	}
	return s
}

func phase(rec *volume.Record) v1alpha1.VolumePhase {
	switch {
	case rec.Phase == volume.PhaseCreating:
		return v1alpha1.VolumeCreating
	case rec.Phase == volume.PhaseDeleting:
		return v1alpha1.VolumeDeleting
	case rec.Phase == volume.PhaseErasing:
		return v1alpha1.VolumeErasing
	case len(rec.Published) > 0:
		return v1alpha1.VolumePublished
	case rec.Staged != nil:
		return v1alpha1.VolumeStaged
	}
	return v1alpha1.VolumeAvailable
}

// pods lists each pod once: it may have the volume at several targets.
func pods(rec *volume.Record) []string {
	var list []string
	for _, p := range rec.Published {
		if p.Pod.Name != "" {
			list = append(list, p.Pod.Namespace+"/"+p.Pod.Name)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return list[:min(len(list), maxPods)]
}

// severities are the healths of problems, from the worst on.
var severities = []struct {
	severity node.Severity
	health   v1alpha1.VolumeHealth
}{
	{node.DataLoss, v1alpha1.HealthDataLoss},
	{node.Inaccessible, v1alpha1.HealthInaccessible},
	{node.Degraded, v1alpha1.HealthDegraded},
}

func setHealth(s *v1alpha1.SplitFSVolumeStatus, problems []node.Problem) {
	for _, level := range severities {
		i := slices.IndexFunc(problems, func(p node.Problem) bool { return p.Severity == level.severity })
		if i < 0 {
			continue
		}
		messages := make([]string, 0, len(problems))
		for _, p := range problems {
			messages = append(messages, p.Message)
		}
		s.Health = level.health
		set(&s.Conditions, v1alpha1.VolumeHealthy, false, problems[i].Reason, strings.Join(messages, "; "))
		return
	}
	s.Health = v1alpha1.HealthHealthy
	set(&s.Conditions, v1alpha1.VolumeHealthy, true, "Healthy", "nothing is wrong with the volume")
}

func setServed(s *v1alpha1.SplitFSVolumeStatus, r node.Report) {
	switch {
	case r.Record.Phase == volume.PhaseErasing:
		set(&s.Conditions, v1alpha1.VolumeServed, false, "Erasing",
			"the volume was deleted; its space is given back when its bytes are erased")
	case r.Record.Block:
		set(&s.Conditions, v1alpha1.VolumeServed, false, "RawBlock",
			"a raw block volume has no file system: the library does not serve it, and it has no agent")
	case r.Record.Staged == nil:
		set(&s.Conditions, v1alpha1.VolumeServed, false, "NotStaged", "no pod uses the volume")
	case !r.Agent.Ready:
		set(&s.Conditions, v1alpha1.VolumeServed, false, "AgentNotReady",
			"the volume's agent is starting; applications that run keep what they leased, new ones wait")
	case r.StatusErr != nil:
		set(&s.Conditions, v1alpha1.VolumeServed, false, "NoAnswer", r.StatusErr.Error())
	default:
		set(&s.Conditions, v1alpha1.VolumeServed, true, "AgentReady", "the volume's agent serves applications")
	}
}
