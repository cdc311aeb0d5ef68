// SPDX-License-Identifier: Apache-2.0

package changes_test

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"splitfs.io/splitfs/csi-driver/internal/changes"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestUnchanged: what lies where it lay and is not marked is unchanged, and nothing else.
func TestUnchanged(t *testing.T) {
	const unit, units = 8192, 200
	for range 2000 {
		before, now, marked := make([]int64, units), make([]int64, units), make([]bool, units-rand.IntN(70))
		for i := range units {
			before[i] = int64(i) + 1000
			if i > 0 && before[i-1] >= 0 {
				before[i] = before[i-1] + 1
			}
			switch rand.IntN(20) {
			case 0:
				before[i] = -1
			case 1:
				before[i] = int64(2000 + 500*rand.IntN(3) + i)
			}
			switch now[i] = before[i]; rand.IntN(20) {
			case 0:
				now[i] = -1
			case 1:
				now[i] = int64(9000 + i)
			}
		}
		often := 1 + rand.IntN(30)
		for i := range marked {
			marked[i] = rand.IntN(often) == 0
		}
		want := map[int64]bool{}
		for i := range marked {
			if before[i] >= 0 && before[i] == now[i] && !marked[i] {
				want[now[i]] = true
			}
		}
		got := changes.Unchanged(unit, before, now, marked)
		if got.Bytes() != int64(len(want))*unit {
			t.Fatalf("%d units, not %d: %v of %v, before %v, marked %v", got.Bytes()/unit, len(want), got, now, before, marked)
		}
		for at := range want {
			if gap := got.Gap(at*unit, (at+1)*unit); gap.From != gap.End {
				t.Fatalf("unit %d is in the gap %v of %v", at, gap, got)
			}
		}
	}
}

const hotSize = 128 * volume.MiB

// TestHotFile: of one large file that is written to all the time only what has been written is looked at, if the file
// system says what that is; and the copy is right.
func TestHotFile(t *testing.T) {
	for fsType, turns := range map[string]int{volume.Ext4: 2, ourExt4: 3} {
		t.Run(fsType, func(t *testing.T) {
			needs(t, fsType)
			c := newCopied(t, fsType)
			c.fill(c.path(0), hotSize)
			stop := c.hotWriters()
			defer stop()
			time.Sleep(100 * time.Millisecond)
			c.round()
			if c.tracker.Marked() != (fsType == ourExt4) {
				t.Fatalf("changes are marked: %v", c.tracker.Marked())
			}
			c.tracker.Release()
			c.must(c.pair.Write(context.Background(), 0, func(int64) error { return nil }))
			for turn := range turns {
				known := c.round()
				looked, err := c.pair.Update(context.Background(), known)
				c.must(err)
				t.Logf("turn %d: %d MiB were looked at", turn, looked/volume.MiB)
				if turn > 0 {
					c.expect(fsType, looked)
				}
			}
			for range turns - 1 { // one that is given up has taken what was marked
				_, err := c.tracker.Frozen(context.Background())
				c.must(err)
				looked := c.cut()
				t.Logf("frozen: %d MiB were looked at", looked/volume.MiB)
				c.expect(fsType, looked)
			}
		})
	}
}

func (c *copied) expect(fsType string, looked int64) {
	c.Helper()
	if fsType == ourExt4 && looked > hotSize/4 || fsType == volume.Ext4 && looked < hotSize {
		c.Errorf("%s: %d MiB were looked at, of a file of %d", fsType, looked/volume.MiB, hotSize/volume.MiB)
	}
}

// hotWriters write to all of a file, and store to the first of it: where 2 MiB are mapped at once, all of these count
// as changed.
func (c *copied) hotWriters() (stop func()) {
	const stored = 8 * volume.MiB
	f, err := os.OpenFile(c.path(0), os.O_RDWR, 0)
	c.must(err)
	mapped, err := c.mapped(0, stored)
	c.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		data := make([]byte, 6000)
		for ctx.Err() == nil {
			data[rand.IntN(len(data))]++
			if _, err := f.WriteAt(data, rand.Int64N(hotSize-int64(len(data)))); err != nil {
				c.Error(err)
			}
			if rand.IntN(50) == 0 {
				at := rand.Int64N(hotSize - volume.MiB)
				err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, 10_000)
				if err != nil {
					c.Error(err)
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
	all.Go(func() {
		for ctx.Err() == nil {
			if err := mapped.say("mwrite -S %d %d 100", rand.IntN(256), rand.Int64N(stored-100)); err != nil {
				c.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	return func() {
		cancel()
		all.Wait()
		if err := mapped.end(); err != nil {
			c.Error(err)
		}
		if err := f.Close(); err != nil {
			c.Error(err)
		}
	}
}
