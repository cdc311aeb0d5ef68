// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/attach"
	"splitfs.io/splitfs/csi-driver/internal/cri"
	"splitfs.io/splitfs/csi-driver/internal/driver"
	"splitfs.io/splitfs/csi-driver/internal/driverinfo"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/inspect"
	"splitfs.io/splitfs/csi-driver/internal/metrics"
	"splitfs.io/splitfs/csi-driver/internal/modify"
	"splitfs.io/splitfs/csi-driver/internal/module"
	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/registration"
	"splitfs.io/splitfs/csi-driver/internal/selinux"
	"splitfs.io/splitfs/csi-driver/internal/server"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/status"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/csi-driver/internal/watch"
	"splitfs.io/splitfs/internal/contract"
)

// nodeOptions are the flags of `splitfs-csi node`. README.md says what each is for.
type nodeOptions struct {
	nodeName        string
	kubeletDir      string
	endpoint        string
	register        bool
	dataDir         string
	devices         deviceOptions
	poolBytes       quantity
	poolFillPercent int
	logReserve      quantity
	maxVolumes      int64
	freezeLimit     time.Duration
	binary          string
	library         string
	httpEndpoint    string
	inspectEndpoint string
	events          bool
	status          bool
	statusInterval  time.Duration
	statusHeartbeat time.Duration
	module          bool
	moduleDirs      []string
	watchInterval   time.Duration
	kubeconfig      string
	runtimeSockets  []string
	requireLibrary  bool
	agentsSocket    string
	exempt          []string
}

func newNodeCommand() *cobra.Command {
	o := nodeOptions{poolBytes: quantity(128 * volume.MiB), logReserve: quantity(64 * volume.MiB)}
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Serve the volumes of this node",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return runNode(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of the Kubernetes node (default $NODE_NAME)")
	f.StringVar(&o.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "kubelet's root directory")
	f.StringVar(&o.endpoint, "csi-endpoint", "",
		"where CSI is served (default unix://<kubelet-dir>/plugins/"+contract.Driver+"/csi.sock)")
	f.StringVar(&o.agentsSocket, "agents-socket", "",
		"where `splitfs-csi agents` of this node listens; empty: agents run here, and end with this process")
	f.BoolVar(&o.register, "register", true, "register with kubelet through <kubelet-dir>/plugins_registry")
	f.StringVar(&o.dataDir, "data-dir", defaultDataDir,
		"directory for state, emulated devices and what pods see of the library")
	o.devices.addTo(f)
	f.Var(&o.poolBytes, "pool-bytes",
		"staging pool of a volume whose class has no parameter pool, on top of what was asked for")
	f.IntVar(&o.poolFillPercent, "pool-fill-percent", 25,
		"percent of one processor that filling the pools of all volumes may take while none runs short (1 to 100)")
	f.Var(&o.logReserve, "log-reserve", "room for operation logs of each volume, on top as well")
	f.DurationVar(&o.freezeLimit, "freeze-limit", time.Second,
		"how long a volume's writers may wait for a snapshot or clone where storage cannot be shared; what takes "+
			"longer is refused")
	f.Int64Var(&o.maxVolumes, "max-volumes", 64, "volumes this node can have published")
	f.StringVar(&o.binary, "splitfs-binary", defaultBinary, "the splitfs program")
	f.StringVar(&o.library, "library", "/usr/local/lib/splitfs/libsplit.so", "the preload library that pods get")
	f.StringVar(&o.httpEndpoint, "http-endpoint", ":9810", "address of /healthz, /readyz and /metrics; empty: not served")
	f.StringVar(&o.inspectEndpoint, "inspect-endpoint", "",
		"loopback address where kubectl splitfs, through a forwarded port, is told who is served; empty: not served")
	f.BoolVar(&o.events, "events", true,
		"send Kubernetes events, report volumes that the cluster has no PersistentVolume for, and make the changes that "+
			"the controller asks for")
	f.BoolVar(&o.status, "status", true, "show the node and its volumes as SplitFSNode and SplitFSVolume objects")
	f.DurationVar(&o.statusInterval, "status-interval", 30*time.Second,
		"how often the node is looked at for --status, besides after CSI calls")
	f.DurationVar(&o.statusHeartbeat, "status-heartbeat", 5*time.Minute,
		"how often the SplitFSNode is written when nothing changes")
	f.BoolVar(&o.module, "module", false, "load the kernel module ext4_splitfs, and use it for ext4 volumes")
	f.StringSliceVar(&o.moduleDirs, "module-dir", nil, moduleDirHelp)
	f.DurationVar(&o.watchInterval, "watch-interval", 30*time.Second,
		"how often library, logs, processes of pods and kernel module are looked after")
	f.StringSliceVar(&o.runtimeSockets, "runtime-socket", cri.DefaultSockets,
		"where the node's container runtime may listen; it is asked what images preload by themselves; empty: nobody is")
	f.BoolVar(&o.requireLibrary, "require-library", true,
		"show a volume to a pod only when the pod has the library, where the mode promises more than a kernel "+
			"file system gives")
	addClusterFlags(f, &o.exempt, &o.kubeconfig)
	return cmd
}

// complete fills in what follows from other flags and refuses what cannot work.
func (o *nodeOptions) complete() error {
	if o.nodeName == "" {
		return errors.New("the node has no name; set --node-name or NODE_NAME")
	}
	if o.endpoint == "" {
		o.endpoint = "unix://" + filepath.Join(o.kubeletDir, "plugins", contract.Driver, "csi.sock")
	}
	if o.devices.emulatedDir == "" {
		o.devices.emulatedDir = filepath.Join(o.dataDir, "emulated")
	}
	if err := o.devices.complete(); err != nil {
		return err
	}
	if o.moduleDirs == nil {
		o.moduleDirs = moduleDirs(o.dataDir)
	}
	if o.watchInterval <= 0 {
		return fmt.Errorf("--watch-interval is %s; it must be more than 0", o.watchInterval)
	}
	if o.status && (o.statusInterval <= 0 || o.statusHeartbeat < o.statusInterval) {
		return fmt.Errorf("--status-interval is %s and --status-heartbeat is %s; the first must be more than 0, the second "+
			"not less than the first",
			o.statusInterval, o.statusHeartbeat)
	}
	if o.poolFillPercent < 1 || o.poolFillPercent > 100 {
		return fmt.Errorf("--pool-fill-percent is %d; it must be from 1 to 100", o.poolFillPercent)
	}
	if o.inspectEndpoint != "" {
		if err := inspect.CheckEndpoint(o.inspectEndpoint); err != nil {
			return fmt.Errorf("--inspect-endpoint: %w", err)
		}
	}
	if o.freezeLimit <= 0 {
		return fmt.Errorf("--freeze-limit is %v; it must be more than 0", o.freezeLimit)
	}
	if o.maxVolumes < 1 {
		return fmt.Errorf("--max-volumes is %d; it must be at least 1", o.maxVolumes)
	}
	for _, dir := range []string{o.kubeletDir, o.dataDir, o.devices.emulatedDir} {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("directory %q is not an absolute path", dir)
		}
	}
	return nil
}

func runNode(ctx context.Context, o nodeOptions) error {
	logger := klog.FromContext(ctx).WithValues("node", o.nodeName)
	ctx = klog.NewContext(ctx, logger)
	logger.Info("Starting", "driver", contract.Driver, "version", driverinfo.Version, "endpoint", o.endpoint)

	cluster, err := newCluster(ctx, o)
	if err != nil {
		return err
	}
	recorder := cluster.recorder
	modules, err := newModules(o, recorder)
	if err != nil {
		return err
	}
	n, err := newNode(ctx, o, cluster, modules)
	if err != nil {
		return err
	}
	defer n.Shutdown()

	socket, err := server.SocketPath(o.endpoint)
	if err != nil {
		return err
	}
	csiMetrics := csimetrics.NewCSIMetricsManagerForPlugin(contract.Driver)
	registry := prometheus.NewRegistry()
	runtime := cri.New(nodeRoot, o.runtimeSockets)
	defer runtime.Close() //nolint:errcheck // nothing was written
	verifier := attach.New(newVerifierConfig(o, n, recorder, runtime))
	registry.MustRegister(metrics.NewCollector(logger, n), metrics.NewModuleCollector(modules), verifier)
	csiMetrics.WithAdditionalRegistry(registry)
	writer := newStatusWriter(o, cluster, n, modules)
	gate := server.NewGate(startPatience)
	interceptors := []grpc.UnaryServerInterceptor{gate.Interceptor}
	if writer != nil {
		registry.MustRegister(writer.Metrics()...)
		interceptors = append(interceptors, writer.Interceptor)
	}

	listener, err := server.Listen(socket)
	if err != nil {
		return err
	}
	// csi-provisioner and csi-snapshotter are containers without privileges.
	if err := selinux.Label(socket, selinux.ReadWrite); err != nil {
		return errors.Join(err, listener.Close())
	}
	grpcServer := server.NewGRPC(logger, csiMetrics, interceptors...)
	locks := &volume.Locks{}
	usable := server.NewWatchedCheck(n.Check, o.watchInterval, usableLimit)
	csi.RegisterIdentityServer(grpcServer, driver.Identity{Check: usable.Check, Groups: true})
	group, ctx := errgroup.WithContext(ctx)
	jobs := driver.NewJobs(ctx)
	defer jobs.Wait()
	csi.RegisterControllerServer(grpcServer, driver.NewController(n, locks, jobs))
	csi.RegisterGroupControllerServer(grpcServer, driver.NewGroupController(n, locks, jobs))
	csi.RegisterNodeServer(grpcServer, driver.NewNode(n, locks, jobs))

	// Sockets and probes come first. What takes long, or waits for others, keeps back only the calls that need it.
	group.Go(func() error { return server.Serve(ctx, grpcServer, listener) })
	ready := []server.Check{gate.Check}
	if o.register {
		registrar := registration.New(socket)
		registrationListener, err := server.Listen(registration.SocketPath(o.kubeletDir))
		if err != nil {
			return err
		}
		group.Go(func() error { return registrar.Serve(ctx, registrationListener) })
		ready = append(ready, registrar.Check)
	}
	if o.httpEndpoint != "" {
		prober := &server.Prober{Endpoint: o.endpoint}
		mux := server.NewMux([]server.Check{prober.Alive}, append(ready, prober.Probe), csiMetrics)
		group.Go(func() error { return errors.Join(server.ServeHTTP(ctx, o.httpEndpoint, mux), prober.Close()) })
	}
	if o.inspectEndpoint != "" {
		watcher := &watch.Watcher{Node: o.nodeName, Processes: verifier, Binary: o.binary, Directory: o.dataDir}
		handler := inspect.New(n, verifier).Handler(watcher)
		group.Go(func() error { return server.ServeHTTP(ctx, o.inspectEndpoint, handler) })
	}
	group.Go(func() error { usable.Run(ctx); return nil })
	group.Go(func() error {
		modules.Ensure(ctx) // before any volume is served: a mounted one keeps the ext4 it was mounted with
		if err := n.Resume(ctx); err != nil {
			return err
		}
		if err := jobs.Resume(n, locks); err != nil {
			logger.Error(err, "Some copies may not be gone on with")
		}
		gate.Open()
		group.Go(func() error { n.Watch(ctx, locks, o.watchInterval); return nil })
		group.Go(func() error { n.WatchUnserved(ctx); return nil })
		group.Go(func() error { n.EraseDeleted(ctx, locks); return nil })
		group.Go(func() error { verifier.Run(ctx, o.watchInterval); return nil })
		group.Go(func() error { modules.Run(ctx, o.watchInterval); return nil })
		if writer != nil {
			group.Go(func() error { writer.Run(ctx); return nil })
		}
		if o.events {
			worker, err := modify.NewWorker(cluster.client, n, locks)
			if err != nil {
				return err
			}
			group.Go(func() error { worker.Run(ctx); return nil })
		}
		o.devices.tellOthers(ctx, o.nodeName, recorder)
		return nil
	})
	return group.Wait()
}

const (
	// startPatience is how long a call waits for a service that is starting.
	startPatience = 30 * time.Second
	// usableLimit is how long a look at the node's devices for Probe may take.
	usableLimit = 2 * time.Minute
)

// nodeRoot is the node's root directory, as a container sees it that shares the node's process IDs.
const nodeRoot = "/proc/1/root"

func newVerifierConfig(o nodeOptions, n *node.Node, recorder events.Recorder, runtime *cri.Client) attach.Config {
	config := attach.Config{Source: n, Events: recorder, Proc: "/proc", Library: contract.LibraryPath}
	if len(o.runtimeSockets) > 0 {
		config.Images = runtime
	}
	return config
}

// newStatusWriter returns nil when nobody wants the objects.
func newStatusWriter(o nodeOptions, cluster cluster, n *node.Node, modules *module.Manager) *status.Writer {
	if cluster.objects == nil {
		return nil
	}
	return status.NewWriter(status.Config{
		NodeName: o.nodeName, Node: n, Module: modules, Cluster: cluster.objects, Interval: o.statusInterval,
		Heartbeat: o.statusHeartbeat,
	})
}

// newModules builds the manager of the kernel module, which tells the node's readers what becomes of it.
func newModules(o nodeOptions, recorder events.Recorder) (*module.Manager, error) {
	kernel, err := module.Running()
	if err != nil {
		return nil, err
	}
	return module.NewManager(module.Config{
		Enabled: o.module, Dirs: o.moduleDirs, StateDir: moduleStateDir(o.dataDir), Kernel: kernel,
		OnChange: func(ctx context.Context, before, now module.Status) {
			if before.State == module.Pending && now.State == module.NotConfigured {
				return // how most nodes start
			}
			recorder.OnNode(ctx, o.nodeName, now.Trouble(), events.ReasonModule+string(now.State),
				fmt.Sprintf("kernel module %s on kernel %s: %s", module.Name, now.Release, now.Message))
		},
	})
}

// newNode builds the node's core.
func newNode(ctx context.Context, o nodeOptions, cluster cluster, modules *module.Manager) (*node.Node, error) {
	cli := splitfs.CLI{Binary: o.binary, FillPercent: o.poolFillPercent, FillLock: filepath.Join(o.dataDir, "fill.lock")}
	managers, err := o.devices.managers(o.nodeName, cluster.recorder, cli.Memory)
	if err != nil {
		return nil, err
	}
	return node.New(ctx, node.Config{
		Name:      o.nodeName,
		StateDir:  filepath.Join(o.dataDir, "volumes"),
		InjectDir: filepath.Join(o.dataDir, "inject"),
		AgentsDir: agentsDir(o.dataDir), AgentsSocket: o.agentsSocket,
		Library:    o.library,
		CLI:        cli,
		Pool:       int64(o.poolBytes),
		LogReserve: int64(o.logReserve),
		MaxVolumes: o.maxVolumes, FreezeLimit: o.freezeLimit,
		Managers: managers,
		Events:   cluster.recorder,
		Claims:   cluster.claims,
		Promises: cluster.promises,
		Pods:     cluster.pods,
		Module:   modules,
		Owner:    attach.Owner("/proc"),
	})
}
