// SPDX-License-Identifier: Apache-2.0

// Package attach looks, after pods have started, which of their processes have loaded the library and which have not,
// and says why. Admission can only prepare a container: whether the dynamic linker of its program takes the library is
// seen in the process.
package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// Volume is a file system that pods of this node have mounted.
type Volume struct {
	ID   string
	Mode contract.Mode
	// Device is the file system's number, as stat and mountinfo show it.
	Device uint64
	Pods   []volume.Pod
}

// Source knows the volumes that are published.
type Source interface {
	Published() ([]Volume, error)
}

// Config of a Verifier.
type Config struct {
	Source Source
	Events events.Recorder
	// Proc is a procfs that shows all processes of the node.
	Proc string
	// Library is where containers see the library.
	Library string
	// Owner says which pod and container a process belongs to, "" when none; nil: what its cgroup says.
	Owner func(pid int) (pod, container string)
	// Images is asked what the images of containers preload; nil: nobody is.
	Images Images
}

// Finding is one process that has one of our volumes mounted.
type Finding struct {
	Volume    Volume
	Pod       volume.Pod
	Container string
	PID       int
	Command   string
	State     State
	// Open: it has files of the volume open now.
	Open bool
}

// group is what the metric counts by.
type group struct {
	namespace, pod, container string
	state                     State
}

// Verifier looks at processes.
type Verifier struct {
	config Config
	// seen are the processes of the last scan; reported is, by UID, what was reported to the pods that are still there.
	seen     map[identity]bool
	reported map[string]map[message]bool
	// compared are the containers, by ID, whose image was looked at.
	compared map[string]bool

	mu     sync.Mutex
	counts map[group]int
}

// message is what a pod is told once.
type message struct {
	container, volume string
	state             State
	open              bool
}

// identity tells a process from a later one with the same number.
type identity struct {
	pid   int
	start uint64
}

// New returns a Verifier.
func New(config Config) *Verifier {
	return &Verifier{
		config: config, seen: map[identity]bool{}, reported: map[string]map[message]bool{}, compared: map[string]bool{},
		counts: map[group]int{},
	}
}

// Run scans until ctx is done.
func (v *Verifier) Run(ctx context.Context, interval time.Duration) {
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
		_, err := v.Scan(ctx)
		if err != nil && !failed {
			klog.FromContext(ctx).Error(err, "Cannot look at all processes")
		}
		failed = err != nil
	}
}

// Scan looks at all processes once. Only a process that an earlier scan saw is reported: one that is just starting has
// not loaded anything, and one that is gone in a moment is not worth an event.
func (v *Verifier) Scan(ctx context.Context) ([]Finding, error) {
	volumes, err := v.config.Source.Published()
	if err != nil {
		err = fmt.Errorf("list the published volumes: %w", err)
	}
	findings, seen := []Finding(nil), map[identity]bool{}
	containers := map[string]bool{}
	var imageErr error
	pods := byPod(volumes)
	maps.DeleteFunc(v.reported, func(uid string, _ map[message]bool) bool { _, there := pods[uid]; return !there })
	if len(pods) > 0 {
		mounts := mountCache{}
		listErr := v.each(pods, func(p *process, pod podVolumes, container string) {
			seen[p.identity], containers[container] = true, true
			if !v.seen[p.identity] {
				return
			}
			found := p.look(pod, container, mounts, v.config.Library)
			findings = append(findings, found...)
			// a runtime that does not answer is asked once a scan
			if len(found) > 0 && found[0].State == Loaded && imageErr == nil {
				imageErr = v.comparePreload(ctx, pod.pod, container, found[0].Container, p)
			}
		})
		if listErr != nil {
			return nil, listErr
		}
	}
	v.seen = seen
	maps.DeleteFunc(v.compared, func(id string, _ bool) bool { return !containers[id] })
	v.report(ctx, findings)
	return findings, errors.Join(err, imageErr)
}

// Look looks at all processes once, also at those that are just starting, and reports nothing to anybody. It may be
// called while a scan runs. With an error it returns what could be seen.
func (v *Verifier) Look() ([]Finding, error) {
	volumes, err := v.config.Source.Published()
	if err != nil {
		err = fmt.Errorf("list the published volumes: %w", err)
	}
	var findings []Finding
	mounts := mountCache{}
	pods := byPod(volumes)
	if len(pods) == 0 {
		return nil, err
	}
	listErr := v.each(pods, func(p *process, pod podVolumes, container string) {
		findings = append(findings, p.look(pod, container, mounts, v.config.Library)...)
	})
	return findings, errors.Join(err, listErr)
}

// each calls visit for the processes of these pods.
func (v *Verifier) each(pods map[string]podVolumes, visit func(p *process, pod podVolumes, container string)) error {
	processes, err := v.processes()
	if err != nil {
		return err
	}
	for i := range processes {
		uid, container := v.owner(&processes[i])
		if pod, ours := pods[uid]; ours {
			visit(&processes[i], pod, container)
		}
	}
	return nil
}

func (v *Verifier) owner(p *process) (pod, container string) {
	if v.config.Owner != nil {
		return v.config.Owner(p.pid)
	}
	return p.owner()
}

// podVolumes are the volumes of one pod.
type podVolumes struct {
	pod     volume.Pod
	volumes []Volume
}

func byPod(volumes []Volume) map[string]podVolumes {
	pods := map[string]podVolumes{}
	for _, vol := range volumes {
		for _, pod := range vol.Pods {
			if pod.UID == "" {
				continue
			}
			entry := pods[pod.UID]
			entry.pod, entry.volumes = pod, append(entry.volumes, vol)
			pods[pod.UID] = entry
		}
	}
	return pods
}

// report counts, and tells each pod once for each container and cause.
func (v *Verifier) report(ctx context.Context, findings []Finding) {
	counts := map[group]int{}
	counted := map[int]bool{} // a process with several volumes counts once
	for i := range findings {
		f := &findings[i]
		if !counted[f.PID] {
			counted[f.PID] = true
			counts[group{f.Pod.Namespace, f.Pod.Name, f.Container, f.State}]++
		}
		if f.State == Loaded {
			continue
		}
		said := message{f.Container, f.Volume.ID, f.State, f.Open}
		if v.reported[f.Pod.UID] == nil {
			v.reported[f.Pod.UID] = map[message]bool{}
		}
		if !v.reported[f.Pod.UID][said] {
			v.reported[f.Pod.UID][said] = true
			klog.FromContext(ctx).V(2).Info("A process runs without the library", "pod", klog.KRef(f.Pod.Namespace, f.Pod.Name),
				"container", f.Container,
				"process", f.PID, "command", f.Command, "cause", f.State, "volume-id", f.Volume.ID, "open-files", f.Open)
			v.config.Events.OnPod(ctx, f.Pod, f.Open, events.ReasonLibraryNotLoaded, f.message())
		}
	}
	v.mu.Lock()
	v.counts = counts
	v.mu.Unlock()
}

// snapshot returns what the last scan counted.
func (v *Verifier) snapshot() map[group]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.counts)
}

func (f *Finding) message() string {
	uses := "has no file of it open now"
	if f.Open {
		uses = "has files of it open"
	}
	text := fmt.Sprintf("process %s (PID %d on the node) of container %s has volume %s mounted, %s, and runs without "+
		"libsplit.so: %s. It works through the kernel's file system",
		f.Command, f.PID, f.Container, f.Volume.ID, uses, f.State.Explain())
	if f.Volume.Mode != contract.Posix && f.Volume.Mode != "" {
		text += fmt.Sprintf(", so its writes do not have the guarantee of mode %s", f.Volume.Mode)
	}
	return text
}

// PodProcess is a process of a pod, whether or not it has volumes of ours.
type PodProcess struct {
	procfs.Proc
	Command   string
	Container string
	// Dir is its directory in procfs.
	Dir string
	// State is Loaded, or why its program can't load the library; "": nothing is against it.
	State State
}

// OfPod returns the processes of one pod.
func (v *Verifier) OfPod(uid string) ([]PodProcess, error) {
	all, err := v.processes()
	if err != nil {
		return nil, err
	}
	var list []PodProcess
	for i := range all {
		p := &all[i]
		pod, container := v.owner(p)
		if pod != uid {
			continue
		}
		found := PodProcess{Proc: p.proc, Command: p.command, Container: container, Dir: p.dir}
		if maps, err := os.ReadFile(filepath.Join(p.dir, "maps")); err == nil && mapsLibrary(maps, v.config.Library) {
			found.State = Loaded
		} else if cause, err := p.programCause(); err == nil {
			found.State = cause
		}
		list = append(list, found)
	}
	return list, nil
}
