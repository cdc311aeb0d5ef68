// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/node"
	"splitfs.io/splitfs/csi-driver/internal/promise"
	"splitfs.io/splitfs/csi-driver/internal/status"
)

// What a node service may ask of the API server, in requests per second: twice what client-go allows by default, so
// that a pod that waits to be told whether it has the library does not wait for events. The status objects have a limit
// of their own.
const requestsPerSecond, requestsBurst = 2 * rest.DefaultQPS, 2 * rest.DefaultBurst

// cluster is what a node has of its cluster, over one connection: whatever the flags do not want is nil.
type cluster struct {
	client   kubernetes.Interface
	recorder events.Recorder
	claims   node.Claims
	promises node.Promises
	pods     node.Pods
	objects  *status.Cluster
}

// addClusterFlags adds what all services of a cluster are told alike.
func addClusterFlags(f *pflag.FlagSet, exempt *[]string, kubeconfig *string) {
	f.StringSliceVar(exempt, "exempt-namespace", nil,
		"namespace whose pods may do without the library; may be repeated")
	f.StringVar(kubeconfig, "kubeconfig", "", "kubeconfig file, for a run outside the cluster")
}

func newCluster(ctx context.Context, o nodeOptions) (c cluster, err error) {
	c.recorder = events.Discard{}
	if !o.events && !o.requireLibrary && !o.status {
		return c, nil
	}
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return cluster{}, fmt.Errorf("%w (--events=false --require-library=false --status=false runs without)", err)
	}
	config.QPS, config.Burst = requestsPerSecond, requestsBurst
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return cluster{}, fmt.Errorf("connect to the API server: %w", err)
	}
	if o.events {
		c.recorder = events.NewCluster(ctx, c.client, "splitfs-csi-node", o.nodeName)
		c.claims = clusterClaims{c.client}
	}
	checker := promise.NewChecker(c.client, o.exempt)
	c.pods = checker
	if o.requireLibrary {
		c.promises = checker
	}
	if o.status {
		if c.objects, err = status.NewCluster(config); err != nil {
			return cluster{}, err
		}
	}
	return c, nil
}
