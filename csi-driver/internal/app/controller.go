// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"splitfs.io/splitfs/csi-driver/internal/central"
	"splitfs.io/splitfs/csi-driver/internal/driver"
	"splitfs.io/splitfs/csi-driver/internal/driverinfo"
	"splitfs.io/splitfs/csi-driver/internal/server"
	"splitfs.io/splitfs/internal/contract"
)

// labelInterval is how often the labels of Nodes are compared with what their SplitFSNodes say.
const labelInterval = 30 * time.Second

// controllerOptions are the flags of `splitfs-csi controller`.
type controllerOptions struct {
	endpoint       string
	namespace      string
	orphanInterval time.Duration
	orphanGrace    time.Duration
	nodeSilence    time.Duration
	nodeLabels     bool
	snapshots      bool
	groupSnapshots bool
	recreate       bool
	exempt         []string
	httpEndpoint   string
	kubeconfig     string
}

func newControllerCommand() *cobra.Command {
	var o controllerOptions
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Serve csi-resizer, report volumes whose node is gone, label the contents of snapshots",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return runController(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.endpoint, "csi-endpoint", "unix:///run/csi/csi.sock", "where CSI is served")
	f.StringVar(&o.namespace, "namespace", os.Getenv("NAMESPACE"),
		"namespace of the driver's CSIStorageCapacity objects (default $NAMESPACE)")
	f.DurationVar(&o.orphanInterval, "orphan-interval", time.Minute,
		"how often volumes are checked for a node that is gone")
	f.DurationVar(&o.orphanGrace, "orphan-grace", 10*time.Minute,
		"how long a node must be missing before its volumes are reported")
	f.DurationVar(&o.nodeSilence, "node-silence", 20*time.Minute,
		"how long a node service must not be heard of before its SplitFSNode says so; 0: never")
	f.BoolVar(&o.nodeLabels, "node-labels", false, "label Nodes with what their SplitFSNodes say of their memory")
	f.BoolVar(&o.snapshots, "snapshots", false,
		"label VolumeSnapshotContents that were made by hand, or belong to a group, with the node that has their "+
			"snapshot; the cluster must have their CustomResourceDefinition")
	f.BoolVar(&o.groupSnapshots, "group-snapshots", false,
		"label VolumeGroupSnapshotContents with the node that has their volumes; the cluster must have their "+
			"CustomResourceDefinition")
	f.BoolVar(&o.recreate, "recreate-pods", false,
		"evict pods that their nodes refuse a volume, because they were created while no injector answered; their "+
			"controllers create them anew")
	f.StringVar(&o.httpEndpoint, "http-endpoint", ":9810", "address of /healthz, /readyz and /metrics; empty: not served")
	addClusterFlags(f, &o.exempt, &o.kubeconfig)
	return cmd
}

func (o controllerOptions) validate() error {
	if o.namespace == "" {
		return errors.New("no namespace; set --namespace or NAMESPACE")
	}
	if o.orphanInterval <= 0 || o.orphanGrace < 0 {
		return fmt.Errorf("--orphan-interval is %s and --orphan-grace is %s; they must be positive", o.orphanInterval,
			o.orphanGrace)
	}
	if o.nodeSilence < 0 {
		return fmt.Errorf("--node-silence is %s; it must not be negative", o.nodeSilence)
	}
	return nil
}

func runController(ctx context.Context, o controllerOptions) error {
	logger := klog.FromContext(ctx)
	client, err := kubeClient(o.kubeconfig)
	if err != nil {
		return err
	}
	logger.Info("Starting", "driver", contract.Driver, "version", driverinfo.Version, "endpoint", o.endpoint)
	view, err := central.NewView(client, o.namespace)
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "splitfs-csi-controller"})
	orphans := central.NewOrphans(view, recorder, o.orphanGrace, clock.RealClock{})

	socket, err := server.SocketPath(o.endpoint)
	if err != nil {
		return err
	}
	listener, err := server.Listen(socket)
	if err != nil {
		return err
	}
	csiMetrics := csimetrics.NewCSIMetricsManagerForPlugin(contract.Driver)
	registry := prometheus.NewRegistry()
	registry.MustRegister(orphans.Metric())
	objects, err := dynamicClient(o.kubeconfig)
	if err != nil {
		return err
	}
	nodes, err := central.NewNodeObjects(objects)
	if err != nil {
		return err
	}
	var silent *central.Silent
	if o.nodeSilence > 0 {
		silent = central.NewSilent(objects, nodes, o.nodeSilence, clock.RealClock{})
		registry.MustRegister(silent.Metric())
	}
	var labels *central.Labels
	if o.nodeLabels {
		labels = central.NewLabels(client, view, nodes)
	}
	contents, err := o.contents(objects, view, recorder)
	if err != nil {
		return err
	}
	var recreate *central.Recreate
	if o.recreate {
		recreate = central.NewRecreate(client, view, o.exempt, recorder, clock.RealClock{})
		registry.MustRegister(recreate.Metric())
	}
	csiMetrics.WithAdditionalRegistry(registry)

	grpcServer := server.NewGRPC(logger, csiMetrics)
	// The view is no condition of Probe: csi-resizer would wait for an API server that it needs itself. /readyz asks for
	// it.
	csi.RegisterIdentityServer(grpcServer, driver.Identity{Check: func(context.Context) error { return nil }})
	csi.RegisterControllerServer(grpcServer, central.NewController(view, client))

	group, ctx := errgroup.WithContext(ctx)
	view.Start(ctx)
	group.Go(func() error { return server.Serve(ctx, grpcServer, listener) })
	group.Go(func() error { orphans.Run(ctx, o.orphanInterval); return nil })
	if silent != nil || labels != nil {
		group.Go(func() error { nodes.Run(ctx); return nil })
	}
	if silent != nil {
		group.Go(func() error { silent.Run(ctx, min(o.nodeSilence, time.Minute)); return nil })
	}
	if recreate != nil {
		group.Go(func() error { recreate.Run(ctx, recreateInterval); return nil })
	}
	if labels != nil {
		group.Go(func() error { labels.Run(ctx, labelInterval); return nil })
	}
	for _, c := range contents {
		group.Go(func() error { c.Run(ctx); return nil })
	}
	if o.httpEndpoint != "" {
		prober := &server.Prober{Endpoint: o.endpoint}
		mux := server.NewMux([]server.Check{prober.Alive}, []server.Check{prober.Probe, view.Check}, csiMetrics)
		group.Go(func() error { return errors.Join(server.ServeHTTP(ctx, o.httpEndpoint, mux), prober.Close()) })
	}
	return group.Wait()
}

// contents are those of snapshots that get labels.
func (o controllerOptions) contents(client dynamic.Interface, view *central.View,
	recorder record.EventRecorder) (list []*central.Contents, err error) {
	for _, each := range []struct {
		wanted bool
		make   func(dynamic.Interface, *central.View, record.EventRecorder) (*central.Contents, error)
	}{{o.snapshots, central.NewContents}, {o.groupSnapshots, central.NewGroupContents}} {
		if !each.wanted {
			continue
		}
		c, err := each.make(client, view, recorder)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// recreateInterval is how often pods that wait are looked at.
const recreateInterval = 20 * time.Second

// dynamicClient returns a client for custom resources.
func dynamicClient(kubeconfig string) (dynamic.Interface, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return client, nil
}
