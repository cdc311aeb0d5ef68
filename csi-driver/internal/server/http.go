// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/connection"
	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
)

const probeTimeout = 4 * time.Second

// Check is one condition of health.
type Check func(ctx context.Context) error

// Prober checks the driver the way its users reach it: as a client of its own socket.
type Prober struct {
	Endpoint string

	mu   sync.Mutex
	conn *grpc.ClientConn
}

// Alive connects, when that was not done yet, and asks for the driver's name: it answers, whether it can do its work or
// not.
func (p *Prober) Alive(ctx context.Context) error {
	conn, err := p.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", p.Endpoint, err)
	}
	_, err = rpc.GetDriverName(ctx, conn)
	return err
}

// Probe connects, when that was not done yet, and calls Probe.
func (p *Prober) Probe(ctx context.Context) error {
	conn, err := p.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", p.Endpoint, err)
	}
	ready, err := rpc.Probe(ctx, conn)
	if err != nil {
		return err
	}
	if !ready {
		return errors.New("the driver says that it is not ready")
	}
	return nil
}

func (p *Prober) connect(ctx context.Context) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		return p.conn, nil
	}
	conn, err := connection.Connect(ctx, p.Endpoint, nil, connection.WithTimeout(probeTimeout))
	if err != nil {
		return nil, err
	}
	p.conn = conn
	return conn, nil
}

// Close closes the connection.
func (p *Prober) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return nil
	}
	return p.conn.Close()
}

// NewMux serves /healthz (live), /readyz (ready; implies live) and /metrics.
func NewMux(live, ready []Check, metrics csimetrics.CSIMetricsManager) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", checks(live))
	mux.Handle("GET /readyz", checks(append(append([]Check{}, live...), ready...)))
	metrics.RegisterToServer(mux, "/metrics")
	return mux
}

func checks(list []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		for _, check := range list {
			if err := check(ctx); err != nil {
				klog.FromContext(r.Context()).Error(err, "Health check failed", "path", r.URL.Path)
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
}

// ServeHTTP serves on an address until ctx is done.
func ServeHTTP(ctx context.Context, address string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	s := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	stop := context.AfterFunc(ctx, func() {
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
		defer cancel()
		if err := s.Shutdown(shutdown); err != nil {
			klog.FromContext(ctx).Error(err, "HTTP server did not shut down cleanly")
		}
	})
	defer stop()
	klog.FromContext(ctx).V(2).Info("Serving HTTP", "address", listener.Addr())
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", address, err)
	}
	return nil
}
