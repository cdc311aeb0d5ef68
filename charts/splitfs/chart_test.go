// SPDX-License-Identifier: Apache-2.0

// Package splitfs holds the tests of the chart.
package splitfs

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"splitfs.io/splitfs/charts/charttest"
)

// find decodes the object of a kind and name strictly: a field the API does not know is an error.
func find[T any](t *testing.T, objects []*unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			typed := new(T)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
				t.Fatalf("%s %s: %v", kind, name, err)
			}
			return typed
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

// TestVolumeAttributesClasses: one for each mode, when they are wanted, and everybody may read them who has to.
func TestVolumeAttributesClasses(t *testing.T) {
	const kind = "VolumeAttributesClass"
	objects := charttest.Render(t, "--set", "volumeAttributesClasses.create=true")
	for _, mode := range []string{"strict", "sync", "posix"} {
		class := find[storagev1.VolumeAttributesClass](t, objects, kind, "splitfs-"+mode)
		if class.DriverName != "csi.splitfs.io" || fmt.Sprint(class.Parameters) != fmt.Sprint(map[string]string{"mode": mode}) {
			t.Errorf("class of mode %s is %+v", mode, class)
		}
	}
	for _, object := range charttest.Render(t) {
		if object.GetKind() == kind {
			t.Errorf("%s was not wanted", object.GetName())
		}
	}
	for _, role := range []string{"splitfs-node", "splitfs-injector", "splitfs-controller"} {
		if !slices.ContainsFunc(find[rbacv1.ClusterRole](t, objects, "ClusterRole", role).Rules, func(r rbacv1.PolicyRule) bool {
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
		for _, c := range find[appsv1.DaemonSet](t, objects, "DaemonSet", "splitfs-node").Spec.Template.Spec.Containers {
			containers = append(containers, c.Name)
		}
		for _, o := range objects {
			controller = controller || o.GetKind() == "Deployment" && o.GetName() == "splitfs-snapshot-controller"
		}
		return containers, controller
	}
	if containers, controller := names(); slices.Contains(containers, "csi-snapshotter") || controller {
		t.Errorf("not wanted: %v, %v", containers, controller)
	}
	const api = "--api-versions=snapshot.storage.k8s.io/v1"
	if containers, controller := names(api, "--set", "snapshots.enabled=true"); !slices.Contains(containers, "csi-snapshotter") || !controller {
		t.Errorf("wanted: %v, %v", containers, controller)
	}
	containers, controller := names(api, "--set", "snapshots.enabled=true,snapshots.controller.enabled=false")
	if !slices.Contains(containers, "csi-snapshotter") || controller {
		t.Errorf("on a cluster that has a controller: %v, %v", containers, controller)
	}
	if _, err := charttest.Template(t, "--set", "snapshots.enabled=true"); err == nil || !strings.Contains(err.Error(), "install those of kubernetes-csi/external-snapshotter") {
		t.Errorf("without the custom resources: %v", err)
	}
}

func TestLint(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), charttest.Helm(t), "lint", "--strict", filepath.Join(charttest.Root(t), "charts", "splitfs")).CombinedOutput()
	if err != nil || strings.Contains(string(output), "[WARNING]") {
		t.Errorf("helm lint: %v\n%s", err, output)
	}
}

func TestStorageClasses(t *testing.T) {
	objects := charttest.Render(t, "--set", "storageClasses.sync.fstype=ext4", "--set", "storageClasses.posix.create=false", "--set", "storageClasses.strict.default=true")
	for mode, fstype := range map[string]string{"strict": "xfs", "sync": "ext4"} {
		class := find[storagev1.StorageClass](t, objects, "StorageClass", "splitfs-"+mode)
		want := map[string]string{"mode": mode, "device": "emulated", "csi.storage.k8s.io/fstype": fstype}
		if class.Provisioner != "csi.splitfs.io" || fmt.Sprint(class.Parameters) != fmt.Sprint(want) || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer ||
			class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
			t.Errorf("class of mode %s is %+v", mode, class)
		}
		if isDefault := class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"; isDefault != (mode == "strict") {
			t.Errorf("class of mode %s: default is %v", mode, isDefault)
		}
	}
	for _, object := range objects {
		if object.GetName() == "splitfs-posix" {
			t.Error("splitfs-posix was not wanted")
		}
	}
}

func TestCSIDriver(t *testing.T) {
	driver := find[storagev1.CSIDriver](t, charttest.Render(t), "CSIDriver", "csi.splitfs.io")
	if *driver.Spec.AttachRequired || !*driver.Spec.PodInfoOnMount || !*driver.Spec.StorageCapacity || *driver.Spec.FSGroupPolicy != storagev1.FileFSGroupPolicy ||
		!slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral) || !slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecyclePersistent) ||
		driver.Labels["security.openshift.io/csi-ephemeral-volume-profile"] != "restricted" {
		t.Errorf("CSIDriver is %+v", driver)
	}
}

// TestLibraryDelivery: everybody who has to do with the library's volume agrees on what kind of volume it is.
func TestLibraryDelivery(t *testing.T) {
	for delivery, inline := range map[string]bool{"csi": true, "ephemeral": false} {
		objects := charttest.Render(t, "--set", "injector.library.delivery="+delivery)
		driver := find[storagev1.CSIDriver](t, objects, "CSIDriver", "csi.splitfs.io")
		_, labelled := driver.Labels["security.openshift.io/csi-ephemeral-volume-profile"]
		if slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral) != inline || labelled != inline ||
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
		if node := find[appsv1.DaemonSet](t, objects, "DaemonSet", "splitfs-node").Spec.Template.Spec.Containers[0]; !slices.Contains(node.Args, most) {
			t.Errorf("%s: the node's arguments are %q", delivery, node.Args)
		}
		if !inline {
			class := find[storagev1.StorageClass](t, objects, "StorageClass", "splitfs-library")
			if class.Provisioner != "csi.splitfs.io" || !maps.Equal(class.Parameters, map[string]string{"splitfs.io/kind": "library"}) ||
				*class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer || *class.AllowVolumeExpansion || *class.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
				t.Errorf("class is %+v", class)
			}
		} else if slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() == "splitfs-library" }) {
			t.Error("a class that nobody uses")
		}
	}
}

// TestNodesRequireTheLibrary: nodes refuse what webhook and policy refuse, with the same exceptions, and may look at what they need for it.
func TestNodesRequireTheLibrary(t *testing.T) {
	for policy, required := range map[string]bool{"Fail": true, "Ignore": false} {
		objects := charttest.Render(t, "--set", "injector.failurePolicy="+policy, "--set", "injector.exemptNamespaces={kube-system,monitoring}")
		args := find[appsv1.DaemonSet](t, objects, "DaemonSet", "splitfs-node").Spec.Template.Spec.Containers[0].Args
		reads := slices.ContainsFunc(find[rbacv1.ClusterRole](t, objects, "ClusterRole", "splitfs-node").Rules, func(r rbacv1.PolicyRule) bool {
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

// TestBadValues: a wrong value is refused with the name of what is wrong.
func TestBadValues(t *testing.T) {
	for set, says := range map[string]string{
		"injector.replica=3":                                                  "replica",
		"unknown.thing=1":                                                     "unknown",
		"storageClasses.fast.create=true":                                     "fast",
		"storageClasses.strict.fstype=btrfs":                                  "fstype",
		"storageClasses.device=nvdimm":                                        "device",
		"storageClasses.erase=true":                                           "erase",
		"storageClasses.strict.reclaimPolicy=Recycle":                         "reclaimPolicy",
		"storageClasses.strict.create=maybe":                                  "create",
		"emulated.capacity=much":                                              "capacity",
		"emulated.dir=relative/path":                                          "dir",
		"node.maxVolumes=0":                                                   "maxVolumes",
		"node.runtimeSocket=run/x.sock":                                       "runtimeSocket",
		"node.maxUnavailable=0":                                               "maxUnavailable",
		"kubeletDir=/var/lib/kubelet/":                                        "kubeletDir",
		"images.pullPolicy=Sometimes":                                         "pullPolicy",
		"images.csiDriver.tag=a b":                                            "tag",
		"injector.failurePolicy=Maybe":                                        "failurePolicy",
		"injector.timeoutSeconds=31":                                          "timeoutSeconds",
		"injector.timeoutSeconds=1":                                           "timeoutSeconds",
		"injector.namespaces=some":                                            "namespaces",
		"injector.requiredClasses={A_B}":                                      "requiredClasses",
		"injector.library.delivery=hostPath":                                  "delivery",
		"injector.certManager.issuer.name=x":                                  "issuer",
		"injector.exemptNamespaces={other}":                                   "exemptNamespaces",
		"node.resources.request.cpu=1":                                        "request",
		"controller.orphanGrace=soon":                                         "orphanGrace",
		"module.enabled=maybe":                                                "enabled",
		"module.images={noTag}":                                               "images",
		"module.enabled=true,module.build.timeout=soon":                       "timeout",
		"module.build.enabled=true":                                           "module.enabled is false",
		"module.signing.secretName=key":                                       "module.enabled is false",
		"module.enabled=true,module.signing.secretName=key":                   "module.build.enabled",
		"module.enabled=true,module.signing.secretName=A_B":                   "secretName",
		"devices.lvm.enabled=true":                                            "devices.regions",
		"devices.emulated.enabled=false":                                      "none is enabled",
		"devices.regions={all}":                                               "neither devices.lvm nor devices.namespace",
		"devices.regions={pmem0}":                                             "regions",
		"devices.regionPercent=0":                                             "regionPercent",
		"devices.namespaceMap=disk":                                           "namespaceMap",
		"storageClasses.device=lvm":                                           "devices.lvm.enabled",
		"status.heartbeat=often":                                              "heartbeat",
		"status.interval=1m":                                                  "interval",
		"node.logLevel=verbose":                                               "logLevel",
		"storageClasses.strict.default=true,storageClasses.sync.default=true": "strict, sync",
	} {
		output, err := charttest.Template(t, "--set", set)
		if err == nil {
			t.Errorf("--set %s was accepted:\n%.300s", set, output)
		} else if !strings.Contains(err.Error(), says) {
			t.Errorf("--set %s: the error does not say %q: %v", set, says, err)
		}
	}
}

// variants are value sets that the other tests look at besides the defaults.
var variants = map[string][]string{
	"defaults": nil,
	"everything changed": {
		"--set", "images.csiDriver.repository=registry.example.com:5000/a/csi", "--set", "images.csiDriver.tag=v1", "--set", "images.pullPolicy=Never", "--set", "images.pullSecrets={one,two}",
		"--set", "kubeletDir=/data/kubelet", "--set", "emulated.dir=/mnt/fast", "--set", "emulated.capacity=100Gi", "--set", "node.dataDir=/data/splitfs",
		"--set", "node.runtimeSocket=/run/k0s/containerd.sock", "--set", "node.maxUnavailable=10%", "--set", "injector.replicas=1", "--set", "injector.failurePolicy=Ignore", "--set", "injector.timeoutSeconds=10",
		"--set", "injector.exemptNamespaces={kube-system,monitoring}", "--set", "injector.namespaces=labelled", "--set", "injector.requiredClasses={my-strict}", "--set-json", `injector.affinity={"nodeAffinity":{}}`,
		"--set-json", `node.tolerations=[{"key":"pm","operator":"Exists"}]`, "--set", "node.podAnnotations.a=b", "--set", "controller.podAnnotations.a=b", "--set", "injector.podAnnotations.a=b",
		"--set-json", `node.resources={"limits":{"cpu":2,"memory":"1Gi"}}`, "--set", "storageClasses.strict.reclaimPolicy=Retain",
	},
	"module from images": {"--set", "module.enabled=true", "--set", "module.images={registry.example.com/modules:debian-12,registry.example.com/modules:debian-13}"},
	"module built on the nodes": {
		"--set", "module.enabled=true", "--set", "module.build.enabled=true", "--set", "module.build.offline=true", "--set", "module.build.timeout=10m",
		"--set", "module.signing.secretName=module-key", "--set", "module.build.image.tag=v1", "--set", "node.dataDir=/data/splitfs",
	},
	"persistent memory": {
		"--set", "devices.emulated.enabled=false", "--set", "devices.lvm.enabled=true", "--set", "devices.namespace.enabled=true", "--set", "storageClasses.device=namespace", "--set", "storageClasses.erase=overwrite",
		"--set", "devices.regions={region0,0x2468ac00123456}", "--set", "devices.regionPercent=50", "--set", "devices.namespaceMap=mem",
	},
	"library by claim":                   {"--set", "injector.library.delivery=ephemeral"},
	"snapshots and classes to change to": {"--api-versions=snapshot.storage.k8s.io/v1", "--set", "snapshots.enabled=true", "--set", "volumeAttributesClasses.create=true"},
	"nothing optional": {
		"--set", "status.enabled=false",
		"--set-json", "node.tolerations=[]", "--set-json", "node.nodeSelector=null", "--set-json", "injector.resources=null", "--set-json", "node.resources=null",
		"--set", "node.priorityClassName=", "--set", "injector.priorityClassName=", "--set", "storageClasses.strict.create=false",
		"--set", "storageClasses.sync.create=false", "--set", "storageClasses.posix.create=false",
	},
}

// TestWorkloads checks what must fit together inside each pod, for several values.
func TestWorkloads(t *testing.T) {
	for name, arguments := range variants {
		t.Run(name, func(t *testing.T) {
			objects := charttest.Render(t, arguments...)
			for _, workload := range []struct {
				kind, name string
				selector   *metav1.LabelSelector
				template   *corev1.PodTemplateSpec
			}{
				{"DaemonSet", "splitfs-node", nil, nil}, {"Deployment", "splitfs-controller", nil, nil}, {"Deployment", "splitfs-injector", nil, nil},
			} {
				if workload.kind == "DaemonSet" {
					d := find[appsv1.DaemonSet](t, objects, workload.kind, workload.name)
					workload.selector, workload.template = d.Spec.Selector, &d.Spec.Template
				} else {
					d := find[appsv1.Deployment](t, objects, workload.kind, workload.name)
					workload.selector, workload.template = d.Spec.Selector, &d.Spec.Template
				}
				checkPodTemplate(t, workload.name, workload.selector, workload.template, objects)
			}
		})
	}
}

func checkPodTemplate(t *testing.T, name string, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec, objects []*unstructured.Unstructured) {
	t.Helper()
	match, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || !match.Matches(labels.Set(template.Labels)) {
		t.Errorf("%s: the selector does not select its own pods (%v)", name, err)
	}
	for label := range template.Labels {
		if strings.HasPrefix(label, "helm.sh/") || label == "app.kubernetes.io/version" {
			t.Errorf("%s: label %s in the pod template restarts all pods at each upgrade", name, label)
		}
	}
	find[corev1.ServiceAccount](t, objects, "ServiceAccount", template.Spec.ServiceAccountName)
	volumes := map[string]bool{}
	for _, volume := range template.Spec.Volumes {
		volumes[volume.Name] = true
	}
	containers := append(slices.Clone(template.Spec.InitContainers), template.Spec.Containers...)
	for i := range containers {
		c := &containers[i]
		ports := map[string]bool{}
		for _, port := range c.Ports {
			ports[port.Name] = true
		}
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if probe != nil && !ports[probe.HTTPGet.Port.StrVal] {
				t.Errorf("%s/%s: a probe uses port %q, which the container does not have", name, c.Name, probe.HTTPGet.Port.StrVal)
			}
		}
		for _, mount := range c.VolumeMounts {
			if !volumes[mount.Name] {
				t.Errorf("%s/%s: mounts volume %s, which the pod does not have", name, c.Name, mount.Name)
			}
			if c.SecurityContext.Privileged == nil && mount.MountPropagation != nil {
				t.Errorf("%s/%s: mount propagation in an unprivileged container", name, c.Name)
			}
		}
		seen := map[string]bool{}
		for _, argument := range c.Args {
			flag, value, _ := strings.Cut(argument, "=")
			if seen[argument] || flag != argument && value == "" {
				t.Errorf("%s/%s: argument %q is doubled or empty", name, c.Name, argument)
			}
			seen[argument] = true
		}
		// A build links the node's kernel headers into its own root.
		if c.Name != "module-build" && (c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem) {
			t.Errorf("%s/%s: the root file system is writable", name, c.Name)
		}
		if c.Name != "splitfs" || name != "splitfs-node" {
			if c.SecurityContext.AllowPrivilegeEscalation == nil || *c.SecurityContext.AllowPrivilegeEscalation || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s/%s: has more rights than it needs: %+v", name, c.Name, c.SecurityContext)
			}
		}
	}
}

// TestNodePaths: each directory that the driver's arguments name is mounted at the same path from the host.
func TestNodePaths(t *testing.T) {
	daemonSet := find[appsv1.DaemonSet](t, charttest.Render(t, variants["everything changed"]...), "DaemonSet", "splitfs-node")
	pod := &daemonSet.Spec.Template.Spec
	host := map[string]string{}
	for _, volume := range pod.Volumes {
		if volume.HostPath != nil {
			host[volume.Name] = volume.HostPath.Path
		}
	}
	propagated, mounted := map[string]bool{}, map[string]bool{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		if path, ok := host[mount.Name]; ok {
			if path != mount.MountPath {
				t.Errorf("volume %s: %s of the host is at %s in the container", mount.Name, path, mount.MountPath)
			}
			mounted[path] = true
			propagated[path] = mount.MountPropagation != nil && *mount.MountPropagation == corev1.MountPropagationBidirectional
		}
	}
	for _, path := range []string{"/data/kubelet/plugins", "/data/kubelet/pods", "/data/kubelet/plugins_registry", "/data/splitfs", "/mnt/fast", "/dev"} {
		if !mounted[path] {
			t.Errorf("%s is not mounted", path)
		}
	}
	if !propagated["/data/kubelet/plugins"] || !propagated["/data/kubelet/pods"] {
		t.Errorf("mounts of volumes would not appear in other pods: %v", propagated)
	}
	for _, argument := range []string{"--kubelet-dir=/data/kubelet", "--data-dir=/data/splitfs", "--emulated-dir=/mnt/fast", "--emulated-capacity=100Gi"} {
		if !slices.Contains(pod.Containers[0].Args, argument) {
			t.Errorf("argument %s is missing in %q", argument, pod.Containers[0].Args)
		}
	}
	if !pod.HostPID || host["socket"] != "/data/kubelet/plugins/csi.splitfs.io" || pod.Containers[0].Image != "registry.example.com:5000/a/csi:v1" {
		t.Errorf("hostPID %v, socket %s, image %s", pod.HostPID, host["socket"], pod.Containers[0].Image)
	}
}

// TestDevices: what nodes are told to offer is what the values say, and lvm finds the node's own locks.
func TestDevices(t *testing.T) {
	objects := charttest.Render(t, variants["persistent memory"]...)
	pod := &find[appsv1.DaemonSet](t, objects, "DaemonSet", "splitfs-node").Spec.Template.Spec
	for _, argument := range []string{"--devices=lvm,namespace", "--regions=region0,0x2468ac00123456", "--region-percent=50", "--namespace-map=mem"} {
		if !slices.Contains(pod.Containers[0].Args, argument) {
			t.Errorf("argument %s is missing in %q", argument, pod.Containers[0].Args)
		}
	}
	for _, path := range []string{"/run/lock/lvm", "/run/lvm"} {
		isHost := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.HostPath != nil && v.HostPath.Path == path && slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name && m.MountPath == path })
		})
		if !isHost {
			t.Errorf("%s of the node is not in the container", path)
		}
	}
	class := find[storagev1.StorageClass](t, objects, "StorageClass", "splitfs-strict")
	if class.Parameters["device"] != "namespace" || class.Parameters["erase"] != "overwrite" || *class.AllowVolumeExpansion {
		t.Errorf("namespaces do not grow, deleted volumes are to be overwritten, and the class is %+v", class)
	}
	if _, err := charttest.Template(t, append(slices.Clone(variants["persistent memory"]), "--set", "storageClasses.erase=discard")...); err == nil || !strings.Contains(err.Error(), "knows no discard") {
		t.Errorf("discard of persistent memory: %v", err)
	}
	for _, v := range find[appsv1.DaemonSet](t, charttest.Render(t), "DaemonSet", "splitfs-node").Spec.Template.Spec.Volumes {
		if strings.HasPrefix(v.Name, "lvm") {
			t.Errorf("volume %s without lvm", v.Name)
		}
	}
}

// TestModule: what brings a module to a node fits together, changes nothing outside the driver's directory, and is absent by default.
func TestModule(t *testing.T) {
	pod := func(name string) *corev1.PodSpec {
		return &find[appsv1.DaemonSet](t, charttest.Render(t, variants[name]...), "DaemonSet", "splitfs-node").Spec.Template.Spec
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

// TestRBACIsNarrow: no wildcard, no Secret outside the release's namespace, and each binding leads to a role and an account.
func TestRBACIsNarrow(t *testing.T) {
	objects := charttest.Render(t)
	for _, object := range objects {
		var rules []rbacv1.PolicyRule
		switch object.GetKind() {
		case "ClusterRole":
			rules = find[rbacv1.ClusterRole](t, objects, "ClusterRole", object.GetName()).Rules
		case "Role":
			rules = find[rbacv1.Role](t, objects, "Role", object.GetName()).Rules
		case "ClusterRoleBinding":
			binding := find[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding", object.GetName())
			find[rbacv1.ClusterRole](t, objects, "ClusterRole", binding.RoleRef.Name)
			find[corev1.ServiceAccount](t, objects, "ServiceAccount", binding.Subjects[0].Name)
		case "RoleBinding":
			binding := find[rbacv1.RoleBinding](t, objects, "RoleBinding", object.GetName())
			find[rbacv1.Role](t, objects, "Role", binding.RoleRef.Name)
			find[corev1.ServiceAccount](t, objects, "ServiceAccount", binding.Subjects[0].Name)
		}
		for _, rule := range rules {
			for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
				if slices.Contains(list, "*") {
					t.Errorf("%s %s has a wildcard: %+v", object.GetKind(), object.GetName(), rule)
				}
			}
			if object.GetKind() == "ClusterRole" && slices.Contains(rule.Resources, "secrets") {
				t.Errorf("ClusterRole %s reads Secrets of all namespaces", object.GetName())
			}
			writes := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
			if writes && (slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "mutatingwebhookconfigurations")) && len(rule.ResourceNames) == 0 {
				t.Errorf("%s %s may change any of %v", object.GetKind(), object.GetName(), rule.Resources)
			}
		}
	}
}

// TestWebhookConfiguration: names agree between the configuration, the Service, the Deployment's arguments and the rights.
func TestWebhookConfiguration(t *testing.T) {
	objects := charttest.Render(t, "--set", "injector.exemptNamespaces={kube-system,monitoring}")
	configuration := find[admissionregistrationv1.MutatingWebhookConfiguration](t, objects, "MutatingWebhookConfiguration", "splitfs-injector")
	webhook := configuration.Webhooks[0]
	service := find[corev1.Service](t, objects, "Service", webhook.ClientConfig.Service.Name)
	deployment := find[appsv1.Deployment](t, objects, "Deployment", "splitfs-injector")
	arguments := deployment.Spec.Template.Spec.Containers[0].Args
	for _, argument := range []string{"--webhook-name=" + configuration.Name, "--service-name=" + service.Name, "--secret-name=splitfs-injector-certs",
		"--exempt-namespace=kube-system", "--exempt-namespace=monitoring", "--lookup-timeout=4000ms"} {
		if !slices.Contains(arguments, argument) {
			t.Errorf("argument %s is missing in %q", argument, arguments)
		}
	}
	find[corev1.Secret](t, objects, "Secret", "splitfs-injector-certs")
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(deployment.Spec.Template.Labels)) {
		t.Error("the Service does not select the injector's pods")
	}
	policies := map[string]admissionregistrationv1.FailurePolicyType{}
	for _, webhook := range configuration.Webhooks {
		policies[webhook.Name] = *webhook.FailurePolicy
		if webhook.ClientConfig.Service.Name != service.Name || *webhook.ClientConfig.Service.Path != "/mutate-pods" || *webhook.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy {
			t.Errorf("webhook is %+v", webhook)
		}
		checkNamespaces(t, webhook.NamespaceSelector, map[string]bool{"kube-system": false, "splitfs-system": false, "monitoring": false, "default": true, "default,splitfs.io/inject=false": false})
	}
	if want := map[string]admissionregistrationv1.FailurePolicyType{"required.injector.splitfs.io": "Fail", "pods.injector.splitfs.io": "Ignore"}; !maps.Equal(policies, want) {
		t.Errorf("failure policies are %v", policies)
	}
	policy := find[admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy", "splitfs-library-required")
	checkNamespaces(t, policy.Spec.MatchConstraints.NamespaceSelector, map[string]bool{"kube-system": false, "splitfs-system": false, "default": true, "default,splitfs.io/inject=false": false})
	if binding := find[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, objects, "ValidatingAdmissionPolicyBinding", "splitfs-library-required"); binding.Spec.PolicyName != policy.Name {
		t.Errorf("the binding is for policy %s", binding.Spec.PolicyName)
	}
}

// checkNamespaces: a namespace is a name, or a name and a label.
func checkNamespaces(t *testing.T, selector *metav1.LabelSelector, want map[string]bool) {
	t.Helper()
	namespaces, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	for namespace, wanted := range want {
		set, err := labels.ConvertSelectorToLabelsMap("kubernetes.io/metadata.name=" + namespace)
		if err != nil {
			t.Fatal(err)
		}
		if got := namespaces.Matches(set); got != wanted {
			t.Errorf("namespace %s reaches the injector: %v", namespace, got)
		}
	}
}

// TestInjectorChoices: what the values of the injector change in the objects of the API server.
func TestInjectorChoices(t *testing.T) {
	objects := charttest.Render(t, "--set", "injector.namespaces=labelled", "--set", "injector.failurePolicy=Ignore")
	for _, webhook := range find[admissionregistrationv1.MutatingWebhookConfiguration](t, objects, "MutatingWebhookConfiguration", "splitfs-injector").Webhooks {
		if *webhook.FailurePolicy != admissionregistrationv1.Ignore {
			t.Errorf("webhook %s blocks pods", webhook.Name)
		}
		checkNamespaces(t, webhook.NamespaceSelector, map[string]bool{"default": false, "default,splitfs.io/inject=true": true, "kube-system,splitfs.io/inject=true": false})
	}
	for _, object := range objects {
		if object.GetName() == "splitfs-library-required" {
			t.Errorf("%s blocks pods", object.GetKind())
		}
	}
}

func TestSingleReplicaHasNoBudget(t *testing.T) {
	// A budget over one replica would either allow nothing to happen or mean nothing.
	for _, object := range charttest.Render(t, "--set", "injector.replicas=1") {
		if object.GetKind() == "PodDisruptionBudget" {
			t.Error("a PodDisruptionBudget for a single replica blocks draining its node")
		}
	}
}

// TestValuesAreAllUsed: a value that no template reads would be a promise without effect.
func TestValuesAreAllUsed(t *testing.T) {
	chart := filepath.Join(charttest.Root(t), "charts", "splitfs")
	templates, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, file := range templates {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
	}
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range charttest.Objects(t, values) {
		for _, section := range []string{"node", "controller", "injector", "devices", "emulated", "images", "module", "status"} {
			members, ok := object.Object[section].(map[string]any)
			if !ok {
				t.Fatalf("values have no section %s", section)
			}
			for member := range members {
				direct := "." + section + "." + member
				placed := slices.Contains([]string{"priorityClassName", "nodeSelector", "tolerations"}, member) && strings.Contains(text.String(), `include "splitfs.placement" .Values.`+section)
				if !strings.Contains(text.String(), direct) && !placed {
					t.Errorf("value %s.%s is used nowhere", section, member)
				}
			}
		}
	}
}
