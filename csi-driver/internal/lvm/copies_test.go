// SPDX-License-Identifier: Apache-2.0

package lvm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestThinCopiesTogether: copies of a group, and of volumes that are copied at the same time, are reserved before the
// first of them is made, and do not all count on the same room of their pool. What is not made after all is given back.
func TestThinCopiesTogether(t *testing.T) {
	memory := newMemory(t)
	ns := memory.add(true)
	device, err := ns.Path()
	must(t, err)
	group, err := groupName(*ns)
	must(t, err)
	// Making a thin pool needs device mapper: what lvm would list of one is written down here.
	const size = 200 * volume.MiB
	one, two := volume.IDFromName("one"), volume.IDFromName("two")
	lv := func(name, tag, pool string, size int64) string {
		return fmt.Sprintf(`{"lv_name":%q,"vg_name":%q,"lv_tags":%q,"lv_size":"%d","lv_kernel_minor":"1","pool_lv":%q,`+
			`"data_percent":"1.00","metadata_percent":"1.00","lv_metadata_size":"4194304","lv_when_full":"error",`+
			`"lv_health_status":""}`, name, group, tag, size, pool)
	}
	pv := fmt.Sprintf(`{"pv_name":%q,"pe_start":"2097152","vg_name":%q,"vg_tags":%q,"vg_size":"%d","vg_free":"0",`+
		`"vg_extent_size":"2097152"}`, device, group, ownTag, 4*size)
	listed := func(copies ...string) {
		t.Helper()
		lvs := append([]string{
			lv("pool0", poolTag, "", 4*size), lv(one, ownTag, "pool0", size), lv(two, ownTag, "pool0", size),
		}, copies...)
		must(t, os.WriteFile(filepath.Join(memory.dir, "lvs"), []byte(`{"report":[{"lv":[`+strings.Join(lvs, ",")+`]}]}`),
			0o644))
	}
	listed()
	must(t,
		os.WriteFile(filepath.Join(memory.dir, "pvs"), []byte(`{"report":[{"pv":[`+pv+`]}]}`), 0o644),
		os.WriteFile(filepath.Join(memory.dir, "lvm"),
			[]byte("#!/bin/sh\ncase $1 in pvs | lvs) exec cat "+memory.dir+"/$1 ;; esac\n"), 0o755))
	started := func() thinView {
		t.Helper()
		m, err := New(Config{Regions: selector(t, nvdimm.All), Percent: 100, Classes: []Class{
			{Name: "thin", Default: true, Thin: &ThinPool{Name: "pool0", Overprovision: 1}},
		}}, &nvdimm.Tool{})
		must(t, err)
		return thinView{m, &m.config.Classes[0]}
	}
	v, ctx := started(), t.Context()
	available := func(want int64) {
		t.Helper()
		if have, err := v.Available(ctx); err != nil || have != want {
			t.Errorf("%d MiB can be promised, wanted %d, %v", have/volume.MiB, want/volume.MiB, err)
		}
	}
	available(2 * size)
	if more, err := v.Growable(ctx, one); err != nil || more != 2*size {
		t.Errorf("a volume of the pool can grow by %d, %v", more, err)
	}
	first, second := volume.SnapshotID("first", "n"), volume.SnapshotID("second", "n")
	must(t, v.Reserve(ctx, one, first, size+size/2), v.Reserve(ctx, one, first, size+size/2))
	available(size / 2)
	if err := v.Reserve(ctx, two, second, size); !errors.Is(err, volume.ErrExhausted) {
		t.Errorf("a second copy, for which there is no room: %v", err)
	}
	must(t, v.Delete(ctx, first)) // it was not made
	available(2 * size)
	must(t, v.Reserve(ctx, two, second, size))
	must(t, v.Delete(ctx, second))

	// A copy that is to be larger than its original begins with that one's size. Nobody else gets what it grows by, also
	// when the service is started anew meanwhile.
	must(t, v.Reserve(ctx, one, first, size+size/2), v.Share(ctx, one, first))
	listed(lv(logicalName(first), ownTag, "pool0", size))
	available(size / 2)
	v = started()
	must(t, v.Resume(ctx, first, 0, size+size/2), v.Resume(ctx, second, 0, size))
	available(size / 2)
	must(t, v.Grow(ctx, first, size+size/2))
	listed(lv(logicalName(first), ownTag, "pool0", size+size/2))
	available(size / 2)
	must(t, v.Resume(ctx, first, 0, size+size/2))
	available(size / 2)
}
