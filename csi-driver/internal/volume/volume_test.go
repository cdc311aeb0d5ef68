// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/renameio/v2"

	"splitfs.io/splitfs/internal/contract"
)

func TestParseParams(t *testing.T) {
	for _, c := range []struct {
		name    string
		in      map[string]string
		want    Params
		message string // of the error, when one is expected
	}{
		{name: "defaults", want: Params{Mode: contract.Posix, Device: DeviceEmulated, Erase: EraseNone}},
		{
			name: "all",
			in: map[string]string{
				"mode": "strict", "device": "lvm", "deviceClass": "fast", "erase": "overwrite", "pool": "1Gi",
				"csi.storage.k8s.io/fstype":   "ext4",
				"csi.storage.k8s.io/pv/name":  "pv",
				"csi.storage.k8s.io/pvc/name": "claim", "csi.storage.k8s.io/pvc/namespace": "ns",
			},
			want: Params{Mode: contract.Strict, Device: DeviceLVM, Class: "fast", Erase: EraseOverwrite, Pool: GiB, FSType: Ext4,
				PV: "pv", PVC: PVC{Namespace: "ns", Name: "claim"}},
		},
		{name: "unknown", in: map[string]string{"moed": "strict", "zz": ""},
			message: `unknown StorageClass parameter "moed"; allowed: mode, device, deviceClass, erase, durability, pool, ` +
				`unserved, csi.storage.k8s.io/fstype`},
		{name: "case matters", in: map[string]string{"Mode": "strict"}, message: `unknown StorageClass parameter "Mode"`},
		{name: "mode", in: map[string]string{"mode": "fast"}, message: `mode is "fast"; allowed: posix, sync, strict`},
		{name: "empty mode", in: map[string]string{"mode": ""}, message: `mode is ""`},
		{name: "device", in: map[string]string{"device": "nvdimm"},
			message: `device is "nvdimm"; allowed: emulated, lvm, namespace`},
		{name: "empty class", in: map[string]string{"deviceClass": ""}, message: `deviceClass is empty`},
		{name: "erase", in: map[string]string{"erase": "yes"}, message: `erase is "yes"; allowed: none, discard, overwrite`},
		{name: "empty erase", in: map[string]string{"erase": ""}, message: `erase is ""`},
		{name: "pool", in: map[string]string{"pool": "large"}, message: `pool is "large", which is no quantity`},
		{name: "pool that is no MiB", in: map[string]string{"pool": "33554433"},
			want: Params{Mode: contract.Posix, Device: DeviceEmulated, Erase: EraseNone, Pool: 33 * MiB}},
		{name: "small pool", in: map[string]string{"pool": "16Mi"}, message: `pool is "16Mi"; allowed: 32Mi to 1Ti`},
		{name: "large pool", in: map[string]string{"pool": "99Ei"}, message: `pool is "99Ei"; allowed: 32Mi to 1Ti`},
		{name: "negative pool", in: map[string]string{"pool": "-1Gi"}, message: `allowed: 32Mi to 1Ti`},
		{name: "empty pool", in: map[string]string{"pool": ""}, message: `pool is ""`},
		{name: "file system", in: map[string]string{"csi.storage.k8s.io/fstype": "btrfs"},
			message: `is "btrfs"; allowed: xfs, ext4`},
	} {
		got, err := ParseParams(c.in)
		switch {
		case c.message == "" && (err != nil || got != c.want):
			t.Errorf("%s: %+v, %v; wanted %+v", c.name, got, err, c.want)
		case c.message != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.message)):
			t.Errorf("%s: error %v; wanted %q", c.name, err, c.message)
		}
	}
}

// TestAttributesRoundTrip: what CreateVolume returns is what the later calls understand, with what Kubernetes adds on
// the way.
func TestAttributesRoundTrip(t *testing.T) {
	p := Params{Mode: contract.Sync, Device: DeviceEmulated}
	in := p.Attributes()
	maps.Copy(in, map[string]string{
		"storage.kubernetes.io/csiProvisionerIdentity": "1-2-csi.splitfs.io", "csi.storage.k8s.io/ephemeral": "false",
		"csi.storage.k8s.io/pod.name": "pod", "csi.storage.k8s.io/pod.namespace": "ns", "csi.storage.k8s.io/pod.uid": "uid",
		"csi.storage.k8s.io/serviceAccount.name": "default",
	})
	got, err := ParseAttributes(in)
	want := Attributes{Mode: contract.Sync, Device: DeviceEmulated, Pod: Pod{Namespace: "ns", Name: "pod", UID: "uid"}}
	if err != nil || got != want {
		t.Errorf("%+v, %v; wanted %+v", got, err, want)
	}
	in["surprise"] = "1"
	if _, err := ParseAttributes(in); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `"surprise"`) {
		t.Errorf("an unknown attribute: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("mode", "strict", "csi.storage.k8s.io/ephemeral", "true")
	f.Add("splitfs.io/kind", "library", "csi.storage.k8s.io/ephemeral", "true")
	f.Add("splitfs.io/kind", "library", "csi.storage.k8s.io/ephemeral", "false")
	f.Add("splitfs.io/kind", "library", "mode", "strict")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		in := map[string]string{k1: v1, k2: v2}
		if p, err := ParseParams(in); err == nil {
			if _, err := ParseAttributes(p.Attributes()); err != nil {
				t.Errorf("%v makes attributes that are refused: %v", in, err)
			}
		} else if !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", in, err)
		}
		if _, err := ParseAttributes(in); err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", in, err)
		}
	})
}

func TestSize(t *testing.T) {
	for _, c := range []struct {
		required, limit, want int64
		err                   error
	}{
		{0, 0, DefaultSize, nil},
		{0, 10 * MiB, 10 * MiB, nil},
		{1, 0, MiB, nil},
		{MiB, MiB, MiB, nil},
		{MiB + 1, 0, 2 * MiB, nil},
		{MiB + 1, MiB + 2, 0, ErrOutOfRange},
		{0, 1000, 0, ErrOutOfRange},
		{2 * MiB, MiB, 0, ErrInvalid},
		{-1, 0, 0, ErrInvalid},
		{1 << 62, 0, 0, ErrOutOfRange},
	} {
		got, err := Size(c.required, c.limit)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("Size(%d, %d) = %d, %v; wanted %d, %v", c.required, c.limit, got, err, c.want, c.err)
		}
	}
}

func TestID(t *testing.T) {
	one := IDFromName("pvc-1")
	if one != IDFromName("pvc-1") || one == IDFromName("pvc-2") || !ValidID(one) {
		t.Errorf("ID %s is not a function of the name, or not valid", one)
	}
	if library := LibraryID("pvc-1"); library != LibraryID("pvc-1") || library == LibraryID("pvc-2") {
		t.Errorf("ID %s is not a function of the name", library)
	}
	for _, id := range []string{
		"", "splitfs-", LibraryID("pvc-1"), one + "0", "../" + one, one[:len(one)-1] + "G", "csi-0123",
	} {
		if ValidID(id) {
			t.Errorf("%q is taken for an ID", id)
		}
	}
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStore(filepath.Join(dir, "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	rec := &Record{
		ID: IDFromName("a"), Name: "a", Phase: PhaseReady, Size: 5, Staged: &Staging{Path: "/s"},
		Published: map[string]Publish{"/t": {ReadOnly: true}},
	}
	for range 2 {
		if err := s.Put(rec); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Get(rec.ID)
	if err != nil || got.Staged.Path != "/s" || !got.Published["/t"].ReadOnly || got.Size != 5 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, id := range []string{IDFromName("b"), "../../etc/passwd", ""} {
		if _, err := s.Get(id); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get(%q): %v", id, err)
		}
	}

	// An older driver must not delete a volume that is to be erased; all others it may serve.
	for how, version := range map[Erase]int{EraseOverwrite: 2, "": 1} {
		rec.Erase = how
		if err := s.Put(rec); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(rec.ID); err != nil || got.Version != version || got.Erase != how {
			t.Errorf("erase %q: %+v, %v", how, got, err)
		}
	}

	// Neither a damaged record nor one of a future version hides the others, or is taken for "not there".
	damaged, future := IDFromName("damaged"), IDFromName("future")
	write := func(id, content string) {
		if err := os.WriteFile(filepath.Join(dir, "volumes", id+".json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(damaged, `{"version":1,"id":"`)
	write(future, `{"version":99,"id":"`+future+`"}`)
	for id, message := range map[string]string{damaged: "is damaged", future: "or a newer one, runs again"} {
		if _, err := s.Get(id); err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), message) {
			t.Errorf("Get(%s): %v", id, err)
		}
	}
	write("."+rec.ID, "the beginning of")
	if err := os.Rename(filepath.Join(dir, "volumes", "."+rec.ID+".json"),
		filepath.Join(dir, "volumes", "."+rec.ID+".json.17.tmp")); err != nil {
		t.Fatal(err)
	}
	begun, err := renameio.NewPendingFile(s.path(rec.ID), renameio.WithTempDir(filepath.Join(dir, "volumes")))
	if err != nil {
		t.Fatal(err)
	}
	defer begun.Close()
	if s, err = OpenStore(filepath.Join(dir, "volumes")); err != nil { // removes what a killed process had begun to write
		t.Fatal(err)
	}
	if list, err := s.List(); err == nil || len(list) != 1 {
		t.Errorf("listed %d records, %v", len(list), err)
	}
	for range 2 {
		if err := s.Remove(rec.ID); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "volumes"))
	if err != nil || len(entries) != 3 { // the damaged one, that of a newer driver, the reserve
		t.Errorf("files left: %v, %v", entries, err)
	}
}

func TestLocks(t *testing.T) {
	var l Locks
	release, err := l.TryLock("a", "stage")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryLock("a", "delete"); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "stage") {
		t.Errorf("a second lock: %v", err)
	}
	if other, err := l.TryLock("b", "stage"); err != nil {
		t.Errorf("another volume's lock: %v", err)
	} else {
		other()
	}
	release()
	if release, err := l.TryLock("a", "delete"); err != nil {
		t.Errorf("after release: %v", err)
	} else {
		release()
	}
}

// TestLocksYielding: a call gets the lock from who only looks, when that has let go of it; two that only look do not
// push each other away.
func TestLocksYielding(t *testing.T) {
	var l Locks
	looking, release, err := l.TryLockYielding(t.Context(), "a", "look")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.TryLockYielding(t.Context(), "a", "look again"); !errors.Is(err, ErrBusy) || looking.Err() != nil {
		t.Errorf("a second look: %v, the first: %v", err, looking.Err())
	}
	var letGo atomic.Bool
	go func() {
		<-looking.Done()
		time.Sleep(10 * time.Millisecond)
		letGo.Store(true)
		release()
	}()
	stage, err := l.TryLock("a", "stage")
	if err != nil || !letGo.Load() {
		t.Fatalf("a call beside a look: %v; the look has let go: %v", err, letGo.Load())
	}
	if _, _, err := l.TryLockYielding(t.Context(), "a", "look"); !errors.Is(err, ErrBusy) {
		t.Errorf("a look beside a call: %v", err)
	}
	stage()

	// One that cannot end.
	_, release, err = l.TryLockYielding(t.Context(), "a", "look")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := l.TryLock("a", "stage"); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "look") {
		t.Errorf("a call beside a look that does not end: %v", err)
	}
}

// TestParseChanges: what a VolumeAttributesClass may say goes before the StorageClass, and everything else is refused
// by name.
func TestParseChanges(t *testing.T) {
	class := Params{Mode: contract.Posix, Device: DeviceLVM, Erase: EraseOverwrite}
	for _, c := range []struct {
		in      map[string]string
		want    Params
		message string
	}{
		{in: nil, want: class},
		{in: map[string]string{"mode": "strict"},
			want: Params{Mode: contract.Strict, Device: DeviceLVM, Erase: EraseOverwrite}},
		{in: map[string]string{"mode": "sync", "erase": "none"},
			want: Params{Mode: contract.Sync, Device: DeviceLVM, Erase: EraseNone}},
		{in: map[string]string{"mode": ""}, message: `parameter mode is ""; allowed: posix, sync, strict`},
		{in: map[string]string{"erase": "true"}, message: `parameter erase is "true"; allowed: none, discard, overwrite`},
		{in: map[string]string{"erase": "none", "device": "lvm"},
			message: `unknown VolumeAttributesClass parameter "device"; allowed: mode, erase`},
	} {
		changes, err := ParseChanges(c.in)
		switch {
		case c.message == "" && (err != nil || class.With(changes) != c.want):
			t.Errorf("%v: %+v, %v", c.in, class.With(changes), err)
		case c.message != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.message)):
			t.Errorf("%v: error %v", c.in, err)
		}
	}
}

// TestRemoveUnfinished: what is not the beginning of a file stays.
func TestRemoveUnfinished(t *testing.T) {
	dir := t.TempDir()
	kept := []string{".hidden", ".v17", "v.json", "v.json17", "v.tmp"}
	for _, name := range append([]string{".v.json.17.tmp", ".v.link.tmp", ".v.json5577006791947779410"}, kept...) {
		var err error
		if name == ".v17" {
			err = os.Mkdir(filepath.Join(dir, name), 0o700)
		} else {
			err = os.WriteFile(filepath.Join(dir, name), nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveUnfinished(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	if !slices.Equal(left, kept) {
		t.Errorf("left: %v, wanted %v", left, kept)
	}
	if err := RemoveUnfinished(filepath.Join(dir, "none")); err != nil {
		t.Errorf("a directory that is not there: %v", err)
	}
}
