// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// waiting is the context of a call that says when it begins to wait: it has found its work by then.
type waiting struct {
	context.Context
	begun chan struct{}
}

func (w waiting) Done() <-chan struct{} {
	select {
	case w.begun <- struct{}{}:
	default:
	}
	return w.Context.Done()
}

// TestJobs: work goes on when the call that began it has ended; calls that are repeated find it, its end and its
// failure, and nothing else happens to the volume meanwhile.
func TestJobs(t *testing.T) {
	locks := &volume.Locks{}
	j := NewJobs(t.Context())
	j.patience = 50 * time.Millisecond
	lock := func() (func(), error) { return locks.TryLock("one", "copy") }
	finish, begun := make(chan error), 0
	work := func(ctx context.Context) error {
		begun++
		select {
		case err := <-finish:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	call, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 { // the second call joins, and both have gone before the work ends
		if ended, err := j.do(call, "one", lock, work); ended || err != nil {
			t.Fatalf("a call of which the work goes on: %t, %v", ended, err)
		}
	}
	if _, err := locks.TryLock("one", "delete"); !errors.Is(err, volume.ErrBusy) {
		t.Errorf("the volume's lock was free: %v", err)
	}
	wrong := errors.New("no room")
	finish <- wrong
	j.Wait()
	if ended, err := j.do(t.Context(), "one", lock, work); !ended || !errors.Is(err, wrong) {
		t.Errorf("the failure that no call saw: %t, %v", ended, err)
	}
	if ended, err := j.do(t.Context(), "one", lock, work); ended || err != nil || begun != 2 {
		t.Errorf("the call after it: %t, %v; begun %d times", ended, err, begun)
	}
	waits := waiting{Context: t.Context(), begun: make(chan struct{}, 1)}
	go func() {
		<-waits.begun
		finish <- nil
	}()
	patience := j.patience
	j.patience = time.Minute // a busy machine may take long to end it
	if ended, err := j.do(waits, "one", lock, work); !ended || err != nil || begun != 2 {
		t.Errorf("the call that sees the end: %t, %v; begun %d times", ended, err, begun)
	}
	j.patience = patience
	if ended, err := j.do(t.Context(), "one", lock, work); ended || err != nil {
		t.Errorf("new work: %t, %v", ended, err)
	}
	if err := j.cancel(t.Context(), "one"); err != nil {
		t.Error(err)
	}
	if release, err := locks.TryLock("one", "delete"); err != nil {
		t.Errorf("after it was cancelled: %v", err)
	} else {
		release()
	}
	held, err := locks.TryLock("one", "stage")
	if err != nil {
		t.Fatal(err)
	}
	if ended, err := j.do(t.Context(), "one", lock, work); !ended || !errors.Is(err, volume.ErrBusy) {
		t.Errorf("a volume that is busy: %t, %v", ended, err)
	}
	held()
}

// TestJobPanics: a bug in one volume's work is that call's error, as it is in a call without long work.
func TestJobPanics(t *testing.T) {
	locks := &volume.Locks{}
	j := NewJobs(t.Context())
	lock := func() (func(), error) { return locks.TryLock("one", "copy") }
	for range 2 {
		ended, err := j.do(t.Context(), "one", lock, func(context.Context) error { panic("nobody thought of this") })
		if !ended || err == nil || !strings.Contains(err.Error(), "nobody thought of this") {
			t.Errorf("work that panics: %t, %v", ended, err)
		}
	}
	if ended, err := j.do(t.Context(), "one", lock, func(context.Context) error { return nil }); !ended || err != nil {
		t.Errorf("the work after it: %t, %v", ended, err)
	}
}

// TestJobThatDoesNotEnd: a call that is to end it has a deadline all the same, and nothing happens to the volume.
func TestJobThatDoesNotEnd(t *testing.T) {
	locks := &volume.Locks{}
	j := NewJobs(t.Context())
	j.patience = time.Millisecond
	lock := func() (func(), error) { return locks.TryLock(volume.IDFromName("one"), "copy") }
	finish := make(chan struct{})
	hang := func(context.Context) error { <-finish; return nil } // a device that does not answer
	if ended, err := j.do(t.Context(), volume.IDFromName("one"), lock, hang); ended || err != nil {
		t.Fatalf("it has ended: %t, %v", ended, err)
	}
	c, s := NewController(nil, locks, j), NewNode(nil, locks, j)
	for what, call := range map[string]func(ctx context.Context) error{
		"DeleteVolume": func(ctx context.Context) error {
			_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volume.IDFromName("one")})
			return err
		},
		"NodeUnstageVolume": func(ctx context.Context) error {
			_, err := s.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{
				VolumeId: volume.IDFromName("one"), StagingTargetPath: "/staging",
			})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		answered := make(chan error, 1)
		go func() { answered <- call(ctx) }()
		select {
		case err := <-answered:
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s does not end", what)
		}
		cancel()
	}
	close(finish)
	j.Wait()
}
