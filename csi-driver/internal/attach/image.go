// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// A variable of a pod replaces the one of its image, and admission cannot see the image. So an image that preloads
// something by its own LD_PRELOAD, an allocator for example, loses that when the pod is injected. It is seen here,
// where the image is.

// Images knows what the image of a container sets in its environment, as NAME=VALUE.
type Images interface {
	ImageEnv(ctx context.Context, containerID string) ([]string, error)
}

var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// comparePreload tells a pod, once for each container, of what its image preloads and a process with our library does
// not have. It says whether the image could be looked at.
func (v *Verifier) comparePreload(ctx context.Context, pod volume.Pod, id, container string, p *process) error {
	if v.config.Images == nil || !containerID.MatchString(id) || v.compared[id] {
		return nil
	}
	environment, err := os.ReadFile(filepath.Join(p.dir, "environ"))
	if err != nil {
		return nil //nolint:nilerr // the process has ended; another of the container will do
	}
	image, err := v.config.Images.ImageEnv(ctx, id)
	if err != nil {
		return fmt.Errorf("look at the image of container %s of pod %s/%s: %w", container, pod.Namespace, pod.Name, err)
	}
	v.compared[id] = true
	has := preloaded(strings.Split(string(environment), "\x00"))
	lost := slices.DeleteFunc(preloaded(image), func(element string) bool { return slices.Contains(has, element) })
	if len(lost) == 0 {
		return nil
	}
	const most = 256
	value := Printable(strings.Join(lost, ":"))
	if len(value) > most {
		value = value[:most] + "..."
	}
	klog.FromContext(ctx).V(2).Info("The pod's LD_PRELOAD replaces the image's", "pod", klog.KRef(pod.Namespace, pod.Name),
		"container", container, "lost", value)
	v.config.Events.OnPod(ctx, pod, true, events.ReasonImagePreload, fmt.Sprintf(
		"the image of container %s preloads %s by its own LD_PRELOAD, which the pod's LD_PRELOAD replaces, so its programs "+
			"run without that. Set env LD_PRELOAD to this value in the container of the pod: the injector puts "+
			"libsplit.so behind it",
		container, value))
	return nil
}

// preloaded are the elements of LD_PRELOAD in an environment.
func preloaded(environment []string) []string {
	for _, variable := range environment {
		if value, ok := strings.CutPrefix(variable, contract.EnvPreload+"="); ok {
			return contract.PreloadElements(value)
		}
	}
	return nil
}
