// SPDX-License-Identifier: Apache-2.0

// Package app is the command line of splitfs-injector.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"splitfs.io/splitfs/injector-webhook/internal/certs"
	"splitfs.io/splitfs/injector-webhook/internal/claims"
	"splitfs.io/splitfs/injector-webhook/internal/inject"
	"splitfs.io/splitfs/injector-webhook/internal/podhook"
	"splitfs.io/splitfs/internal/contract"
)

// Options are the flags of the program.
type Options struct {
	Namespace        string
	WebhookName      string
	ServiceName      string
	SecretName       string
	IssueCerts       bool
	ExtraDNSNames    []string
	ExemptNamespaces []string
	Host             string
	Port             int
	HealthAddress    string
	MetricsAddress   string
	LookupTimeout    time.Duration
	LibraryDelivery  string
}

// NewCommand builds the root command.
func NewCommand() *cobra.Command {
	o := &Options{}
	cmd := &cobra.Command{
		Use:   "splitfs-injector",
		Short: "Mutating webhook that gives pods with SplitFS volumes the preload library",
		Long: "splitfs-injector answers the API server's admission requests for pods. A container that mounts a volume of " +
			"the CSI driver\n" +
			"csi.splitfs.io gets the library, LD_PRELOAD and SPLITFS_CONFIG; everything else is left as it is.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			cluster, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("find the cluster: %w", err)
			}
			return o.Run(cmd.Context(), cluster)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("NAMESPACE"), "namespace of the release, default $NAMESPACE")
	flags.StringVar(&o.WebhookName, "webhook-name", "splitfs-injector",
		"name of the MutatingWebhookConfiguration whose caBundle is kept up to date")
	flags.StringVar(&o.ServiceName, "service-name", "splitfs-injector", "name of the Service the API server calls")
	flags.StringVar(&o.SecretName, "secret-name", "splitfs-injector-certs",
		"name of the Secret that holds the certificates; it must exist, it may be empty")
	flags.BoolVar(&o.IssueCerts, "issue-certificates", true,
		"issue and renew the certificates in the Secret and keep the caBundle right; false: cert-manager or "+
			"somebody else does")
	flags.StringSliceVar(&o.ExtraDNSNames, "extra-dns-name", nil, "further name in the server's certificate")
	flags.StringSliceVar(&o.ExemptNamespaces, "exempt-namespace", []string{metav1.NamespaceSystem},
		"namespace whose pods are never touched; the release's own is always one of them")
	flags.StringVar(&o.Host, "host", "", "address the webhook listens on, default all")
	flags.IntVar(&o.Port, "port", 9443, "port the webhook listens on")
	flags.StringVar(&o.HealthAddress, "health-address", ":8081", "address of /healthz and /readyz")
	flags.StringVar(&o.MetricsAddress, "metrics-address", ":8080", "address of /metrics, 0 turns it off")
	flags.DurationVar(&o.LookupTimeout, "lookup-timeout", 3*time.Second,
		"time for reading claims and classes of one pod; must be shorter than the webhook's timeoutSeconds")
	flags.StringVar(&o.LibraryDelivery, "library-delivery", string(inject.CSI),
		"volume that brings the library into a pod: csi (an inline volume) or ephemeral (a generic ephemeral "+
			"volume of class "+contract.LibraryClass+", for clusters that forbid inline volumes)")
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	if err := klogFlags.Set("v", "2"); err != nil {
		panic(err) // the flag "v" is klog's own
	}
	flags.AddGoFlag(klogFlags.Lookup("v"))
	// controller-runtime defines --kubeconfig among the global flags, for a run outside a cluster.
	flags.AddGoFlag(flag.CommandLine.Lookup(config.KubeconfigFlagName))
	return cmd
}

func (o *Options) validate() error {
	for flag, value := range map[string]string{
		"namespace": o.Namespace, "webhook-name": o.WebhookName, "service-name": o.ServiceName, "secret-name": o.SecretName,
	} {
		if value == "" {
			return fmt.Errorf("--%s must not be empty", flag)
		}
	}
	if o.LookupTimeout <= 0 {
		return errors.New("--lookup-timeout must be positive")
	}
	if _, err := inject.ParseDelivery(o.LibraryDelivery); err != nil {
		return fmt.Errorf("--library-delivery: %w", err)
	}
	return nil
}

// Main runs the program and returns its exit status.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	logger := klog.NewKlogr()
	ctrl.SetLogger(logger)
	if err := NewCommand().ExecuteContext(klog.NewContext(ctx, logger)); err != nil {
		fmt.Fprintf(os.Stderr, "splitfs-injector: %v\n", err)
		return 1
	}
	return 0
}

// Run serves until the context ends.
func (o *Options) Run(ctx context.Context, cluster *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fmt.Errorf("build scheme: %w", err)
	}
	// The server asks for its certificate at each handshake; the source exists only once the manager does.
	var source *certs.Source
	server := webhook.NewServer(webhook.Options{Host: o.Host, Port: o.Port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS12
			c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return source.GetCertificate(hello) }
		}}})
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme:                 scheme,
		Logger:                 klog.FromContext(ctx),
		WebhookServer:          server,
		HealthProbeBindAddress: o.HealthAddress,
		Metrics:                metricsserver.Options{BindAddress: o.MetricsAddress},
		LeaderElection:         false, // all replicas serve
		Cache:                  cache.Options{DefaultTransform: claims.Trim},
		Client:                 client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		return fmt.Errorf("create manager: %w", err)
	}
	source, err = certs.Add(mgr, certs.Options{
		Secret:        types.NamespacedName{Namespace: o.Namespace, Name: o.SecretName},
		Issue:         o.IssueCerts,
		WebhookName:   o.WebhookName,
		DNSName:       o.ServiceName + "." + o.Namespace + ".svc",
		ExtraDNSNames: o.ExtraDNSNames,
	})
	if err != nil {
		return err
	}
	if err := o.addWebhook(ctx, mgr); err != nil {
		return err
	}
	if err := addProbes(mgr, source); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

func (o *Options) addWebhook(ctx context.Context, mgr manager.Manager) error {
	// Asking for the informers now starts them with the manager, not at the first pod.
	for _, object := range []client.Object{
		&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &storagev1.StorageClass{},
	} {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	if err := mgr.GetCache().IndexField(ctx, &corev1.PersistentVolume{}, claims.ReservedIndex,
		claims.ReservedFor); err != nil {
		return fmt.Errorf("index PersistentVolumes: %w", err)
	}
	counters, err := podhook.NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	mgr.GetWebhookServer().Register(podhook.Path, &admission.Webhook{Handler: &podhook.Handler{
		Claims:           &claims.Resolver{Cached: mgr.GetCache(), Live: mgr.GetAPIReader()},
		ExemptNamespaces: sets.New(o.ExemptNamespaces...).Insert(o.Namespace),
		Recorder:         mgr.GetEventRecorder("splitfs-injector"),
		Metrics:          counters,
		LookupTimeout:    o.LookupTimeout,
		Delivery:         inject.Delivery(o.LibraryDelivery), // validate has checked it
	}})
	return nil
}

func addProbes(mgr manager.Manager, source *certs.Source) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add health check: %w", err)
	}
	started := mgr.GetWebhookServer().StartedChecker()
	for name, check := range map[string]healthz.Checker{
		"server": func(req *http.Request) error {
			// Without a certificate the handshake of the second check fails, and the server logs each failure.
			if err := source.ReadyCheck(req); err != nil {
				return err
			}
			return started(req)
		},
		"caches": func(req *http.Request) error {
			ctx, cancel := context.WithTimeout(req.Context(), 100*time.Millisecond)
			defer cancel()
			if !mgr.GetCache().WaitForCacheSync(ctx) {
				return errors.New("caches are not synced yet")
			}
			return nil
		},
	} {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return fmt.Errorf("add ready check %s: %w", name, err)
		}
	}
	return nil
}
