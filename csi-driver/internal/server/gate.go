// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Gate holds calls back while what they need is being prepared: the sockets are there first, so that kubelet and probes
// find a service that starts, not none. Calls that need nothing pass.
type Gate struct {
	once sync.Once
	open chan struct{}
	// Patience is how long a call waits.
	patience time.Duration
}

// NewGate returns a closed Gate.
func NewGate(patience time.Duration) *Gate {
	return &Gate{open: make(chan struct{}), patience: patience}
}

// Open lets all calls pass.
func (g *Gate) Open() { g.once.Do(func() { close(g.open) }) }

// Check says whether the Gate is open.
func (g *Gate) Check(context.Context) error {
	select {
	case <-g.open:
		return nil
	default:
		return errStarting
	}
}

var errStarting = status.Error(codes.Unavailable, "the driver is starting; try again")

// passing are the calls that need nothing.
var passing = map[string]bool{
	"GetPluginInfo": true, "GetPluginCapabilities": true, "Probe": true,
	"ControllerGetCapabilities": true, "NodeGetCapabilities": true, "NodeGetInfo": true,
}

// Interceptor is the Gate as a part of a gRPC server.
func (g *Gate) Interceptor(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	if _, method := filepath.Split(info.FullMethod); !passing[method] {
		patience := time.NewTimer(g.patience)
		defer patience.Stop()
		select {
		case <-g.open:
		case <-ctx.Done():
			return nil, errStarting
		case <-patience.C:
			return nil, errStarting
		}
	}
	return handler(ctx, req)
}
