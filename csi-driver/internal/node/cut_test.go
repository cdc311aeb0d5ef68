// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/emulated"
	"splitfs.io/splitfs/csi-driver/internal/mounts"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// scripted is a cutter whose moments end as they are told to, one after the other, and then well.
type scripted struct {
	name              string
	moments           []error
	prepares, endings error
	log               *[]string
}

func (s *scripted) note(what string) { *s.log = append(*s.log, s.name+" "+what) }

func (s *scripted) prepare(context.Context) error {
	s.note("prepare")
	return s.prepares
}

func (s *scripted) moment(context.Context, time.Time) error {
	s.note("moment")
	if len(s.moments) == 0 {
		return nil
	}
	err := s.moments[0]
	s.moments = s.moments[1:]
	return err
}

func (s *scripted) end(_ context.Context, whole bool) error {
	if whole {
		s.note("whole")
	} else {
		s.note("undone")
	}
	return s.endings
}

// TestCutTogether: copies are cut at one moment or not at all. A moment that would have lasted too long is tried again,
// after all have caught up, a few times; each copy is ended once, whatever became of it.
func TestCutTogether(t *testing.T) {
	broken := errors.New("broken")
	late := func(times int) []error { return slices.Repeat([]error{context.DeadlineExceeded}, times) }
	tries := func(times int, last ...string) []string {
		return append(slices.Repeat([]string{"a prepare", "b prepare", "a moment", "b moment"}, times), last...)
	}
	for _, c := range []struct {
		name      string
		a, b      scripted
		cancelled bool
		want      error
		log       []string
	}{
		{name: "at once", log: tries(1, "a whole", "b whole")},
		{name: "at the last try", b: scripted{moments: late(catchUps - 1)}, log: tries(catchUps, "a whole", "b whole")},
		{
			name: "never in time", b: scripted{moments: late(catchUps)}, want: volume.ErrPrecondition,
			log: tries(catchUps, "a undone", "b undone"),
		},
		{
			name: "the caller has gone", b: scripted{moments: late(1)}, cancelled: true, want: context.DeadlineExceeded,
			log: tries(1, "a undone", "b undone"),
		},
		{name: "a moment fails", b: scripted{moments: []error{broken}}, want: broken, log: tries(1, "a undone", "b undone")},
		{
			name: "the first moment fails", a: scripted{moments: []error{broken}}, want: broken,
			log: []string{"a prepare", "b prepare", "a moment", "a undone", "b undone"},
		},
		{
			name: "preparing fails", b: scripted{prepares: broken}, want: broken,
			log: []string{"a prepare", "b prepare", "a undone", "b undone"},
		},
		{name: "not durable", a: scripted{endings: broken}, want: broken, log: tries(1, "a whole", "b whole")},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &Node{config: Config{FreezeLimit: time.Second}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.cancelled {
				cancel()
			}
			var log []string
			var copies []*copying
			for name, s := range map[string]*scripted{"a": &c.a, "b": &c.b} {
				s.name, s.log = name, &log
				copies = append(copies, &copying{
					cutter: s, source: &volume.Record{ID: "source-" + name},
					rec: &volume.Record{ID: volume.SnapshotID(name, "node-1")},
				})
			}
			slices.SortFunc(copies, func(a, b *copying) int { return strings.Compare(a.source.ID, b.source.ID) })
			err := n.cutTogether(ctx, copies)
			if !errors.Is(err, c.want) {
				t.Errorf("%v, wanted %v", err, c.want)
			}
			if errors.Is(c.want, volume.ErrPrecondition) && !strings.Contains(err.Error(), "source-b") {
				t.Errorf("which volume was too long to look at is not said: %v", err)
			}
			if !slices.Equal(log, c.log) {
				t.Errorf("%q, wanted %q", log, c.log)
			}
			if err == nil && (copies[0].rec.Taken.IsZero() || !copies[0].rec.Taken.Equal(copies[1].rec.Taken)) {
				t.Errorf("taken at %v and %v", copies[0].rec.Taken, copies[1].rec.Taken)
			}
		})
	}
}

// TestCutFallsBack: a copy whose storage turns out not to be shared is made byte by byte, and cut at the moment of the
// others.
func TestCutFallsBack(t *testing.T) {
	const size = volume.MiB
	manager, err := emulated.New(emulated.Config{Dir: t.TempDir(), Capacity: volume.GiB})
	if err != nil {
		t.Fatal(err)
	}
	store, err := volume.OpenSnapshots(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{
		config:    Config{StateDir: t.TempDir(), FreezeLimit: time.Second, Managers: device.NewManagers(manager)},
		snapshots: store, mounter: mounts.New(),
	}
	source := &volume.Record{
		ID: volume.IDFromName("source"), Device: volume.DeviceEmulated, DeviceSize: size, Formatted: true,
	}
	rec := snapshotRecord(volume.SnapshotID("snap", "node-1"), "snap", source)
	if err := errors.Join(manager.Create(t.Context(), source.ID, size),
		os.WriteFile(manager.File(source.ID), []byte(strings.Repeat("x", int(size))), 0)); err != nil {
		t.Fatal(err)
	}
	var log []string
	copies := []*copying{
		{cutter: &scripted{name: "a", log: &log}, source: source, rec: &volume.Record{ID: volume.SnapshotID("a", "node-1")}},
		{
			cutter:  &scripted{name: "b", log: &log, moments: []error{device.ErrNotShared}},
			manager: manager, store: store, source: source, rec: rec,
		},
	}
	if err := n.cutTogether(t.Context(), copies); err != nil {
		t.Fatal(err)
	}
	if want := []string{
		"a prepare", "b prepare", "a moment", "b moment", "a prepare", "a moment", "a whole",
	}; !slices.Equal(log, want) {
		t.Errorf("%q, wanted %q", log, want)
	}
	if content, err := os.ReadFile(manager.File(rec.ID)); err != nil || string(content) != strings.Repeat("x", int(size)) {
		t.Errorf("the copy has %d bytes, or others than its original, %v", len(content), err)
	}
	if rec.Job != nil || rec.Taken.IsZero() || !rec.Taken.Equal(copies[0].rec.Taken) {
		t.Errorf("the copy is %+v", rec)
	}
}
