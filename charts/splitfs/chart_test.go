// SPDX-License-Identifier: Apache-2.0

// Package splitfs holds the tests of the chart.
package splitfs

import (
	"fmt"
	"io/fs"
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
	networkingv1 "k8s.io/api/networking/v1"
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
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed,
				true); err != nil {
				t.Fatalf("%s %s: %v", kind, name, err)
			}
			return typed
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

func TestLint(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), charttest.Helm(t), "lint",
		"--strict", filepath.Join(charttest.Root(t), "charts", "splitfs")).CombinedOutput()
	if err != nil || strings.Contains(string(output), "[WARNING]") {
		t.Errorf("helm lint: %v\n%s", err, output)
	}
}

func TestStorageClasses(t *testing.T) {
	objects := charttest.Render(t, "--set", "storageClasses.sync.fstype=ext4",
		"--set", "storageClasses.posix.create=false", "--set", "storageClasses.strict.default=true")
	for mode, fstype := range map[string]string{"strict": "xfs", "sync": "ext4"} {
		class := find[storagev1.StorageClass](t, objects, "StorageClass", "splitfs-"+mode)
		want := map[string]string{"mode": mode, "device": "emulated", "csi.storage.k8s.io/fstype": fstype}
		if class.Provisioner != "csi.splitfs.io" || fmt.Sprint(class.Parameters) != fmt.Sprint(want) ||
			*class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer ||
			class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
			t.Errorf("class of mode %s is %+v", mode, class)
		}
		if isDefault := class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"; isDefault !=
			(mode == "strict") {
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
	if *driver.Spec.AttachRequired || !*driver.Spec.PodInfoOnMount || !*driver.Spec.StorageCapacity ||
		*driver.Spec.FSGroupPolicy != storagev1.FileFSGroupPolicy ||
		!slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral) ||
		!slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecyclePersistent) ||
		driver.Labels["security.openshift.io/csi-ephemeral-volume-profile"] != "restricted" {
		t.Errorf("CSIDriver is %+v", driver)
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
		"monitoring.podMonitors.interval=often":                               "interval",
		"monitoring.rules.runbookURL=https://docs.example.com":                "runbookURL",
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
		"--set", "images.csiDriver.repository=registry.example.com:5000/a/csi", "--set", "images.csiDriver.tag=v1",
		"--set", "images.pullPolicy=Never", "--set", "images.pullSecrets={one,two}",
		"--set", "kubeletDir=/data/kubelet", "--set", "emulated.dir=/mnt/fast", "--set", "emulated.capacity=100Gi",
		"--set", "node.dataDir=/data/splitfs",
		"--set", "node.runtimeSocket=/run/k0s/containerd.sock", "--set", "node.maxUnavailable=10%",
		"--set", "injector.replicas=1", "--set", "injector.failurePolicy=Ignore", "--set", "injector.timeoutSeconds=10",
		"--set", "injector.exemptNamespaces={kube-system,monitoring}", "--set", "injector.namespaces=labelled",
		"--set", "injector.requiredClasses={my-strict}", "--set-json", `injector.affinity={"nodeAffinity":{}}`,
		"--set-json", `node.tolerations=[{"key":"pm","operator":"Exists"}]`, "--set", "node.podAnnotations.a=b",
		"--set", "controller.podAnnotations.a=b", "--set", "injector.podAnnotations.a=b",
		"--set-json", `node.resources={"limits":{"cpu":2,"memory":"1Gi"}}`,
		"--set", "storageClasses.strict.reclaimPolicy=Retain", "--set", "plugin.viewerRole=true",
	},
	"module from images": {"--set", "module.enabled=true",
		"--set", "module.images={registry.example.com/modules:debian-12,registry.example.com/modules:debian-13}"},
	"module built on the nodes": {
		"--set", "module.enabled=true", "--set", "module.build.enabled=true", "--set", "module.build.offline=true",
		"--set", "module.build.timeout=10m",
		"--set", "module.signing.secretName=module-key", "--set", "module.build.image.tag=v1",
		"--set", "node.dataDir=/data/splitfs",
	},
	"persistent memory": {
		"--set", "devices.emulated.enabled=false", "--set", "devices.lvm.enabled=true",
		"--set", "devices.namespace.enabled=true", "--set", "storageClasses.device=namespace",
		"--set", "storageClasses.erase=overwrite",
		"--set", "devices.regions={region0,0x2468ac00123456}", "--set", "devices.regionPercent=50",
		"--set", "devices.namespaceMap=mem",
	},
	"dashboards": {"--set", "monitoring.dashboards.enabled=true",
		"--set", "monitoring.dashboards.annotations.grafana_folder=SplitFS"},
	"library by claim": {"--set", "injector.library.delivery=ephemeral"},
	"snapshots and classes to change to": {"--api-versions=snapshot.storage.k8s.io/v1", "--set", "snapshots.enabled=true",
		"--set", "volumeAttributesClasses.create=true"},
	"nothing optional": {
		"--set", "status.enabled=false", "--set", "plugin.inspect=false",
		"--set-json", "node.tolerations=[]", "--set-json", "node.nodeSelector=null", "--set-json", "injector.resources=null",
		"--set-json", "node.resources=null",
		"--set", "node.priorityClassName=", "--set", "injector.priorityClassName=",
		"--set", "storageClasses.strict.create=false",
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
				{"DaemonSet", "splitfs-node", nil, nil}, {"DaemonSet", "splitfs-agents", nil, nil},
				{"DaemonSet", "splitfs-provisioner", nil, nil},
				{"Deployment", "splitfs-controller", nil, nil}, {"Deployment", "splitfs-injector", nil, nil},
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

// TestSnapshotWorkloads: what comes with snapshots only is held to the same rules.
func TestSnapshotWorkloads(t *testing.T) {
	objects := charttest.Render(t, "--api-versions=snapshot.storage.k8s.io/v1", "--set", "snapshots.enabled=true")
	controller := find[appsv1.Deployment](t, objects, "Deployment", "splitfs-snapshot-controller").Spec
	checkPodTemplate(t, "splitfs-snapshot-controller", controller.Selector, &controller.Template, objects)
	provisioner := find[appsv1.DaemonSet](t, objects, "DaemonSet", "splitfs-provisioner").Spec
	checkPodTemplate(t, "splitfs-provisioner", provisioner.Selector, &provisioner.Template, objects)
}

func checkPodTemplate(t *testing.T, name string, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec,
	objects []*unstructured.Unstructured) {
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
		if c.Name != "module-build" &&
			(c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem) {
			t.Errorf("%s/%s: the root file system is writable", name, c.Name)
		}
		if trusted := c.Name == "splitfs" && name == "splitfs-node" || c.Name == "agents"; !trusted {
			if c.SecurityContext.AllowPrivilegeEscalation == nil || *c.SecurityContext.AllowPrivilegeEscalation ||
				!slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s/%s: has more rights than it needs: %+v", name, c.Name, c.SecurityContext)
			}
			if profile := template.Spec.SecurityContext; name != "splitfs-node" &&
				(profile == nil || profile.SeccompProfile == nil ||
					profile.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault) {
				t.Errorf("%s: its system calls are not filtered: %+v", name, profile)
			}
			// What is not trusted in splitfs-node are init containers, which have no probes.
			if name != "splitfs-node" && (c.LivenessProbe == nil || c.ReadinessProbe == nil) {
				t.Errorf("%s/%s: nobody notices that it hangs, or is not ready", name, c.Name)
			}
		}
	}
}

// TestNetworkPolicy: probes, metrics and the webhook can be reached, and nothing else; there is none where none is
// wanted.
func TestNetworkPolicy(t *testing.T) {
	objects := charttest.Render(t, "--set-json", `networkPolicy.from=[{"namespaceSelector":{"matchLabels":{"a":"b"}}}]`)
	reached := func(name string, port *corev1.ContainerPort) bool {
		var ports []networkingv1.NetworkPolicyPort
		for _, rule := range find[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", name).Spec.Ingress {
			ports = append(ports, rule.Ports...)
		}
		return slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
			end := p.Port.IntVal
			if p.EndPort != nil {
				end = *p.EndPort
			}
			return p.Port.StrVal == port.Name || p.Port.StrVal == "" &&
				port.ContainerPort >= p.Port.IntVal && port.ContainerPort <= end
		})
	}
	for _, name := range []string{"splitfs-node", "splitfs-agents", "splitfs-provisioner"} {
		for _, c := range find[appsv1.DaemonSet](t, objects, "DaemonSet", name).Spec.Template.Spec.Containers {
			for i := range c.Ports {
				if !reached("splitfs", &c.Ports[i]) {
					t.Errorf("port %d of %s cannot be reached", c.Ports[i].ContainerPort, name)
				}
			}
		}
	}
	for i, port := range find[appsv1.Deployment](t, objects, "Deployment",
		"splitfs-injector").Spec.Template.Spec.Containers[0].Ports {
		if !reached(
			"splitfs-injector",
			&find[appsv1.Deployment](t, objects, "Deployment", "splitfs-injector").Spec.Template.Spec.Containers[0].Ports[i]) {
			t.Errorf("port %d of the injector cannot be reached", port.ContainerPort)
		}
	}
	for _, name := range []string{"splitfs", "splitfs-injector"} {
		for _, rule := range find[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy", name).Spec.Ingress {
			webhook := slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool {
				return p.Port.StrVal == "webhook"
			})
			if webhook && len(rule.Ports) == 1 && len(rule.From) == 0 {
				continue
			}
			if from := rule.From; len(from) != 1 || from[0].NamespaceSelector.MatchLabels["a"] != "b" {
				t.Errorf("who may scrape, by policy %s: %+v", name, from)
			}
		}
	}
	if policy := find[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy",
		"splitfs-agents"); len(policy.Spec.Egress) != 0 || policy.Spec.PolicyTypes[0] != networkingv1.PolicyTypeEgress {
		t.Errorf("agents reach somebody: %+v", policy.Spec)
	}
	for _, object := range charttest.Render(t, "--set", "networkPolicy.enabled=false") {
		if object.GetKind() == "NetworkPolicy" {
			t.Errorf("%s is not wanted", object.GetName())
		}
	}
}

// TestNodePaths: each directory that the driver's arguments name is mounted at the same path from the host.
func TestNodePaths(t *testing.T) {
	daemonSet := find[appsv1.DaemonSet](t, charttest.Render(t, variants["everything changed"]...), "DaemonSet",
		"splitfs-node")
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
	for _, path := range []string{
		"/data/kubelet/plugins", "/data/kubelet/pods", "/data/kubelet/plugins_registry", "/data/splitfs", "/mnt/fast", "/dev",
	} {
		if !mounted[path] {
			t.Errorf("%s is not mounted", path)
		}
	}
	if !propagated["/data/kubelet/plugins"] || !propagated["/data/kubelet/pods"] {
		t.Errorf("mounts of volumes would not appear in other pods: %v", propagated)
	}
	for _, argument := range []string{
		"--kubelet-dir=/data/kubelet", "--data-dir=/data/splitfs", "--emulated-dir=/mnt/fast", "--emulated-capacity=100Gi",
	} {
		if !slices.Contains(pod.Containers[0].Args, argument) {
			t.Errorf("argument %s is missing in %q", argument, pod.Containers[0].Args)
		}
	}
	if !pod.HostPID || pod.Containers[0].Image != "registry.example.com:5000/a/csi:v1" {
		t.Errorf("hostPID %v, image %s", pod.HostPID, pod.Containers[0].Image)
	}
	sidecars := find[appsv1.DaemonSet](t, charttest.Render(t, variants["everything changed"]...), "DaemonSet",
		"splitfs-provisioner").Spec.Template.Spec
	if v := sidecars.Volumes; len(v) != 1 || v[0].HostPath.Path != "/data/kubelet/plugins/csi.splitfs.io" ||
		sidecars.HostPID {
		t.Errorf("sidecars see more of the node than the driver's socket: %+v, hostPID %v", v, sidecars.HostPID)
	}
}

// TestRBACIsNarrow: no wildcard, no Secret but one's own, and each binding leads to a role and an account.
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
			writes := slices.ContainsFunc(rule.Verbs, func(verb string) bool {
				return !slices.Contains([]string{"get", "list", "watch"}, verb)
			})
			if slices.Contains(rule.Resources, "secrets") && len(rule.ResourceNames) == 0 {
				t.Errorf("%s %s reads every Secret of the namespace, also the key that signs modules", object.GetKind(),
					object.GetName())
			}
			if writes &&
				(slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "mutatingwebhookconfigurations")) &&
				len(rule.ResourceNames) == 0 {
				t.Errorf("%s %s may change any of %v", object.GetKind(), object.GetName(), rule.Resources)
			}
		}
	}
}

// TestWebhookConfiguration: names agree between the configuration, the Service, the Deployment's arguments and the
// rights.
func TestWebhookConfiguration(t *testing.T) {
	objects := charttest.Render(t, "--set", "injector.exemptNamespaces={kube-system,monitoring}")
	configuration := find[admissionregistrationv1.MutatingWebhookConfiguration](t, objects, "MutatingWebhookConfiguration",
		"splitfs-injector")
	webhook := configuration.Webhooks[0]
	service := find[corev1.Service](t, objects, "Service", webhook.ClientConfig.Service.Name)
	deployment := find[appsv1.Deployment](t, objects, "Deployment", "splitfs-injector")
	arguments := deployment.Spec.Template.Spec.Containers[0].Args
	for _, argument := range []string{"--webhook-name=" + configuration.Name, "--service-name=" + service.Name,
		"--secret-name=splitfs-injector-certs",
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
		if webhook.ClientConfig.Service.Name != service.Name || *webhook.ClientConfig.Service.Path != "/mutate-pods" ||
			*webhook.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy {
			t.Errorf("webhook is %+v", webhook)
		}
		checkNamespaces(t, webhook.NamespaceSelector, map[string]bool{
			"kube-system": false, "splitfs-system": false, "monitoring": false, "default": true,
			"default,splitfs.io/inject=false": false,
		})
	}
	if want := map[string]admissionregistrationv1.FailurePolicyType{
		"required.injector.splitfs.io": "Fail", "pods.injector.splitfs.io": "Ignore",
	}; !maps.Equal(policies, want) {
		t.Errorf("failure policies are %v", policies)
	}
	policy := find[admissionregistrationv1.ValidatingAdmissionPolicy](t, objects, "ValidatingAdmissionPolicy",
		"splitfs-library-required")
	checkNamespaces(t, policy.Spec.MatchConstraints.NamespaceSelector, map[string]bool{
		"kube-system": false, "splitfs-system": false, "default": true, "default,splitfs.io/inject=false": false,
	})
	if binding := find[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, objects,
		"ValidatingAdmissionPolicyBinding", "splitfs-library-required"); binding.Spec.PolicyName != policy.Name {
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
	for _, webhook := range find[admissionregistrationv1.MutatingWebhookConfiguration](t, objects,
		"MutatingWebhookConfiguration", "splitfs-injector").Webhooks {
		if *webhook.FailurePolicy != admissionregistrationv1.Ignore {
			t.Errorf("webhook %s blocks pods", webhook.Name)
		}
		checkNamespaces(t, webhook.NamespaceSelector, map[string]bool{
			"default": false, "default,splitfs.io/inject=true": true, "kube-system,splitfs.io/inject=true": false,
		})
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
	var text strings.Builder
	if err := filepath.WalkDir(filepath.Join(chart, "templates"), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		text.Write(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range charttest.Objects(t, values) {
		for _, section := range []string{
			"node", "controller", "injector", "devices", "emulated", "images", "module", "monitoring", "status", "test",
		} {
			members, ok := object.Object[section].(map[string]any)
			if !ok {
				t.Fatalf("values have no section %s", section)
			}
			for member := range members {
				direct := "." + section + "." + member
				placed := slices.Contains([]string{"priorityClassName", "nodeSelector", "tolerations"}, member) &&
					strings.Contains(text.String(), `include "splitfs.placement" .Values.`+section)
				if !strings.Contains(text.String(), direct) && !placed {
					t.Errorf("value %s.%s is used nowhere", section, member)
				}
			}
		}
	}
}
