// SPDX-License-Identifier: Apache-2.0

// Package registration makes kubelet know the driver. Kubelet watches a directory for sockets and asks each who it is.
package registration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"splitfs.io/splitfs/csi-driver/internal/server"
	"splitfs.io/splitfs/internal/contract"
)

// csiVersions are the major versions of CSI that the endpoint speaks, as kubelet compares them.
var csiVersions = []string{"1.0.0"}

// Server answers kubelet.
type Server struct {
	registerapi.UnimplementedRegistrationServer
	endpoint string
	refused  chan error

	mu         sync.Mutex
	registered bool
}

// New returns a server that announces the CSI socket at endpoint (a path, as kubelet sees it).
func New(endpoint string) *Server { return &Server{endpoint: endpoint, refused: make(chan error, 1)} }

// SocketPath returns where kubelet looks for the registration socket.
func SocketPath(kubeletDir string) string {
	return filepath.Join(kubeletDir, "plugins_registry", contract.Driver+"-reg.sock")
}

// Serve serves until ctx is done, or until kubelet refuses the driver: then only a new start (kubelet looks again) can
// help.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	grpcServer := grpc.NewServer()
	registerapi.RegisterRegistrationServer(grpcServer, s)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-s.refused:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	err := server.Serve(ctx, grpcServer, listener)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return errors.Join(cause, err)
	}
	return err
}

// GetInfo implements registerapi.RegistrationServer.
func (s *Server) GetInfo(ctx context.Context, _ *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	klog.FromContext(ctx).V(2).Info("Kubelet asks who we are", "driver", contract.Driver, "endpoint", s.endpoint)
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: contract.Driver, Endpoint: s.endpoint, SupportedVersions: csiVersions,
	}, nil
}

// NotifyRegistrationStatus implements registerapi.RegistrationServer.
func (s *Server) NotifyRegistrationStatus(ctx context.Context,
	st *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registered = st.GetPluginRegistered()
	if s.registered {
		klog.FromContext(ctx).V(2).Info("Registered with kubelet")
		return &registerapi.RegistrationStatusResponse{}, nil
	}
	select {
	case s.refused <- fmt.Errorf("kubelet refused the driver: %s", st.GetError()):
	default: // it refused before and we are ending already
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

// Check says whether kubelet has registered the driver.
func (s *Server) Check(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.registered {
		return errors.New("kubelet has not registered the driver yet")
	}
	return nil
}
