// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/promise"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// broken refuses everything and remembers what it was asked.
type broken struct{ asked []promise.Use }

func (b *broken) Check(_ context.Context, use promise.Use) (contract.Unserved, error) {
	b.asked = append(b.asked, use)
	return "", fmt.Errorf("%w: no library", volume.ErrPrecondition)
}

// TestPublishKeepsPromises: a writer is looked at before it gets the volume, and not again once it has it; readers
// never are.
func TestPublishKeepsPromises(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	f.stageAt(rec)
	target := filepath.Join(f.dir, "pv-one", "mount")
	writer := PublishRequest{
		ID: rec.ID, StagingPath: f.staging("one"), Target: target,
		Pod: volume.Pod{Namespace: "default", Name: "pod", UID: "1"},
	}
	restart := func(promises Promises) {
		f.Shutdown()
		f.configs.Promises = promises
		f.start()
		f.must(f.agents.WaitReady(f.ctx, rec.ID))
	}
	refuser := &broken{}
	restart(refuser)
	if err := f.Publish(f.ctx, writer); err == nil {
		t.Fatal("published without the library")
	}
	if len(refuser.asked) != 1 ||
		refuser.asked[0] != (promise.Use{VolumeID: rec.ID, Mode: contract.Strict, PV: "pv-one", Pod: writer.Pod}) {
		t.Errorf("asked %+v", refuser.asked)
	}
	if mounted, err := mounts.At(target); err != nil || mounted != nil {
		t.Errorf("mounted: %+v, %v", mounted, err)
	}
	f.publish(rec, f.target("reader"), true)

	restart(nil)
	f.must(f.Publish(f.ctx, writer))
	restart(refuser)
	f.must(f.Publish(f.ctx, writer))
	if len(refuser.asked) != 1 {
		t.Errorf("a reader, or a pod that has the volume, was looked at: %+v", refuser.asked[1:])
	}

	// Recorded and not mounted: the node was rebooted, so the pod starts anew.
	f.must(f.mounter.Cleanup(target))
	if err := f.Publish(f.ctx, writer); err == nil {
		t.Error("published without the library after the mount had gone")
	}
	f.remove(rec, target, f.target("reader"))
}

// policy gives each pod the policy of its name, and each container a configuration.
type policy map[string]contract.Unserved

func (p policy) Check(_ context.Context, use promise.Use) (contract.Unserved, error) {
	return p[use.Pod.Name], nil
}

func (p policy) Configurations(_ context.Context, pod volume.Pod) (map[string]string, error) {
	return map[string]string{"app": "SPLITFS_CONFIG=of " + pod.Name + "\n"}, nil
}

// TestPublishTellsPolicies: the agent is told what becomes of a pod's programs before the pod has the volume, until it
// has it no more.
func TestPublishTellsPolicies(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	f.stageAt(rec)
	f.Shutdown()
	f.configs.Promises = policy{"a": contract.Refuse, "b": contract.Durable, "c": contract.Allow}
	f.start()
	f.must(f.agents.WaitReady(f.ctx, rec.ID))
	file := f.policiesFile(rec)
	request := func(pod string) PublishRequest {
		return PublishRequest{
			ID: rec.ID, StagingPath: f.staging("one"), Target: filepath.Join(f.dir, "pv-"+pod, "mount"),
			Pod: volume.Pod{Namespace: "default", Name: pod, UID: "uid-" + pod},
		}
	}
	for _, step := range []struct {
		publish, unpublish, want string
	}{
		{publish: "c"},
		{publish: "a", want: "uid-a refuse\n"},
		{publish: "a", want: "uid-a refuse\n"},
		{publish: "b", want: "uid-a refuse\nuid-b durable\n"},
		{unpublish: "a", want: "uid-b durable\n"},
		{unpublish: "b"},
		{unpublish: "c"},
	} {
		if step.publish != "" {
			f.must(f.Publish(f.ctx, request(step.publish)))
		} else {
			f.must(f.Unpublish(f.ctx, rec.ID, request(step.unpublish).Target))
		}
		if got, err := os.ReadFile(file); string(got) != step.want || (err == nil) != (step.want != "") {
			t.Errorf("%+v: %q, %v", step, got, err)
		}
	}
	f.remove(rec)
}

// TestLibraryHasConfigurations: a container finds its configuration, and the dynamic linker's file.
func TestLibraryHasConfigurations(t *testing.T) {
	f := newFixture(t, "")
	f.Shutdown()
	f.configs.Pods = policy{}
	f.start()
	target := f.target("library")
	f.must(f.PublishLibrary(f.ctx, target, true, volume.Pod{Namespace: "default", Name: "web", UID: "uid-web"}))
	for name, want := range map[string]string{
		"containers/app": "SPLITFS_CONFIG=of web\n", "ld.so.preload": "/opt/splitfs/libsplit.so\n", "config": "",
	} {
		if got, err := os.ReadFile(filepath.Join(target, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	f.must(f.Unpublish(f.ctx, "", target))
}
