// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/splitfstest"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// onMemory makes the next staging of a volume find it on this kind of memory, on a device that is not emulated.
func (f *fixture) onMemory(rec *volume.Record, memory volume.Memory) *volume.Record {
	f.t.Helper()
	staging := f.stageAt(rec)
	f.must(splitfstest.SetMemory(staging, string(memory)))
	f.must(f.Unstage(f.ctx, rec.ID, staging))
	f.stageAt(rec)
	now, err := f.Volume(rec.ID)
	f.must(err)
	if now.Memory != memory {
		f.t.Errorf("staged on %q, recorded %q", memory, now.Memory)
	}
	now.Device = volume.DeviceLVM
	return now
}

// TestLessDurable: what a volume's memory is found to be when it is staged is told to its pods, and is a problem where
// its class wanted more.
func TestLessDurable(t *testing.T) {
	f := newFixture(t, "")
	rec := f.create("one", volume.XFS, volume.MiB)
	for memory, less := range map[volume.Memory]bool{
		volume.MemoryVolatile: true, volume.MemoryUnstated: true, volume.MemoryEADR: false,
	} {
		now := f.onMemory(rec, memory)
		message := f.lessDurableMessage(now)
		if (message != "") != less || less && !strings.Contains(message, `"`+string(memory)+`"`) {
			t.Errorf("%s: %q", memory, message)
		}
		for _, durability := range []volume.Durability{volume.DurabilityRequired, volume.DurabilityAny} {
			now.SetDurability(durability)
			problems, err := f.problems(now)
			f.must(err)
			found := false
			for _, p := range problems {
				found = found || p.Reason == events.ReasonLessDurable && p.Severity == Degraded
			}
			if found != (less && durability.Required()) {
				t.Errorf("%s, %s: %+v", memory, durability, problems)
			}
		}
		f.must(f.Unstage(f.ctx, rec.ID, f.staging("one")))
	}
	if message := f.lessDurableMessage(&volume.Record{
		Device: volume.DeviceEmulated, Memory: volume.MemoryEmulated,
	}); message != "" {
		t.Errorf("emulated volumes have a message of their own, and not %q", message)
	}
}

// TestRequiredRefused: no emulated volume for who needs durable memory, and a volume that is there is not one with
// another durability.
func TestRequiredRefused(t *testing.T) {
	f := newFixture(t, "")
	req := CreateRequest{
		Name: "one", FSType: volume.XFS, Required: volume.MiB,
		Params: volume.Params{Mode: contract.Strict, Device: volume.DeviceEmulated, Durability: volume.DurabilityRequired},
	}
	if _, err := f.Create(f.ctx, req); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("made: %v", err)
	}
	if _, err := f.Capacity(f.ctx, req.Params, false); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("capacity: %v", err)
	}
	rec := f.create("two", volume.XFS, volume.MiB)
	req.Name, req.Params.Mode, rec.Durability = "two", rec.Mode, volume.DurabilityRequired
	req.Params.Durability = volume.DurabilityAny
	if err := compatible(rec, req); !errors.Is(err, volume.ErrExists) {
		t.Errorf("one with less was asked for: %v", err)
	}
	rec.Durability = ""
	req.Params.Durability = volume.DurabilityRequired
	if err := compatible(rec, req); err != nil {
		t.Errorf("a volume of an earlier driver, asked for again: %v", err)
	}
	if got := strongest(f.config.Managers[volume.DeviceEmulated], []device.Region{
		{Memory: ""},
	}); got != volume.MemoryEmulated {
		t.Errorf("emulated devices are %q", got)
	}
}
