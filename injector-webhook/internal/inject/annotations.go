// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"splitfs.io/splitfs/injector-webhook/internal/modes"
	"splitfs.io/splitfs/injector-webhook/internal/names"
)

// Wishes is what the annotations of a pod ask for.
type Wishes struct {
	// OptOut: the pod wants to be left alone; nothing else in it was looked at.
	OptOut bool
	// pod is the mode for all containers, empty when not asked for; perContainer goes before it.
	pod          modes.Mode
	perContainer map[string]modes.Mode
	// Warnings name annotations that have no effect.
	Warnings []string
}

// AsksForMode says that the pod's author relies on a mode: leaving the pod alone would silently weaken what was asked for.
func (w *Wishes) AsksForMode() bool { return w.pod != "" || len(w.perContainer) > 0 }

// modeFor is the mode of a mount in a container whose volume has the given mode by itself.
func (w *Wishes) modeFor(container string, volume modes.Mode) modes.Mode {
	if mode, ok := w.perContainer[container]; ok {
		return mode
	}
	if w.pod != "" {
		return w.pod
	}
	return volume
}

// ReadWishes parses the annotations of a pod. A wrong value or a container that does not exist is a DeniedError: guessing could
// give the application less than it asked for.
func ReadWishes(pod *corev1.Pod) (*Wishes, error) {
	wishes := &Wishes{perContainer: map[string]modes.Mode{}}
	if value, ok := pod.Annotations[names.AnnotationInject]; ok {
		switch value {
		case "false":
			return &Wishes{OptOut: true}, nil
		case "true":
		default:
			return nil, denied(ReasonAnnotation, "annotation %s: %s is not allowed; allowed are \"true\" (the default) and \"false\" (leave this pod alone)",
				names.AnnotationInject, modes.Quote(value))
		}
	}
	// In a fixed order, so that the same pod always gets the same message.
	keys := make([]string, 0, len(pod.Annotations))
	for key := range pod.Annotations {
		if strings.HasPrefix(key, names.AnnotationPrefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := wishes.read(pod, key, pod.Annotations[key]); err != nil {
			return nil, err
		}
	}
	return wishes, nil
}

// maxAnnotationName is Kubernetes' limit: our prefix, and 63 bytes behind its slash.
const maxAnnotationName = len(names.AnnotationPrefix) + 63

func (w *Wishes) read(pod *corev1.Pod, key, value string) error {
	container, isContainer := strings.CutPrefix(key, names.AnnotationModeContainerPrefix)
	switch {
	case key == names.AnnotationInject, key == names.AnnotationStatus:
		return nil
	case key != names.AnnotationMode && !isContainer:
		w.Warnings = append(w.Warnings, fmt.Sprintf("annotation %s has no meaning; SplitFS knows %s, %s<container> and %s",
			modes.Quote(key), names.AnnotationMode, names.AnnotationModeContainerPrefix, names.AnnotationInject))
		return nil
	}
	if len(key) > maxAnnotationName {
		return denied(ReasonAnnotation, "an annotation %s... has a name of %d bytes; Kubernetes allows %d", names.AnnotationModeContainerPrefix, len(key), maxAnnotationName)
	}
	mode, err := modes.Parse(value)
	if err != nil {
		return denied(ReasonAnnotation, "annotation %s: %v", key, err)
	}
	if !isContainer {
		w.pod = mode
		return nil
	}
	if !hasContainer(pod, container) {
		return denied(ReasonAnnotation, "annotation %s: the pod has no container of that name; its containers are %s", key, containerNames(pod))
	}
	w.perContainer[container] = mode
	return nil
}

func hasContainer(pod *corev1.Pod, name string) bool {
	match := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(pod.Spec.Containers, match) || slices.ContainsFunc(pod.Spec.InitContainers, match)
}

// maxListedNames bounds an error text about a pod with very many containers.
const maxListedNames = 16

func containerNames(pod *corev1.Pod) string {
	var list []string
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if len(list) == maxListedNames {
				return strings.Join(list, ", ") + ", ..."
			}
			list = append(list, strings.Trim(modes.Name(containers[i].Name), `"`))
		}
	}
	return strings.Join(list, ", ")
}
