// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/agent"
	"splitfs.io/splitfs/csi-driver/internal/driverinfo"
	"splitfs.io/splitfs/csi-driver/internal/server"
	"splitfs.io/splitfs/internal/contract"
)

// agentsDir keeps the sockets of the node's agents, and what their supervisor has to remember; no pod sees it.
func agentsDir(dataDir string) string { return filepath.Join(dataDir, "agents") }

// agentsOptions are the flags of `splitfs-csi agents`. README.md says what each is for.
type agentsOptions struct {
	dataDir      string
	socket       string
	httpEndpoint string
}

func newAgentsCommand() *cobra.Command {
	var o agentsOptions
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "Run the agents of this node's volumes, for a node service that is replaced more often",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !filepath.IsAbs(o.dataDir) {
				return fmt.Errorf("directory %q is not an absolute path", o.dataDir)
			}
			if o.socket == "" {
				o.socket = filepath.Join(agentsDir(o.dataDir), "supervisor.sock")
			}
			return runAgents(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", defaultDataDir, "the node service's directory")
	f.StringVar(&o.socket, "socket", "",
		"where the node service asks for agents (default <data-dir>/agents/supervisor.sock)")
	f.StringVar(&o.httpEndpoint, "http-endpoint", ":9814", "address of /readyz; empty: not served")
	return cmd
}

// runAgents supervises agents until ctx is done. A supervisor that comes later, in the container of another version,
// takes them over; should it end before this one, they come back.
func runAgents(ctx context.Context, o agentsOptions) error {
	klog.FromContext(ctx).Info("Starting", "driver", contract.Driver, "version", driverinfo.Version, "socket", o.socket)
	group, ctx := errgroup.WithContext(ctx)
	ready := make(chan struct{})
	if o.httpEndpoint != "" {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
			select {
			case <-ready:
				fmt.Fprintln(w, "ok")
			default:
				http.Error(w, "taking volumes over", http.StatusServiceUnavailable)
			}
		})
		group.Go(func() error { return server.ServeHTTP(ctx, o.httpEndpoint, mux) })
	}
	group.Go(func() error {
		for once := sync.OnceFunc(func() { close(ready) }); ctx.Err() == nil; {
			if err := superviseAgents(ctx, o, once); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// superviseAgents returns when ctx is done, or when a supervisor that had taken over has ended.
func superviseAgents(ctx context.Context, o agentsOptions, ready func()) error {
	logger := klog.FromContext(ctx)
	s, err := agent.New(ctx, agent.Config{Dir: agentsDir(o.dataDir), Persistent: true})
	if err != nil {
		return err
	}
	defer s.Shutdown()
	handover := filepath.Join(agentsDir(o.dataDir), "handover.sock")
	// Programs wait for their agents; nothing else is to be done before.
	before, err := s.TakeOver(handover)
	if err != nil {
		logger.Error(err, "Some volumes are not taken over")
	}
	if before != nil {
		defer before.Close() //nolint:errcheck // it only shows that we live
	}
	if err := s.Restore(); err != nil {
		logger.Error(err, "Some volumes are served only when the node service asks for them")
	}
	successor, err := agent.ListenForSuccessor(handover)
	if err != nil {
		return err
	}
	listener, err := server.Listen(o.socket)
	if err != nil {
		return errors.Join(err, successor.Close())
	}
	control := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	group, ctx := errgroup.WithContext(ctx)
	stop := func() { _ = control.Close() } // who waits for a change is not waited for
	defer context.AfterFunc(ctx, stop)()
	group.Go(func() error {
		if err := control.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", o.socket, err)
		}
		return nil
	})
	group.Go(func() error { return s.ServeHandover(ctx, successor, stop) })
	ready()
	return group.Wait()
}
