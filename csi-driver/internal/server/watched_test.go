// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestWatchedCheck: it answers at once, whatever the look does that it tells of.
func TestWatchedCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		broken, found := errors.New("broken"), make(chan error)
		w := NewWatchedCheck(func(context.Context) error { return <-found }, 10*time.Second, time.Minute)
		if err := w.Check(ctx); !errors.Is(err, ErrNotYet) {
			t.Errorf("before the first look: %v", err)
		}
		ended := make(chan struct{})
		go func() { w.Run(ctx); close(ended) }()
		for _, want := range []error{nil, broken, nil} {
			found <- want
			synctest.Wait()
			if err := w.Check(ctx); !errors.Is(err, want) {
				t.Errorf("found %v, said %v", want, err)
			}
			time.Sleep(11 * time.Second) // the next look is under way
			if err := w.Check(ctx); !errors.Is(err, want) {
				t.Errorf("found %v, said %v while it looks again", want, err)
			}
		}
		time.Sleep(2 * time.Minute)
		if err := w.Check(ctx); err == nil || errors.Is(err, ErrNotYet) {
			t.Errorf("the look hangs: %v", err)
		}
		cancel()
		found <- nil
		<-ended
	})
}

// TestGate: what needs the driver's state waits for it, and not for ever; what kubelet and probes ask first does not.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(10 * time.Second)
		call := func(method string) error {
			_, err := g.Interceptor(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.X/" + method},
				func(context.Context, any) (any, error) { return nil, nil })
			return err
		}
		for method := range passing {
			if err := call(method); err != nil {
				t.Errorf("%s: %v", method, err)
			}
		}
		began := time.Now()
		if err := call("NodeStageVolume"); status.Code(err) != codes.Unavailable || time.Since(began) != 10*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		time.AfterFunc(5*time.Second, g.Open)
		began = time.Now()
		if err := call("NodeStageVolume"); err != nil || time.Since(began) != 5*time.Second || g.Check(t.Context()) != nil {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
