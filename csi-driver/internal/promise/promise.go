// SPDX-License-Identifier: Apache-2.0

// Package promise decides, when a volume is about to be shown to a pod, whether the pod's containers would have what
// the volume's mode promises. The promise of sync and strict is kept by the library in the container. Admission gives
// it the library; but a pod can be created while no injector answers, in a namespace that no webhook covers, or before
// its claim, and nobody would notice that it works with less. Mounting is the last moment at which that can be
// prevented.
package promise

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// ErrWithoutLibrary: a container would get less than it was promised. It is a volume.ErrPrecondition.
var ErrWithoutLibrary = fmt.Errorf("%w", volume.ErrPrecondition)

// Use is a volume that a pod is about to mount so that it can write.
type Use struct {
	VolumeID string
	Mode     contract.Mode
	// Unserved is what the volume's class says of programs without the library; empty: nothing.
	Unserved contract.Unserved
	// PV is the name of the PersistentVolume.
	PV  string
	Pod volume.Pod
}

// Checker asks the API server about pods.
type Checker struct {
	client kubernetes.Interface
	exempt sets.Set[string]
}

// NewChecker returns a Checker. Pods of the exempt namespaces, which the injector never touches, may run without the
// library.
func NewChecker(client kubernetes.Interface, exempt []string) *Checker {
	return &Checker{client: client, exempt: sets.New(exempt...)}
}

// Check returns an error that says what to do when a container of the pod would get less than it was promised, and else
// what becomes of the pod's programs without the library. What cannot be found out is no promise kept: kubelet asks
// again.
func (c *Checker) Check(ctx context.Context, use Use) (contract.Unserved, error) {
	if c.exempt.Has(use.Pod.Namespace) {
		return contract.Allow, nil
	}
	if use.Pod.Name == "" {
		if !use.Mode.NeedsLibrary() {
			return contract.Allow, nil
		}
		return "", fmt.Errorf("volume %s: %w: it promises mode %s, and kubelet does not say for which pod it is; the "+
			"CSIDriver object needs podInfoOnMount: true",
			use.VolumeID, volume.ErrPrecondition, use.Mode)
	}
	pod, err := c.client.CoreV1().Pods(use.Pod.Namespace).Get(ctx, use.Pod.Name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("volume %s: %w: look whether pod %s/%s has the library: %w", use.VolumeID,
			volume.ErrUnavailable, use.Pod.Namespace, use.Pod.Name, err)
	}
	if use.Pod.UID != "" && string(pod.UID) != use.Pod.UID {
		return "", fmt.Errorf("volume %s: %w: pod %s/%s was replaced by another of its name", use.VolumeID,
			volume.ErrPrecondition, use.Pod.Namespace, use.Pod.Name)
	}
	if OptedOut(pod.Labels) || OptedOut(pod.Annotations) {
		return contract.Allow, nil
	}
	claim, err := c.claim(ctx, use)
	if err != nil {
		return "", err
	}
	short := shortfall(pod, claim, use.Mode)
	if short == nil {
		return unserved(pod, claim, use), nil
	}
	namespace, err := c.client.CoreV1().Namespaces().Get(ctx, use.Pod.Namespace, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("volume %s: %w: look whether namespace %s opted out: %w", use.VolumeID, volume.ErrUnavailable,
			use.Pod.Namespace, err)
	}
	if OptedOut(namespace.Labels) {
		return contract.Allow, nil
	}
	return "", fmt.Errorf(
		"volume %s: %w: container %s of pod %s/%s is promised mode %s at %s and was not given the library that keeps "+
			"the promise%s. "+
			"Delete the pod, so that it is created anew with the injector (a namespace may need the label %s: \"true\"); the "+
			"label %s: \"false\" on the pod or its namespace does without the promise",
		use.VolumeID, ErrWithoutLibrary, short.container, use.Pod.Namespace, use.Pod.Name, short.mode, short.path, why(pod),
		contract.AnnotationInject, contract.AnnotationInject)
}

// Configurations implements node.Pods: what the library has to know in each container of a pod, where its environment
// says nothing.
func (c *Checker) Configurations(ctx context.Context, pod volume.Pod) (map[string]string, error) {
	object, err := c.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: look how the library serves pod %s/%s: %w", volume.ErrUnavailable, pod.Namespace,
			pod.Name, err)
	}
	if string(object.UID) != pod.UID {
		return nil, fmt.Errorf("%w: pod %s/%s was replaced by another of its name", volume.ErrPrecondition, pod.Namespace,
			pod.Name)
	}
	return configurations(object), nil
}

// claim returns the name of the claim by which the pod has the volume.
func (c *Checker) claim(ctx context.Context, use Use) (string, error) {
	pv, err := c.client.CoreV1().PersistentVolumes().Get(ctx, use.PV, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("volume %s: %w: look for the claim of PersistentVolume %s: %w", use.VolumeID,
			volume.ErrUnavailable, use.PV, err)
	}
	if ref := pv.Spec.ClaimRef; ref != nil && ref.Namespace == use.Pod.Namespace {
		return ref.Name, nil
	}
	return "", fmt.Errorf("volume %s: %w: PersistentVolume %s is bound to no claim of namespace %s", use.VolumeID,
		volume.ErrPrecondition, use.PV, use.Pod.Namespace)
}

// why repeats what the injector wrote into the pod when it left it alone.
func why(pod *corev1.Pod) string {
	status, ok := pod.Annotations[contract.AnnotationStatus]
	if !ok {
		return " (it was created while the injector was away, or where it does not look)"
	}
	const most = 300
	if len(status) > most {
		status = status[:most] + "..."
	}
	return " (" + contract.AnnotationStatus + ": " + strings.ToValidUTF8(status, "?") + ")"
}
