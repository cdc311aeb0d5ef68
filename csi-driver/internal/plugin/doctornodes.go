// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

func quantityOf(bytes int64) *resource.Quantity {
	return resource.NewQuantity(bytes, resource.BinarySI)
}

// silence is how old a node's report may be; nodes write every five minutes (the chart's status.heartbeat).
const silence = 20 * time.Minute

func (d *doctor) checkNodes(ctx context.Context) {
	var list v1alpha1.SplitFSNodeList
	if err := d.cluster.client.List(ctx, &list); err != nil {
		d.failed("nodes", fmt.Errorf("list SplitFSNodes: %w", err))
		return
	}
	if len(list.Items) == 0 {
		d.add(failure, "nodes", "none has reported yet; kubectl -n %s logs -l app.kubernetes.io/component=node -c splitfs",
			d.cluster.release)
		return
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.SplitFSNode) int { return strings.Compare(a.Name, b.Name) })
	drivers, libraries := map[string][]string{}, map[string][]string{}
	var heard *v1alpha1.SplitFSNode
	for i := range list.Items {
		n := &list.Items[i]
		d.judgeNode(n)
		if n.Status.HeartbeatTime.IsZero() {
			continue // its node service has said nothing yet
		}
		heard = n
		drivers[n.Status.DriverVersion] = append(drivers[n.Status.DriverVersion], n.Name)
		libraries[shortDigest(n.Status.Library.SHA256)] = append(libraries[shortDigest(n.Status.Library.SHA256)], n.Name)
	}
	switch {
	case len(drivers) > 1:
		d.add(warning, "versions", "node services differ: %s; an upgrade that has not ended, or failed on a node",
			whoHas(drivers))
	case len(libraries) > 1:
		d.add(warning, "versions", "libraries differ: %s; an upgrade that has not ended, or failed on a node",
			whoHas(libraries))
	case heard != nil:
		d.add(good, "versions", "%s with driver %s and library %s", count(len(drivers[heard.Status.DriverVersion]), "node"),
			orDash(heard.Status.DriverVersion), orDash(shortDigest(heard.Status.Library.SHA256)))
	}
	d.checkDurability(list.Items)
}

// whoHas lists values and who has each.
func whoHas(values map[string][]string) string {
	list := make([]string, 0, len(values))
	for _, value := range slices.Sorted(maps.Keys(values)) {
		list = append(list, fmt.Sprintf("%s on %s", orDash(value), strings.Join(values[value], ", ")))
	}
	return strings.Join(list, "; ")
}

func (d *doctor) judgeNode(n *v1alpha1.SplitFSNode) {
	what := "node " + n.Name
	if n.Status.HeartbeatTime.IsZero() {
		d.add(failure, what, "has never been heard of; its node service does not run, or cannot write SplitFSNodes")
		return
	}
	if age := d.settings.now().Sub(n.Status.HeartbeatTime.Time); age > silence {
		d.add(failure, what, "has not been heard of for %s; its node service does not run, or cannot write SplitFSNodes",
			duration.HumanDuration(age))
		return
	}
	for _, kind := range nodeConditions {
		if c := meta.FindStatusCondition(n.Status.Conditions, kind); c == nil || c.Status != metav1.ConditionTrue {
			says := "it says nothing of it"
			if c != nil {
				says = c.Reason + ": " + c.Message
			}
			d.add(failure, what, "%s is not True; %s", kind, says)
			return
		}
	}
	d.add(good, what, "ready, %s available, relinks with %s", quantity(n.Status.Available), orDash(n.Status.Relink))
	module := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.NodeModuleReady)
	switch {
	case module == nil:
	case module.Status == metav1.ConditionTrue:
		d.add(good, "kernel module", "node %s: ext4_splitfs %s on kernel %s", n.Name, n.Status.Module.LoadedVersion,
			n.Status.Module.Kernel)
	case module.Reason == "NotConfigured":
		d.add(good, "kernel module", "node %s: not asked for; volumes use what the kernel has itself", n.Name)
	default:
		d.add(warning, "kernel module", "node %s: %s: %s", n.Name, module.Reason, module.Message)
	}
}

// checkDurability says on which nodes a power loss costs more than the modes promise on persistent memory.
func (d *doctor) checkDurability(nodes []v1alpha1.SplitFSNode) {
	var emulated, persistent []string
	for i := range nodes {
		n := &nodes[i]
		has := kinds(n)
		if has.persistent && (n.Status.Durable || n.Status.Memory == "") { // a node service of before says nothing of it
			persistent = append(persistent, n.Name)
		}
		if has.emulated {
			emulated = append(emulated, n.Name)
		}
		d.checkRegions(n)
	}
	if len(emulated) > 0 {
		d.add(warning, "durability",
			"volumes of device emulated, on %s (%s), keep over a power loss what was fsynced, as any file system does, and "+
				"not what mode sync or strict promises on persistent memory",
			count(len(emulated), "node"), strings.Join(emulated, ", "))
	}
	if len(persistent) > 0 {
		d.add(good, "durability", "persistent memory on %s (%s)", count(len(persistent), "node"),
			strings.Join(persistent, ", "))
	}
}

// checkRegions names the regions given to the driver that claims of modes sync and strict are kept away from, and why.
func (d *doctor) checkRegions(n *v1alpha1.SplitFSNode) {
	reasons := map[string]string{}
	for _, r := range n.Status.MemoryRanges {
		reasons[r.Name] = r.Reason
	}
	told := map[string]bool{}
	for _, manager := range n.Status.Devices {
		for _, r := range manager.Regions {
			if manager.Emulated || r.Memory == "" || volume.Memory(r.Memory).Durable() || told[r.Name] {
				continue
			}
			told[r.Name] = true
			d.add(warning, "durability",
				"node %s: the memory of %s is %q (%s); volumes whose class says durability: required, the default of sync and "+
					"strict, are not made there",
				n.Name, r.Name, r.Memory, orDash(reasons[r.Name]))
		}
	}
}

// checkRegistration compares the nodes that run the node service with those whose kubelet knows the driver.
func (d *doctor) checkRegistration(ctx context.Context) {
	const what = "registration"
	pods, err := d.cluster.nodePods(ctx)
	if err != nil {
		d.failed(what, err)
		return
	}
	var missing []string
	for node := range pods {
		var csi storagev1.CSINode
		if err := d.cluster.client.Get(ctx, client.ObjectKey{Name: node}, &csi); err != nil && !apierrors.IsNotFound(err) {
			d.failed(what, fmt.Errorf("get CSINode %s: %w", node, err))
			return
		}
		if !slices.ContainsFunc(csi.Spec.Drivers, func(driver storagev1.CSINodeDriver) bool {
			return driver.Name == contract.Driver
		}) {
			missing = append(missing, node)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		d.add(failure, what, "kubelet of %s does not know the driver; is the chart's kubeletDir kubelet's root directory?",
			strings.Join(missing, ", "))
		return
	}
	d.add(good, what, "kubelet knows the driver on %s", count(len(pods), "node"))
}

func (d *doctor) checkVolumes(ctx context.Context) {
	const what = "volumes"
	var list v1alpha1.SplitFSVolumeList
	if err := d.cluster.client.List(ctx, &list); err != nil {
		d.failed(what, fmt.Errorf("list SplitFSVolumes: %w", err))
		return
	}
	healthy := 0
	for i := range list.Items {
		v := &list.Items[i]
		c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.VolumeHealthy)
		if c == nil || c.Status == metav1.ConditionTrue {
			healthy++
			continue
		}
		level := failure
		if v.Status.Health == v1alpha1.HealthDegraded {
			level = warning
		}
		d.add(level, what, "%s", volumeProblem(v, c))
	}
	if healthy == len(list.Items) {
		d.add(good, what, "nothing is wrong with %s", count(healthy, "volume"))
	}
}

// checkProcesses looks for programs that work on a volume without the library.
func (d *doctor) checkProcesses(ctx context.Context) {
	const what = "processes"
	pods, err := d.cluster.nodePods(ctx)
	if err != nil {
		return // said already
	}
	answers, failed := d.cluster.coverageOf(ctx, pods)
	for _, f := range failed {
		d.failed(what, fmt.Errorf("ask node %s who is served: %w", f.Node, f.err))
	}
	served, unserved := 0, map[string]string{}
	for _, n := range answers {
		if n.Incomplete != "" {
			d.add(warning, what, "node %s could not look at everything: %s", n.Node, n.Incomplete)
		}
		for i := range n.Volumes {
			v := &n.Volumes[i]
			if v.Unknown != "" {
				d.add(warning, what, "claim %s/%s on node %s does not say who is served: %s", v.Namespace, v.Claim, n.Node,
					v.Unknown)
			}
			if !v.AgentReady {
				d.add(failure, what,
					"no agent serves claim %s/%s on node %s; kubectl -n %s logs -l app.kubernetes.io/component=agents", v.Namespace,
					v.Claim, n.Node, d.cluster.release)
			}
			for _, b := range v.Blocked {
				d.add(warning, what, "process %d on node %s has waited %d s for a file that process %d does not give up", b.PID,
					n.Node, b.Seconds, b.HeldBy)
			}
			for _, p := range v.Processes {
				switch {
				case p.Served():
					served++
				case p.Unserved():
					unserved[p.Namespace+"/"+p.Pod] = fmt.Sprintf("%s (%d): %s", p.Command, p.PID, p.Cause)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unserved)) {
		namespace, pod, _ := strings.Cut(name, "/")
		d.add(warning, what, "pod %s works on a volume without the library, %s; kubectl splitfs -n %s why %s", name,
			unserved[name], namespace, pod)
	}
	if len(answers) > 0 && len(unserved) == 0 {
		d.add(good, what, "%s served, none works on a volume without the library", count(served, "process"))
	}
}
