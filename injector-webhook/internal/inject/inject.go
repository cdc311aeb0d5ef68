// SPDX-License-Identifier: Apache-2.0

// Package inject decides what a pod needs so that its containers reach our volumes through the library, and expresses
// it as a JSON patch. It reads a pod's Go type and writes intents over the pod's raw text; on an error the patch is
// thrown away whole.
package inject

import (
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	"splitfs.io/splitfs/injector-webhook/internal/patch"
	"splitfs.io/splitfs/internal/contract"
)

// Result is the outcome for one pod.
type Result struct {
	Operations []jsonpatch.Operation
	Status     Status
	Warnings   []string
}

// Pod computes the patch for a pod. volumes maps the names of the pod's volumes that are ours to their own modes.
// Running it on its own result changes nothing.
func Pod(raw []byte, pod *corev1.Pod, wishes *Wishes, volumes map[string]contract.Mode,
	delivery Delivery) (*Result, error) {
	doc, err := patch.Parse(raw)
	if err != nil {
		return nil, err
	}
	m := &mutation{doc: doc, pod: pod, wishes: wishes, volumes: volumes,
		status: Status{Containers: map[string]map[string]contract.Mode{}, Fsync: map[string]contract.Fsync{},
			Protect: map[string]contract.Protect{}}}
	m.libraryVolume, m.libraryIndex = findLibraryVolume(pod)
	for _, list := range []struct {
		member     string
		containers []corev1.Container
	}{{"initContainers", pod.Spec.InitContainers}, {"containers", pod.Spec.Containers}} {
		for i := range list.containers {
			if err := m.container([]any{"spec", list.member, i}, &list.containers[i]); err != nil {
				return nil, err
			}
		}
	}
	m.warnings = append(m.warnings, wishes.mode.withoutEffect(m.status.Containers)...)
	m.warnings = append(m.warnings, wishes.fsync.withoutEffect(m.status.Containers)...)
	m.warnings = append(m.warnings, wishes.protect.withoutEffect(m.status.Containers)...)
	m.status.Injected = len(m.status.Containers) > 0
	if m.status.Injected {
		if err := m.volume(delivery); err != nil {
			return nil, err
		}
		if err := setStatus(doc, &m.status); err != nil {
			return nil, err
		}
	}
	return &Result{Operations: doc.Operations(), Status: m.status, Warnings: m.warnings}, nil
}

// NotInjected records in the pod why it was left alone.
func NotInjected(raw []byte, reason string) (*Result, error) {
	doc, err := patch.Parse(raw)
	if err != nil {
		return nil, err
	}
	status := Status{Reason: reason}
	if err := setStatus(doc, &status); err != nil {
		return nil, err
	}
	return &Result{Operations: doc.Operations(), Status: status}, nil
}

func setStatus(doc *patch.Document, status *Status) error {
	text, err := status.text()
	if err != nil {
		return err
	}
	if err := doc.EnsureObject("metadata"); err != nil {
		return err
	}
	if err := doc.EnsureObject("metadata", "annotations"); err != nil {
		return err
	}
	return doc.Set(text, "metadata", "annotations", contract.AnnotationStatus)
}

type mutation struct {
	doc     *patch.Document
	pod     *corev1.Pod
	wishes  *Wishes
	volumes map[string]contract.Mode

	// libraryVolume is the name of the library's volume, libraryIndex its place in the pod or -1 when it has to be added.
	libraryVolume string
	libraryIndex  int

	status   Status
	warnings []string
}

// container gives one container what it needs, if it mounts one of our volumes.
func (m *mutation) container(at []any, c *corev1.Container) error {
	var served []contract.Served
	for i := range c.VolumeMounts {
		mount := &c.VolumeMounts[i]
		volumeMode, ours := m.volumes[mount.Name]
		if !ours {
			continue
		}
		mountPath, err := checkMountPath(c.Name, mount.Name, mount.MountPath)
		if err != nil {
			return err
		}
		served = append(served, contract.Served{
			Mode: m.wishes.mode.of(c.Name, volumeMode), Path: mountPath, Agents: contract.AgentsDir,
		})
	}
	if len(served) == 0 {
		return nil
	}
	if err := m.mounts(at, c); err != nil {
		return err
	}
	env := &envEditor{doc: m.doc, path: append(at[:len(at):len(at)], "env"), vars: c.Env}
	if err := env.mergePreload(c.EnvFrom); err != nil {
		return fmt.Errorf("container %s: %w", contract.Name(c.Name), err)
	}
	replaced, err := env.set(contract.EnvConfig, contract.Config(served))
	if err != nil {
		return fmt.Errorf("container %s: %w", contract.Name(c.Name), err)
	}
	if replaced {
		m.warnings = append(m.warnings,
			fmt.Sprintf(
				"container %s: %s is set by the injector, the value it had was replaced; use annotation %s to choose a mode",
				contract.Name(c.Name), contract.EnvConfig, contract.AnnotationMode))
	}
	fsync, err := setWish(env, contract.EnvFsync, m.wishes.fsync.of(c.Name, ""), contract.Record)
	if err != nil {
		return fmt.Errorf("container %s: %w", contract.Name(c.Name), err)
	}
	if fsync != contract.Record {
		m.status.Fsync[c.Name] = fsync
	}
	protect, err := setWish(env, contract.EnvProtect, m.wishes.protect.of(c.Name, ""), contract.ProtectOff)
	if err != nil {
		return fmt.Errorf("container %s: %w", contract.Name(c.Name), err)
	}
	if protect != contract.ProtectOff {
		m.status.Protect[c.Name] = protect
	}
	modesByPath := make(map[string]contract.Mode, len(served))
	for _, e := range served {
		modesByPath[e.Path] = e.Mode
	}
	m.status.Containers[c.Name] = modesByPath
	return nil
}
