// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"splitfs.io/splitfs/charts/charttest"
)

// TestAgents: nothing that happens to the node service ends an agent, and a new supervisor is there before the old one
// goes.
func TestAgents(t *testing.T) {
	objects := charttest.Render(t, variants["everything changed"]...)
	set := find[appsv1.DaemonSet](t, objects, "DaemonSet", "splitfs-agents")
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling == nil || rolling.MaxSurge.IntValue() != 1 ||
		rolling.MaxUnavailable.IntValue() != 0 {
		t.Errorf("the supervisor before would end before the next one has its volumes: %+v", set.Spec.UpdateStrategy)
	}
	pod := &set.Spec.Template.Spec
	c := &pod.Containers[0]
	if c.LivenessProbe != nil || c.StartupProbe != nil || c.ReadinessProbe == nil {
		t.Errorf("a probe that fails ends all agents of a node, or none tells that volumes are taken over: %+v", c)
	}
	if !pod.HostPID || *pod.AutomountServiceAccountToken {
		t.Errorf("agents see the node's processes and not the API server: %+v", pod)
	}
	if _, limited := c.Resources.Limits[corev1.ResourceMemory]; limited {
		t.Error("where a memory limit is reached all agents of a node end together")
	}
	node := find[appsv1.DaemonSet](t, objects, "DaemonSet", "splitfs-node")
	for container, argument := range map[*corev1.Container]string{
		&node.Spec.Template.Spec.Containers[0]: "--agents-socket=/data/splitfs/agents/supervisor.sock",
		c:                                      "--data-dir=/data/splitfs",
	} {
		if !slices.Contains(container.Args, argument) {
			t.Errorf("%s: argument %s is missing in %q", container.Name, argument, container.Args)
		}
	}
	if !slices.EqualFunc(pod.Tolerations, node.Spec.Template.Spec.Tolerations, func(a, b corev1.Toleration) bool {
		return a == b
	}) {
		t.Errorf("agents are not where the node service is: %+v", pod.Tolerations)
	}
	for _, mount := range c.VolumeMounts {
		if mount.Name == "plugins" &&
			(mount.MountPath != "/data/kubelet/plugins" || *mount.MountPropagation != corev1.MountPropagationHostToContainer) {
			t.Errorf("agents do not see what the node service mounts: %+v", mount)
		}
	}
}
