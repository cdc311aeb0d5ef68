// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// A container finds two files of its pod's directory mounted elsewhere: the one that makes glibc's dynamic linker load
// the library into programs that LD_PRELOAD does not reach, and the configuration for those whose environment says
// nothing.

// Pods knows how the containers of pods are configured.
type Pods interface {
	// Configurations returns the text of a configuration file for each container.
	Configurations(ctx context.Context, pod volume.Pod) (map[string]string, error)
}

// offerPreload makes what is the same in all pods: the dynamic linker's file, and the place where a container's
// configuration is mounted.
func offerPreload(dir string) error {
	for name, content := range map[string]string{
		contract.PreloadSubPath: contract.LibraryPath + "\n", filepath.Base(contract.ConfigFile): "",
	} {
		if err := writeIfOther(filepath.Join(dir, name), content); err != nil {
			return fmt.Errorf("offer the library to a pod: %w", err)
		}
	}
	return nil
}

func writeIfOther(path, content string) error {
	if have, err := os.ReadFile(path); err == nil && string(have) == content {
		return nil
	}
	return volume.WriteFileDurable(path, []byte(content), 0o644)
}

// configurePod writes what the library has to know in each container of a pod.
func (n *Node) configurePod(ctx context.Context, dir string, pod volume.Pod) error {
	if n.config.Pods == nil {
		return nil
	}
	files, err := n.config.Pods.Configurations(ctx, pod)
	if err != nil {
		return err
	}
	defer n.library.changePods()()
	containers := filepath.Join(dir, contract.ConfigSubPath)
	if err := makeReadable(containers); err != nil {
		return err
	}
	for name, content := range files {
		if err := writeIfOther(filepath.Join(containers, name), content); err != nil {
			return fmt.Errorf("configure container %s of pod %s/%s: %w", name, pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// configurePods does the same for pods whose directory a driver made that knew nothing of it, and that wait for it to
// start.
func (n *Node) configurePods(ctx context.Context, records []*volume.Record) {
	for _, rec := range records {
		for _, p := range rec.Published {
			if p.Pod.UID == "" || n.config.Pods == nil {
				continue
			}
			dir := n.library.podDir(p.Pod.UID)
			if _, err := os.Stat(dir); err != nil {
				continue // it has none
			}
			if _, err := os.Stat(filepath.Join(dir, contract.ConfigSubPath)); !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			call, cancel := context.WithTimeout(ctx, statusTimeout)
			if err := n.configurePod(call, dir, p.Pod); err != nil {
				klog.FromContext(ctx).Error(err, "A pod is not configured for programs without an environment",
					"pod", klog.KRef(p.Pod.Namespace, p.Pod.Name))
			}
			cancel()
		}
	}
}
