// SPDX-License-Identifier: Apache-2.0

package promise

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"splitfs.io/splitfs/internal/contract"
)

// OptedOut says whether the labels or annotations of a pod refuse the library.
func OptedOut(values map[string]string) bool { return values[contract.AnnotationInject] == "false" }

// missing is the first place of a pod that would get less than it was promised.
type missing struct {
	container, path string
	mode            contract.Mode
}

// shortfall looks at each place where a container can write into a claim's volume of a mode; nil: all of them have what
// they need.
func shortfall(pod *corev1.Pod, claim string, mode contract.Mode) *missing {
	volumes := volumesOf(pod, claim)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			promised := PromisedMode(pod, c.Name, mode)
			if !promised.NeedsLibrary() {
				continue
			}
			for _, mount := range c.VolumeMounts {
				if mount.ReadOnly || !slices.Contains(volumes, mount.Name) {
					continue
				}
				if given, ok := GivenMode(c, path.Clean("/"+mount.MountPath)); !ok || promised.Stronger(given) {
					return &missing{container: c.Name, path: mount.MountPath, mode: promised}
				}
			}
		}
	}
	return nil
}

// volumesOf are the names of the pod's volumes that are the claim and that it can write to.
func volumesOf(pod *corev1.Pod, claim string) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim &&
			!v.PersistentVolumeClaim.ReadOnly,
			v.Ephemeral != nil && pod.Name+"-"+v.Name == claim: // Kubernetes names the claim so
			names = append(names, v.Name)
		}
	}
	return names
}

// PromisedMode is what the annotations say for a container, else the volume's own mode. What is no mode is the
// injector's to refuse.
func PromisedMode(pod *corev1.Pod, container string, mode contract.Mode) contract.Mode {
	for _, key := range []string{contract.AnnotationMode + "." + container, contract.AnnotationMode} {
		if asked, err := contract.ParseMode(pod.Annotations[key]); err == nil {
			return asked
		}
	}
	return mode
}

// GivenMode is the mode in which the library would serve a path of a container; not ok: it would not be there, or not
// serve it.
func GivenMode(c *corev1.Container, mountPath string) (contract.Mode, bool) {
	mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		return path.Clean("/"+m.MountPath) == contract.LibraryDir
	})
	if !mounted || !slices.Contains(contract.PreloadElements(variable(c, contract.EnvPreload)), contract.LibraryPath) {
		return "", false
	}
	for _, served := range contract.ParseConfig(variable(c, contract.EnvConfig)) {
		if served.Path == mountPath {
			return served.Mode, true
		}
	}
	return "", false
}

// unserved is what becomes of the pod's programs without the library: what the pod says, else what the class says, else
// they are refused where a container is promised strict.
func unserved(pod *corev1.Pod, claim string, use Use) contract.Unserved {
	if asked, err := contract.ParseUnserved(pod.Annotations[contract.AnnotationUnserved]); err == nil {
		return asked
	}
	if use.Unserved != "" {
		return use.Unserved
	}
	volumes := volumesOf(pod, claim)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			uses := func(m corev1.VolumeMount) bool { return !m.ReadOnly && slices.Contains(volumes, m.Name) }
			if PromisedMode(pod, containers[i].Name, use.Mode) == contract.Strict &&
				slices.ContainsFunc(containers[i].VolumeMounts, uses) {
				return contract.Refuse
			}
		}
	}
	return contract.Allow
}

// configurations are the variables by which the library serves the containers, a line each, by container.
func configurations(pod *corev1.Pod) map[string]string {
	files := map[string]string{}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			var text strings.Builder
			for _, name := range []string{contract.EnvConfig, contract.EnvFsync, contract.EnvProtect} {
				if value := contract.Expanded(variable(&containers[i], name)); value != "" {
					text.WriteString(name + "=" + value + "\n")
				}
			}
			files[containers[i].Name] = text.String()
		}
	}
	return files
}

// variable is the text of the entry that counts: of several with one name kubelet takes the last.
func variable(c *corev1.Container, name string) string {
	for _, v := range slices.Backward(c.Env) {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}
