// SPDX-License-Identifier: Apache-2.0

// Package app builds the splitfs-csi program out of its parts.
package app

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/driverinfo"
	"splitfs.io/splitfs/internal/contract"
)

// Main runs the program and returns its exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer klog.Flush()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		klog.Flush()
		fmt.Fprintln(os.Stderr, "splitfs-csi:", err)
		return 1
	}
	return 0
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "splitfs-csi",
		Short:         "CSI driver " + contract.Driver,
		Version:       driverinfo.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		// Sidecars and kubelet have no use for it, and it would add commands nobody documented.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	for _, name := range []string{"v", "vmodule"} {
		root.PersistentFlags().AddGoFlag(klogFlags.Lookup(name))
	}
	if err := root.PersistentFlags().Set("v", "2"); err != nil {
		panic(err) // a flag that was registered two lines above
	}
	root.PersistentFlags().Lookup("v").DefValue = "2"
	root.AddCommand(newNodeCommand(), newAgentsCommand(), newControllerCommand(), newDevicesCommand(), newModuleCommand())
	return root
}

// quantity is a flag that takes a Kubernetes quantity ("10Gi") and holds bytes.
type quantity int64

var _ pflag.Value = (*quantity)(nil)

func (q *quantity) String() string {
	return resource.NewQuantity(int64(*q), resource.BinarySI).String()
}
func (q *quantity) Type() string { return "quantity" }

func (q *quantity) Set(s string) error {
	parsed, err := resource.ParseQuantity(s)
	if err != nil {
		return err
	}
	if parsed.Sign() < 0 {
		return fmt.Errorf("%q is negative", s)
	}
	*q = quantity(parsed.Value())
	return nil
}

// kubeClient connects to the API server, with the pod's own credentials unless kubeconfig names others.
func kubeClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return client, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	load := rest.InClusterConfig
	if kubeconfig != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	config, err := load()
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	config.UserAgent = "splitfs-csi/" + driverinfo.Version
	config.Wrap(withDeadline)
	return config, nil
}
