// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"splitfs.io/splitfs/internal/contract"
)

// Wishes is what the annotations of a pod ask for.
type Wishes struct {
	// OptOut: the pod wants to be left alone; nothing else in it was looked at.
	OptOut  bool
	mode    wish[contract.Mode]
	fsync   wish[contract.Fsync]
	protect wish[contract.Protect]
	// Warnings name annotations that have no effect.
	Warnings []string
}

// wish is an annotation that stands for all containers of a pod, and with a container's name behind it for that
// container.
type wish[T ~string] struct {
	annotation string
	parse      func(string) (T, error)
	// pod is empty when it was not asked for; what containers asks goes before it.
	pod        T
	containers map[string]T
}

func newWishes() *Wishes {
	return &Wishes{
		mode: wish[contract.Mode]{
			annotation: contract.AnnotationMode, parse: contract.ParseMode, containers: map[string]contract.Mode{},
		},
		fsync: wish[contract.Fsync]{
			annotation: contract.AnnotationFsync, parse: contract.ParseFsync, containers: map[string]contract.Fsync{},
		},
		protect: wish[contract.Protect]{
			annotation: contract.AnnotationProtect, parse: contract.ParseProtect, containers: map[string]contract.Protect{},
		},
	}
}

// of is what one container should get: its own annotation, the pod's, or otherwise.
func (w *wish[T]) of(container string, otherwise T) T {
	if value, ok := w.containers[container]; ok {
		return value
	}
	if w.pod != "" {
		return w.pod
	}
	return otherwise
}

// read takes an annotation if it is one of this wish.
func (w *wish[T]) read(pod *corev1.Pod, key, value string) (taken bool, err error) {
	container, isContainer := strings.CutPrefix(key, w.annotation+".")
	if key != w.annotation && !isContainer {
		return false, nil
	}
	if len(key) > maxAnnotationName {
		return true, denied(ReasonAnnotation, "an annotation %s.CONTAINER has a name of %d bytes; Kubernetes allows %d",
			w.annotation, len(key), maxAnnotationName)
	}
	parsed, err := w.parse(value)
	if err != nil {
		return true, denied(ReasonAnnotation, "annotation %s: %v", key, err)
	}
	if !isContainer {
		w.pod = parsed
		return true, nil
	}
	if !hasContainer(pod, container) {
		return true, denied(ReasonAnnotation, "annotation %s: the pod has no container of that name; its containers are %s",
			key, containerNames(pod))
	}
	w.containers[container] = parsed
	return true, nil
}

// withoutEffect warns of annotations for containers that are not injected.
func (w *wish[T]) withoutEffect(injected map[string]map[string]contract.Mode) []string {
	var warnings []string
	for name := range w.containers {
		if _, ok := injected[name]; !ok {
			warnings = append(warnings,
				fmt.Sprintf("annotation %s.%s has no effect: the container mounts no SplitFS volume", w.annotation, name))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// AsksForMode says that the pod's author relies on a mode: leaving the pod alone would silently weaken what was asked
// for.
func (w *Wishes) AsksForMode() bool { return w.mode.pod != "" || len(w.mode.containers) > 0 }

// ReadWishes parses the annotations of a pod. A wrong value or a container that does not exist is a DeniedError:
// guessing could give the application less than it asked for.
func ReadWishes(pod *corev1.Pod) (*Wishes, error) {
	wishes := newWishes()
	if value, ok := pod.Annotations[contract.AnnotationInject]; ok {
		switch value {
		case "false":
			return &Wishes{OptOut: true}, nil
		case "true":
		default:
			return nil, denied(ReasonAnnotation,
				"annotation %s: %s is not allowed; allowed are \"true\" (the default) and \"false\" (leave this pod alone)",
				contract.AnnotationInject, contract.Quote(value))
		}
	}
	// In a fixed order, so that the same pod always gets the same message.
	keys := make([]string, 0, len(pod.Annotations))
	for key := range pod.Annotations {
		if strings.HasPrefix(key, contract.AnnotationPrefix) {
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
const maxAnnotationName = len(contract.AnnotationPrefix) + 63

func (w *Wishes) read(pod *corev1.Pod, key, value string) error {
	if key == contract.AnnotationInject || key == contract.AnnotationStatus {
		return nil
	}
	if key == contract.AnnotationUnserved {
		// The node goes by it. Here it is only kept from being misspelt.
		if _, err := contract.ParseUnserved(value); err != nil {
			return denied(ReasonAnnotation, "annotation %s: %v", key, err)
		}
		return nil
	}
	if taken, err := w.mode.read(pod, key, value); taken {
		return err
	}
	if taken, err := w.fsync.read(pod, key, value); taken {
		return err
	}
	if taken, err := w.protect.read(pod, key, value); taken {
		return err
	}
	w.Warnings = append(w.Warnings,
		fmt.Sprintf("annotation %s has no meaning; SplitFS knows %s, %s, %s, %s and %s, the first three also with "+
			".<container>",
			contract.Quote(key), contract.AnnotationMode, contract.AnnotationFsync, contract.AnnotationProtect,
			contract.AnnotationUnserved, contract.AnnotationInject))
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
			list = append(list, strings.Trim(contract.Name(containers[i].Name), `"`))
		}
	}
	return strings.Join(list, ", ")
}
