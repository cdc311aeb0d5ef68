// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/module"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/splitfstest"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// watch starts Watch, as the service does, and ends it with the test.
func (f *fixture) watch(locks *volume.Locks) {
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan struct{})
	go func() { f.Watch(ctx, locks, 20*time.Millisecond); close(done) }()
	f.t.Cleanup(func() { cancel(); <-done })
}

// TestLibraryVanishes: a library that goes or changes after pods were given it comes back, and the node's readers are
// told.
func TestLibraryVanishes(t *testing.T) {
	f := newFixture(t, "")
	target := f.target("library")
	f.must(f.PublishLibrary(f.ctx, target, true, volume.Pod{UID: "1"}))
	f.watch(&volume.Locks{})
	seen := filepath.Join(target, "libsplit.so")
	back := func() bool {
		content, err := os.ReadFile(seen)
		return err == nil && string(content) == "library, version 1"
	}
	restored := func(n int) func() bool {
		return func() bool { return back() && f.events.count("node/node-1 LibraryRestored") == n }
	}
	f.must(os.Remove(f.library.path()))
	eventually(t, "a removed library is back in the pod, and told", restored(1))
	f.must(os.WriteFile(f.library.path(), []byte("library, version 1, damaged"), 0o755))
	eventually(t, "a damaged library is back in the pod, and told", restored(2))
	if info, err := os.Stat(seen); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the library's mode is %v, %v", info.Mode(), err)
	}

	f.must(os.Rename(f.library.source, f.library.source+".away"))
	eventually(t, "a library that cannot be put back is told", func() bool {
		return f.events.has("node/node-1 LibraryMissing")
	})
	time.Sleep(200 * time.Millisecond)
	if n := f.events.count("node/node-1 LibraryMissing"); n != 1 {
		t.Errorf("told %d times", n)
	}
	f.must(os.Rename(f.library.source+".away", f.library.source))
	f.must(os.Remove(f.library.path()))
	eventually(t, "it is back", restored(3))
	f.must(f.Unpublish(f.ctx, "csi-0123", target))
}

// TestQuarantineWhileInUse: what a running agent sets aside is told once on claim and pod, and stays the volume's
// health until it is staged again; a volume whose lock is held waits.
func TestQuarantineWhileInUse(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	staging := f.stageAt(rec)
	f.publish(rec, f.target("one"), false)
	locks := &volume.Locks{}
	release, err := locks.TryLock(rec.ID, "a test")
	f.must(err)
	f.watch(locks)
	f.must(splitfstest.Quarantine(staging, 2))
	time.Sleep(200 * time.Millisecond)
	if f.events.has("pvc/default/one RecoveryQuarantined") {
		t.Error("a volume was looked at while its lock was held")
	}
	release()
	const onClaim, onPod = "pvc/default/one RecoveryQuarantined", "pod/default/pod RecoveryQuarantined"
	eventually(t, "two entries are told on claim and pod", func() bool {
		return f.events.has(onClaim) && f.events.has(onPod)
	})
	f.must(splitfstest.Quarantine(staging, 5))
	eventually(t, "three more are told", func() bool { return f.events.count(onClaim) == 2 })
	time.Sleep(200 * time.Millisecond)
	if n := f.events.count(onClaim); n != 2 {
		t.Errorf("told %d times", n)
	}
	problems, err := f.Health(rec.ID)
	f.must(err)
	if len(problems) != 1 || problems[0].Severity != DataLoss || !strings.Contains(problems[0].Message, "set aside 5 ") {
		t.Errorf("health: %+v", problems)
	}
	f.must(splitfstest.Quarantine(staging, 0))
	release, err = locks.TryLock(rec.ID, "a test")
	f.must(err)
	f.must(f.Unpublish(f.ctx, rec.ID, f.target("one")))
	f.must(f.Unstage(f.ctx, rec.ID, staging))
	f.stageAt(rec)
	release()
	if problems, err = f.Health(rec.ID); err != nil || len(problems) != 0 {
		t.Errorf("health after staging again: %+v, %v", problems, err)
	}
	release, err = locks.TryLock(rec.ID, "a test")
	f.must(err)
	defer release()
	f.remove(rec)
}

// fakeModule says what it is told to say of the kernel module.
type fakeModule struct {
	state module.State
	as    string
}

func (m fakeModule) MountType(fsType string) string {
	if fsType == volume.Ext4 && m.as != "" {
		return m.as
	}
	return fsType
}
func (m fakeModule) Status() module.Status { return module.Status{State: m.state, Message: "because"} }

// TestModuleThatDoesNotMount: a module that claims to be ready and cannot mount a volume, or mounts it without relink,
// does not keep the volume from being served; the claim says so.
func TestModuleThatDoesNotMount(t *testing.T) {
	for name, as := range map[string]string{
		"a type the kernel does not have":  "ext4_gone",
		"a file system that has no relink": "ext3", // which is the kernel's ext4 by another name, where there is one
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "")
			f.config.Module = fakeModule{module.Ready, as}
			rec, other := f.create("one", volume.Ext4, volume.MiB), f.create("other", volume.XFS, volume.MiB)
			staging := f.stageAt(rec)
			f.stageAt(other)
			mounted, err := mounts.At(staging)
			f.must(err)
			if mounted == nil || mounted.FsType != volume.Ext4 {
				t.Fatalf("mounted: %+v", mounted)
			}
			if !f.events.has("pvc/default/one "+events.ReasonStockExt4) ||
				f.events.has("pvc/default/other "+events.ReasonStockExt4) {
				t.Errorf("events: %v", f.events.list)
			}
			for _, c := range []struct {
				state module.State
				says  string
			}{{module.Ready, "staged before"}, {module.LoadRefused, "LoadRefused: because"}, {module.NotConfigured, ""}} {
				f.config.Module = fakeModule{c.state, ""}
				problems, err := f.Health(rec.ID)
				f.must(err)
				if c.says == "" && len(problems) == 0 {
					continue
				}
				if len(problems) != 1 || problems[0].Severity != Degraded || !strings.Contains(problems[0].Message, c.says) ||
					c.says == "" {
					t.Errorf("health with a module that is %s: %+v", c.state, problems)
				}
			}
			if problems, err := f.Health(other.ID); err != nil || len(problems) != 0 {
				t.Errorf("health of an XFS volume: %+v, %v", problems, err)
			}
			f.remove(rec)
			f.remove(other)
		})
	}
}
