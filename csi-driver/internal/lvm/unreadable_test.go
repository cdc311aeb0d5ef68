// SPDX-License-Identifier: Apache-2.0

package lvm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/loop"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// memory is what ndctl lists in these tests. The namespaces are loop devices; what is on them is lvm's own, which needs
// no device mapper for anything that is done here.
type memory struct {
	t       *testing.T
	dir     string
	regions []nvdimm.Region
	images  map[string]string
}

func newMemory(t *testing.T) *memory {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: attaches loop devices")
	}
	if _, err := exec.LookPath("lvm"); err != nil {
		t.Skip("needs lvm: hack/install-deps test")
	}
	dir := t.TempDir()
	// It can list, and nothing else works.
	ndctl := "#!/bin/sh\n[ \"$1\" = list ] || { echo \"$1: no such device\" >&2; exit 1; }\nexec cat " +
		filepath.Join(dir, "list") + "\n"
	if err := os.WriteFile(filepath.Join(dir, "ndctl"), []byte(ndctl), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	m := &memory{t: t, dir: dir, images: map[string]string{}}
	m.save()
	return m
}

func (m *memory) save() {
	m.t.Helper()
	type namespace struct {
		Dev, Mode, UUID, Name, BlockDev, State string
		Size                                   int64
	}
	type region struct {
		Dev        string
		Set        uint64 `json:"iset_id"`
		Namespaces []namespace
	}
	list := []region{}
	for i, r := range m.regions {
		out := region{Dev: r.Dev}
		if r.Labeled() {
			out.Set = uint64(i + 1)
		}
		for _, n := range r.Namespaces {
			out.Namespaces = append(out.Namespaces, namespace{n.Dev, n.Mode, n.UUID, n.Name, n.BlockDev, n.State, int64(n.Size)})
		}
		list = append(list, out)
	}
	content, err := json.Marshal([]map[string]any{{"provider": "ACPI.NFIT", "regions": list}})
	must(m.t, err, os.WriteFile(filepath.Join(m.dir, "list"), content, 0o644))
}

const imageSize = 64 << 20

// add makes a region that is one namespace, with labels or without, and returns the namespace.
func (m *memory) add(labels bool) *nvdimm.Namespace {
	m.t.Helper()
	i := len(m.regions)
	image := filepath.Join(m.dir, fmt.Sprintf("image%d-%d", i, os.Getpid()))
	must(m.t, os.WriteFile(image, nil, 0o600), os.Truncate(image, imageSize))
	dev, err := loop.Attach(context.Background(), image)
	must(m.t, err)
	m.t.Cleanup(func() { must(m.t, loop.Detach(context.Background(), image)) })
	r := nvdimm.Region{Dev: fmt.Sprintf("region%d", i), Namespaces: []nvdimm.Namespace{{
		Dev: fmt.Sprintf("namespace%d.0", i), Mode: nvdimm.ModeFSDAX, Size: imageSize, BlockDev: filepath.Base(dev),
		UUID: fmt.Sprintf("%08d-cb25-46ee-a9ea-e1a692b47f3e", i),
	}}}
	if labels {
		r.ISetID, r.Namespaces[0].Name = "0x1", namespaceName
	}
	m.regions = append(m.regions, r)
	m.images[dev] = image
	m.save()
	return &m.regions[i].Namespaces[0]
}

// vg makes a volume group as the driver does, and in it the volume with that ID. Making volumes, unlike removing them,
// needs device mapper: it is put into the metadata.
func (m *memory) vg(ns *nvdimm.Namespace, id string) {
	m.t.Helper()
	ctx := context.Background()
	device, err := ns.Path()
	must(m.t, err)
	name, err := groupName(*ns)
	must(m.t, err)
	devices := []string{device}
	_, err = run(ctx, devices, "vgcreate", "--yes", "--dataalignment", bytesArg(extentSize),
		"--physicalextentsize", bytesArg(extentSize), "--addtag", ownTag, name, device)
	must(m.t, err)
	file := filepath.Join(m.dir, name)
	_, err = run(ctx, devices, "vgcfgbackup", "--file", file, name)
	must(m.t, err)
	content, err := os.ReadFile(file)
	must(m.t, err)
	lv := fmt.Sprintf(`
logical_volumes { %s {
 id = "aaaaaa-84ae-KTAN-CW9e-SrXt-2rc0-dqtG39" status = ["READ", "WRITE", "VISIBLE"] tags = ["%s"] segment_count = 1
 segment1 { start_extent = 0 extent_count = 4 type = "striped" stripe_count = 1 stripes = ["pv0", 0] }
} } }
`, id, ownTag)
	must(m.t, os.WriteFile(file, append(content[:bytes.LastIndexByte(content, '}')], lv...), 0o600))
	_, err = run(ctx, devices, "vgcfgrestore", "--force", "--file", file, name)
	must(m.t, err)
}

func (m *memory) manager(regions ...string) *Manager {
	m.t.Helper()
	selector, err := nvdimm.ParseSelector(regions)
	must(m.t, err)
	manager, err := New(Config{Regions: selector, Percent: 100}, &nvdimm.Tool{})
	must(m.t, err)
	return manager
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

const hereID, awayID = "splitfs-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "splitfs-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

// troubles are what keeps the driver from looking into a namespace. Each is undone by what it returns.
var troubles = map[string]struct {
	says string
	make func(m *memory, ns *nvdimm.Namespace) (undo func())
}{
	"errors": {"input/output error", func(m *memory, ns *nvdimm.Namespace) func() {
		image := m.images["/dev/"+ns.BlockDev]
		content, err := os.ReadFile(image)
		must(m.t, err, os.Truncate(image, 4096))
		return func() { must(m.t, os.WriteFile(image, content, 0o600)) }
	}},
	"damage": {"is damaged", func(m *memory, ns *nvdimm.Namespace) func() {
		content, err := os.ReadFile("/dev/" + ns.BlockDev)
		must(m.t, err)
		write := func(at []byte, offset int64) {
			f, err := os.OpenFile("/dev/"+ns.BlockDev, os.O_RDWR, 0)
			must(m.t, err)
			_, err = f.WriteAt(at, offset)
			must(m.t, err, f.Sync(), f.Close())
		}
		write(make([]byte, extentSize-4096), 4096)
		return func() { write(content[:extentSize], 0) }
	}},
	"no device node": {"no such file", func(m *memory, ns *nvdimm.Namespace) func() {
		before := ns.BlockDev
		ns.BlockDev = "loop-gone"
		m.save()
		return func() { ns.BlockDev = before; m.save() }
	}},
	"no driver": {"is disabled|enable namespace", func(m *memory, ns *nvdimm.Namespace) func() {
		ns.State = "disabled"
		m.save()
		return func() { ns.State = ""; m.save() }
	}},
	"no ndctl": {"list persistent memory", func(m *memory, _ *nvdimm.Namespace) func() {
		list := filepath.Join(m.dir, "list")
		must(m.t, os.Rename(list, list+".away"))
		return func() { must(m.t, os.Rename(list+".away", list)) }
	}},
}

func TestHidden(t *testing.T) {
	for name, trouble := range troubles {
		for _, labels := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, labels %t", name, labels), func(t *testing.T) {
				m := newMemory(t)
				ns := m.add(labels)
				m.vg(ns, awayID)
				m.vg(m.add(true), hereID)
				hiddenVolume(t, m.manager(nvdimm.All), m.regions[0].Dev, trouble.says, name != "no ndctl", labels, func() func() {
					return trouble.make(m, &m.regions[0].Namespaces[0])
				})
			})
		}
	}
}

// hiddenVolume: as long as a region cannot be looked at, what is said of a volume that may be there is an error; others
// are served.
func hiddenVolume(t *testing.T, m *Manager, region, says string, others, labels bool, unreadableError func() func()) {
	t.Helper()
	ctx := context.Background()
	if list, err := m.List(ctx); err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	undo := unreadableError()
	_, attach := m.Attach(ctx, awayID)
	calls := map[string]error{
		"delete": m.Delete(ctx, awayID), "attach": attach, "detach": m.Detach(ctx, awayID), "grow": m.Grow(ctx, awayID, 1),
	}
	list, err := m.List(ctx)
	calls["list"] = err
	if create := m.Create(ctx, awayID, 1<<40); labels || !others {
		calls["create"] = create
	} else if !errors.Is(create, volume.ErrExhausted) {
		t.Errorf("a region that is not known to be the driver's makes the node unusable: %v", create)
	}
	for call, err := range calls {
		said := ""
		if err != nil {
			said = strings.ToLower(err.Error())
		}
		known := false
		for word := range strings.SplitSeq(says, "|") {
			known = known || strings.Contains(said, word)
		}
		if !known || others && !strings.Contains(said, region+": ") || errors.Is(err, volume.ErrNotFound) {
			t.Errorf("%s of a volume whose region is unreadable: %v", call, err)
		}
	}
	if others {
		if len(list) != 1 || list[0].ID != hereID {
			t.Errorf("list: %+v", list)
		}
		if err := m.Grow(ctx, hereID, 1); err != nil {
			t.Errorf("a volume that can be seen: %v", err)
		}
		if err := m.Delete(ctx, hereID); err != nil {
			t.Errorf("a volume that can be seen: %v", err)
		}
	}
	undo()
	for range 2 {
		must(t, m.Delete(ctx, awayID), m.Delete(ctx, hereID))
	}
	if list, err := m.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("left: %+v, %v", list, err)
	}
}

// TestTakenBack: a region that the operator has taken back keeps its volumes, labels or not, and what is somebody
// else's is nobody's trouble.
func TestTakenBack(t *testing.T) {
	for _, labels := range []bool{true, false} {
		m := newMemory(t)
		m.vg(m.add(labels), awayID)
		m.add(false) // nothing is on it
		off := m.add(false)
		off.State = "disabled"
		m.save()
		manager := m.manager("region7")
		if list, err := manager.List(context.Background()); err != nil || len(list) != 1 || list[0].ID != awayID {
			t.Errorf("labels %t: %+v, %v", labels, list, err)
		}
		if room, err := manager.Available(context.Background()); room != 0 || err != nil {
			t.Errorf("labels %t: room for %d bytes, %v", labels, room, err)
		}
		must(t, manager.Delete(context.Background(), awayID), manager.Delete(context.Background(), awayID))
		if list, err := manager.List(context.Background()); err != nil || len(list) != 0 {
			t.Errorf("labels %t: left %+v, %v", labels, list, err)
		}
	}
}

// TestHalfMade: a namespace whose making was interrupted has nothing on it; one whose info block cannot be read looks
// the same to the kernel, and is kept.
func TestHalfMade(t *testing.T) {
	ctx := context.Background()
	m := newMemory(t)
	ns := m.add(true)
	ns.Mode = "raw"
	m.save()
	manager := m.manager(nvdimm.All)
	must(t, manager.Delete(ctx, awayID))
	if err := manager.Check(ctx); err != nil {
		t.Fatal(err)
	}
	if told := manager.reporter.Current(); !strings.Contains(told, "destroy") {
		t.Errorf("a half made namespace is not made anew: %q", told)
	}
	undo := troubles["errors"].make(m, ns)
	defer undo()
	if err := manager.Delete(ctx, awayID); err == nil {
		t.Error("nothing is on a namespace that cannot be read")
	}
	manager.checked = manager.checked.Add(-checkInterval)
	must(t, manager.Check(ctx))
	if told := manager.reporter.Current(); strings.Contains(told, "destroy") ||
		!strings.Contains(told, "input/output error") {
		t.Errorf("a namespace that cannot be read: %q", told)
	}
}
