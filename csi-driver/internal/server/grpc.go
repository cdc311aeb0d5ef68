// SPDX-License-Identifier: Apache-2.0

// Package server serves gRPC on Unix sockets and the health and metrics endpoints over HTTP.
package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/connection"
	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

// SocketPath returns the path in an endpoint "unix:///path" or "/path".
func SocketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("endpoint %q: only unix:///absolute/path is served", endpoint)
	}
	return path, nil
}

// Listen makes a Unix socket that only its owner can connect to, in place of one that an earlier run left.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("create the directory of socket %s: %w", path, err)
	}
	if err := removeSocket(path); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect socket %s: %w", path, err), listener.Close())
	}
	return listener, nil
}

// removeSocket removes a stale socket, and nothing that is not one.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stale socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket; remove it or choose another endpoint", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("stale socket: %w", err)
	}
	return nil
}

// NewGRPC returns a server whose calls are measured, logged and kept from taking the process down. Further interceptors
// come last.
func NewGRPC(logger klog.Logger, metrics csimetrics.CSIMetricsManager,
	more ...grpc.UnaryServerInterceptor) *grpc.Server {
	extended := connection.ExtendedCSIMetricsManager{CSIMetricsManager: metrics}
	return grpc.NewServer(grpc.ChainUnaryInterceptor(append([]grpc.UnaryServerInterceptor{
		extended.RecordMetricsServerInterceptor,
		logging(logger),
		recovering,
	}, more...)...))
}

// Serve serves until ctx is done, then lets running calls end.
func Serve(ctx context.Context, s *grpc.Server, listener net.Listener) error {
	const drain = 20 * time.Second
	stop := context.AfterFunc(ctx, func() {
		done := make(chan struct{})
		go func() {
			s.GracefulStop()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(drain):
			s.Stop()
		}
	})
	defer stop()
	if err := s.Serve(listener); err != nil {
		return fmt.Errorf("serve gRPC on %s: %w", listener.Addr(), err)
	}
	return nil
}

var requests atomic.Uint64

// logging gives each call a logger that says which call and which volume it belongs to, and logs its outcome. Payloads
// are logged at level 5, without their secrets.
func logging(base klog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		_, method := filepath.Split(info.FullMethod)
		logger := base.WithValues("method", method, "request-id", requests.Add(1))
		if r, ok := req.(interface{ GetVolumeId() string }); ok && r.GetVolumeId() != "" {
			logger = logger.WithValues("volume-id", r.GetVolumeId())
		}
		if r, ok := req.(interface{ GetName() string }); ok && r.GetName() != "" {
			logger = logger.WithValues("volume-name", r.GetName())
		}
		logger.V(5).Info("Call", "request", protosanitizer.StripSecrets(req))
		start := time.Now()
		resp, err := handler(klog.NewContext(ctx, logger), req)
		duration := time.Since(start).Round(time.Microsecond)
		switch {
		case err != nil:
			logger.Error(err, "Call failed", "code", status.Code(err), "duration", duration)
		case quiet[method]:
			logger.V(5).Info("Call done", "duration", duration, "response", protosanitizer.StripSecrets(resp))
		default:
			logger.V(3).Info("Call done", "duration", duration)
			logger.V(5).Info("Response", "response", protosanitizer.StripSecrets(resp))
		}
		return resp, err
	}
}

// quiet are the calls that kubelet, sidecars and probes repeat all the time.
var quiet = map[string]bool{
	"Probe": true, "GetPluginInfo": true, "GetPluginCapabilities": true, "ControllerGetCapabilities": true,
	"NodeGetCapabilities": true, "NodeGetVolumeStats": true, "GetCapacity": true,
}

// Recover is deferred by what may panic for one volume, and turns that into its error: agents and other volumes must
// not suffer from it.
func Recover(ctx context.Context, what string, err *error) {
	if r := recover(); r != nil {
		klog.FromContext(ctx).Error(nil, what+" panicked", "panic", r, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "the driver has a bug: %v", r)
	}
}

// recovering turns a panic in one call into that call's error.
func recovering(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (resp any, err error) {
	defer Recover(ctx, "Call", &err)
	return handler(ctx, req)
}
