// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"splitfs.io/splitfs/charts/charttest"
)

// TestVolumeAttributesClasses: one for each mode, when they are wanted, and everybody may read them who has to.
func TestVolumeAttributesClasses(t *testing.T) {
	const kind = "VolumeAttributesClass"
	objects := charttest.Render(t, "--set", "volumeAttributesClasses.create=true")
	for _, mode := range []string{"strict", "sync", "posix"} {
		class := find[storagev1.VolumeAttributesClass](t, objects, kind, "splitfs-"+mode)
		if class.DriverName != "csi.splitfs.io" ||
			fmt.Sprint(class.Parameters) != fmt.Sprint(map[string]string{"mode": mode}) {
			t.Errorf("class of mode %s is %+v", mode, class)
		}
	}
	for _, object := range charttest.Render(t) {
		if object.GetKind() == kind {
			t.Errorf("%s was not wanted", object.GetName())
		}
	}
	for _, role := range []string{"splitfs-provisioner", "splitfs-injector", "splitfs-controller"} {
		if !slices.ContainsFunc(find[rbacv1.ClusterRole](t, objects, "ClusterRole", role).Rules,
			func(r rbacv1.PolicyRule) bool {
				return slices.Contains(r.Resources, "volumeattributesclasses") && slices.Contains(r.Verbs, "get")
			}) {
			t.Errorf("%s cannot read them", role)
		}
	}
}

// TestSnapshots: a snapshotter on each node, and the controller, unless the cluster brings one itself.
func TestSnapshots(t *testing.T) {
	names := func(set ...string) (containers []string, controller bool) {
		t.Helper()
		objects := charttest.Render(t, set...)
		for _, c := range find[appsv1.DaemonSet](t, objects, "DaemonSet",
			"splitfs-provisioner").Spec.Template.Spec.Containers {
			containers = append(containers, c.Name)
		}
		for _, o := range objects {
			controller = controller || o.GetKind() == "Deployment" && o.GetName() == "splitfs-snapshot-controller"
		}
		return containers, controller
	}
	labels := func(set ...string) bool {
		t.Helper()
		for _, c := range find[appsv1.Deployment](t, charttest.Render(t, set...), "Deployment",
			"splitfs-controller").Spec.Template.Spec.Containers {
			if slices.Contains(c.Args, "--snapshots") {
				return true
			}
		}
		return false
	}
	if containers, controller := names(); slices.Contains(containers, "csi-snapshotter") || controller {
		t.Errorf("not wanted: %v, %v", containers, controller)
	}
	const api = "--api-versions=snapshot.storage.k8s.io/v1"
	if labels() || !labels(api, "--set", "snapshots.enabled=true") {
		t.Error("the controller watches VolumeSnapshotContents where there are none, or does not where there are")
	}
	if containers, controller := names(api, "--set", "snapshots.enabled=true"); !slices.Contains(
		containers, "csi-snapshotter") || !controller {
		t.Errorf("wanted: %v, %v", containers, controller)
	}
	containers, controller := names(api, "--set", "snapshots.enabled=true,snapshots.controller.enabled=false")
	if !slices.Contains(containers, "csi-snapshotter") || controller {
		t.Errorf("on a cluster that has a controller: %v, %v", containers, controller)
	}
	if _, err := charttest.Template(t, "--set", "snapshots.enabled=true"); err == nil ||
		!strings.Contains(err.Error(), "install those of kubernetes-csi/external-snapshotter") {
		t.Errorf("without the custom resources: %v", err)
	}
}

// TestGroupSnapshots: whoever has to do with VolumeGroupSnapshots may, and nobody looks for them where there are none.
func TestGroupSnapshots(t *testing.T) {
	const one, group = "--api-versions=snapshot.storage.k8s.io/v1", "--api-versions=groupsnapshot.storage.k8s.io/v1"
	for _, wanted := range []bool{false, true} {
		set := fmt.Sprintf("snapshots.enabled=true,snapshots.groups=%t", wanted)
		objects := charttest.Render(t, one, group, "--set", set)
		gate := fmt.Sprintf("--feature-gates=CSIVolumeGroupSnapshot=%t", wanted)
		programs := slices.Concat(
			find[appsv1.DaemonSet](t, objects, "DaemonSet", "splitfs-provisioner").Spec.Template.Spec.Containers,
			find[appsv1.Deployment](t, objects, "Deployment", "splitfs-snapshot-controller").Spec.Template.Spec.Containers)
		for _, c := range programs {
			if snapshots := strings.Contains(c.Name, "snapshot"); slices.Contains(c.Args, gate) != snapshots {
				t.Errorf("groups: %t: %s has the arguments %q", wanted, c.Name, c.Args)
			}
		}
		labels := false
		for _, c := range find[appsv1.Deployment](t, objects, "Deployment",
			"splitfs-controller").Spec.Template.Spec.Containers {
			labels = labels || slices.Contains(c.Args, "--group-snapshots")
		}
		if labels != wanted {
			t.Errorf("groups: %t: the controller labels their contents: %t", wanted, labels)
		}
		for _, role := range []string{"splitfs-provisioner", "splitfs-controller", "splitfs-snapshot-controller"} {
			may := slices.ContainsFunc(find[rbacv1.ClusterRole](t, objects, "ClusterRole", role).Rules,
				func(r rbacv1.PolicyRule) bool {
					return slices.Contains(r.Resources, "volumegroupsnapshotcontents") && slices.Contains(r.Verbs, "patch")
				})
			if may != wanted {
				t.Errorf("groups: %t: %s may write their contents: %t", wanted, role, may)
			}
		}
	}
	for set, words := range map[string]string{
		"snapshots.enabled=true,snapshots.groups=true": "install those of kubernetes-csi/external-snapshotter",
		"snapshots.groups=true":                        "set snapshots.enabled=true",
	} {
		if _, err := charttest.Template(t, one, "--set", set); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// TestDeviceClasses: the node service is told of them, StorageClasses name one, and what could not work is refused.
func TestDeviceClasses(t *testing.T) {
	lvm := []string{"--set", "devices.lvm.enabled=true,devices.regions={region0,region1},storageClasses.device=lvm"}
	classes := append(slices.Clone(lvm), "--set-json",
		`devices.lvm.classes=[{"name":"fast","regions":["region0"],"spare":"1Gi","default":true},{"name":"bulk"}]`)
	argument := func(set ...string) string {
		t.Helper()
		for _, c := range find[appsv1.DaemonSet](t, charttest.Render(t, set...), "DaemonSet",
			"splitfs-node").Spec.Template.Spec.Containers {
			for _, arg := range c.Args {
				if value, ok := strings.CutPrefix(arg, "--lvm-classes="); ok {
					return value
				}
			}
		}
		return ""
	}
	if got := argument(lvm...); got != "" {
		t.Errorf("none were defined, and the node service has %s", got)
	}
	want := `[{"default":true,"name":"fast","regions":["region0"],"spare":"1Gi"},{"name":"bulk"}]`
	if got := argument(classes...); got != want {
		t.Errorf("the node service has %s", got)
	}
	for set, class := range map[string]string{
		"storageClasses.deviceClass=": "", "storageClasses.deviceClass=bulk": "bulk",
	} {
		objects := charttest.Render(t, append(slices.Clone(classes), "--set", set)...)
		got, named := find[storagev1.StorageClass](t, objects, "StorageClass", "splitfs-strict").Parameters["deviceClass"]
		if got != class || named != (class != "") {
			t.Errorf("%s: the StorageClass has %q", set, got)
		}
	}
	for says, set := range map[string][]string{
		"not among devices.lvm.classes": append(slices.Clone(classes), "--set", "storageClasses.deviceClass=slow"),
		"volumes have no classes":       {"--set", "storageClasses.deviceClass=fast"},
		"is not enabled":                {"--set-json", `devices.lvm.classes=[{"name":"a"}]`},
		"is thin, which has no direct": append(slices.Clone(lvm), "--set-json",
			`devices.lvm.classes=[{"name":"a","default":true,"type":"thin","thinPool":{"name":"p"}}]`),
		"thin volumes cannot be erased": append(slices.Clone(lvm), "--set",
			"storageClasses.durability=any,storageClasses.erase=overwrite", "--set-json",
			`devices.lvm.classes=[{"name":"a","default":true,"type":"thin","thinPool":{"name":"p"}}]`),
		"is that of two classes": append(slices.Clone(lvm), "--set-json",
			`devices.lvm.classes=[{"name":"a","type":"thin","thinPool":{"name":"p"}},`+
				`{"name":"b","type":"thin","thinPool":{"name":"p"}}]`),
		"none of devices.lvm.classes is": append(slices.Clone(lvm), "--set-json", `devices.lvm.classes=[{"name":"a"}]`),
		"is there twice": append(slices.Clone(lvm), "--set-json",
			`devices.lvm.classes=[{"name":"a","default":true},{"name":"a"}]`),
		"only one can be the default": append(slices.Clone(lvm), "--set-json",
			`devices.lvm.classes=[{"name":"a","default":true},{"name":"b","default":true}]`),
		"not among devices.regions": append(slices.Clone(lvm), "--set-json",
			`devices.lvm.classes=[{"name":"a","default":true,"regions":["region7"]}]`),
	} {
		if _, err := charttest.Template(t, set...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; wanted %q", set, err, says)
		}
	}
}

// TestLibraryDelivery: everybody who has to do with the library's volume agrees on what kind of volume it is.
func TestLibraryDelivery(t *testing.T) {
	for delivery, inline := range map[string]bool{"csi": true, "ephemeral": false} {
		objects := charttest.Render(t, "--set", "injector.library.delivery="+delivery)
		driver := find[storagev1.CSIDriver](t, objects, "CSIDriver", "csi.splitfs.io")
		_, labelled := driver.Labels["security.openshift.io/csi-ephemeral-volume-profile"]
		if slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral) != inline ||
			labelled != inline ||
			!slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecyclePersistent) {
			t.Errorf("%s: CSIDriver is %+v", delivery, driver)
		}
		injector := find[appsv1.Deployment](t, objects, "Deployment", "splitfs-injector").Spec.Template.Spec.Containers[0]
		if !slices.Contains(injector.Args, "--library-delivery="+delivery) {
			t.Errorf("%s: the injector's arguments are %q", delivery, injector.Args)
		}
		most := "--max-volumes=128"
		if inline {
			most = "--max-volumes=64"
		}
		if node := find[appsv1.DaemonSet](t, objects, "DaemonSet",
			"splitfs-node").Spec.Template.Spec.Containers[0]; !slices.Contains(node.Args, most) {
			t.Errorf("%s: the node's arguments are %q", delivery, node.Args)
		}
		if !inline {
			class := find[storagev1.StorageClass](t, objects, "StorageClass", "splitfs-library")
			if class.Provisioner != "csi.splitfs.io" ||
				!maps.Equal(class.Parameters, map[string]string{"splitfs.io/kind": "library"}) ||
				*class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer || *class.AllowVolumeExpansion ||
				*class.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
				t.Errorf("class is %+v", class)
			}
		} else if slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
			return o.GetName() == "splitfs-library"
		}) {
			t.Error("a class that nobody uses")
		}
	}
}

// TestNodesRequireTheLibrary: nodes refuse what webhook and policy refuse, with the same exceptions, and may look at
// what they need for it.
func TestNodesRequireTheLibrary(t *testing.T) {
	for policy, required := range map[string]bool{"Fail": true, "Ignore": false} {
		objects := charttest.Render(t, "--set", "injector.failurePolicy="+policy,
			"--set", "injector.exemptNamespaces={kube-system,monitoring}")
		args := find[appsv1.DaemonSet](t, objects, "DaemonSet", "splitfs-node").Spec.Template.Spec.Containers[0].Args
		reads := slices.ContainsFunc(find[rbacv1.ClusterRole](t, objects, "ClusterRole", "splitfs-node").Rules,
			func(r rbacv1.PolicyRule) bool {
				return slices.Equal(r.Resources, []string{"pods", "namespaces"}) && slices.Equal(r.Verbs, []string{"get"})
			})
		if slices.Contains(args, "--require-library=false") == required || reads != required {
			t.Errorf("failurePolicy %s: arguments %q, reads pods: %v", policy, args, reads)
		}
		for _, namespace := range []string{"kube-system", "monitoring", charttest.Namespace} {
			if slices.Contains(args, "--exempt-namespace="+namespace) != required {
				t.Errorf("failurePolicy %s, namespace %s: arguments %q", policy, namespace, args)
			}
		}
	}
}

// TestDevices: what nodes are told to offer is what the values say, and lvm finds the node's own locks.
func TestDevices(t *testing.T) {
	objects := charttest.Render(t, variants["persistent memory"]...)
	pod := &find[appsv1.DaemonSet](t, objects, "DaemonSet", "splitfs-node").Spec.Template.Spec
	for _, argument := range []string{
		"--devices=lvm,namespace", "--regions=region0,0x2468ac00123456", "--region-percent=50", "--namespace-map=mem",
	} {
		if !slices.Contains(pod.Containers[0].Args, argument) {
			t.Errorf("argument %s is missing in %q", argument, pod.Containers[0].Args)
		}
	}
	for _, path := range []string{"/run/lock/lvm", "/run/lvm"} {
		isHost := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.HostPath != nil && v.HostPath.Path == path &&
				slices.ContainsFunc(
					pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name && m.MountPath == path })
		})
		if !isHost {
			t.Errorf("%s of the node is not in the container", path)
		}
	}
	class := find[storagev1.StorageClass](t, objects, "StorageClass", "splitfs-strict")
	if class.Parameters["device"] != "namespace" || class.Parameters["erase"] != "overwrite" ||
		*class.AllowVolumeExpansion {
		t.Errorf("namespaces do not grow, deleted volumes are to be overwritten, and the class is %+v", class)
	}
	if _, err := charttest.Template(t,
		append(slices.Clone(variants["persistent memory"]), "--set", "storageClasses.erase=discard")...); err == nil ||
		!strings.Contains(err.Error(), "knows no discard") {
		t.Errorf("discard of persistent memory: %v", err)
	}
	for _, v := range find[appsv1.DaemonSet](t, charttest.Render(t), "DaemonSet",
		"splitfs-node").Spec.Template.Spec.Volumes {
		if strings.HasPrefix(v.Name, "lvm") {
			t.Errorf("volume %s without lvm", v.Name)
		}
	}
}

// TestModule: what brings a module to a node fits together, changes nothing outside the driver's directory, and is
// absent by default.
func TestModule(t *testing.T) {
	pod := func(name string) *corev1.PodSpec {
		return &find[appsv1.DaemonSet](t, charttest.Render(t, variants[name]...), "DaemonSet",
			"splitfs-node").Spec.Template.Spec
	}
	if p := pod("defaults"); len(p.InitContainers) != 0 || slices.Contains(p.Containers[0].Args, "--module") {
		t.Errorf("without module.enabled: %+v, %q", p.InitContainers, p.Containers[0].Args)
	}
	for name, want := range map[string][]string{
		"module from images":        {"module-tools", "module-copy-0", "module-copy-1"},
		"module built on the nodes": {"module-tools", "module-build"},
	} {
		p := pod(name)
		if !slices.Contains(p.Containers[0].Args, "--module") {
			t.Errorf("%s: the node service does not load it", name)
		}
		var names []string
		for i := range p.InitContainers {
			c := &p.InitContainers[i]
			names = append(names, c.Name)
			if c.Name == "module-tools" {
				continue
			}
			if !slices.Contains(c.Args, "--tolerant") || c.Command[0] != "/tools/splitfs-csi" {
				t.Errorf("%s/%s: %q %q", name, c.Name, c.Command, c.Args)
			}
			for _, mount := range c.VolumeMounts {
				writable := []string{"modules", "module-cache"}
				if !mount.ReadOnly && !slices.Contains(writable, mount.Name) {
					t.Errorf("%s/%s: may write to %s", name, c.Name, mount.Name)
				}
			}
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s: init containers %q, wanted %q", name, names, want)
		}
	}
	p := pod("module built on the nodes")
	build := p.InitContainers[1]
	for _, argument := range []string{"--host-root=/host", "--out=/data/splitfs/modules", "--timeout=10m", "--offline",
		"--sign-key=/run/secrets/module-signing/tls.key", "--sign-cert=/run/secrets/module-signing/tls.crt"} {
		if !slices.Contains(build.Args, argument) {
			t.Errorf("argument %s is missing in %q", argument, build.Args)
		}
	}
	if !slices.ContainsFunc(p.Volumes, func(v corev1.Volume) bool {
		return v.Secret != nil && v.Secret.SecretName == "module-key" && *v.Secret.DefaultMode == 0o400
	}) {
		t.Errorf("no key: %+v", p.Volumes)
	}
}

// TestEmulatedInDataDir: the directory of the backing files can be the driver's own, which is mounted once then.
func TestEmulatedInDataDir(t *testing.T) {
	objects := charttest.Render(t, "--set", "emulated.dir=/srv/splitfs", "--set", "node.dataDir=/srv/splitfs")
	pod := find[appsv1.DaemonSet](t, objects, "DaemonSet", "splitfs-node").Spec.Template.Spec
	paths := map[string]int{}
	for _, m := range pod.Containers[0].VolumeMounts {
		if paths[m.MountPath]++; paths[m.MountPath] > 1 {
			t.Errorf("two mounts at %s", m.MountPath)
		}
	}
	if paths["/srv/splitfs"] == 0 || !slices.Contains(pod.Containers[0].Args, "--emulated-dir=/srv/splitfs") {
		t.Errorf("the directory is not used: %v, %v", paths, pod.Containers[0].Args)
	}
}
