// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/api/v1alpha1"
	"splitfs.io/splitfs/csi-driver/internal/coverage"
	"splitfs.io/splitfs/csi-driver/internal/driverinfo"
)

const (
	// askedAtOnce is how many node services are asked at a time, askLimit how long one may take.
	askedAtOnce = 16
	askLimit    = 20 * time.Second
)

// nodeLabels select the pods of the node service.
var nodeLabels = client.MatchingLabels{"app.kubernetes.io/name": "splitfs", "app.kubernetes.io/component": "node"}

// asker reaches the node service in a pod.
type asker interface {
	Coverage(ctx context.Context, pod client.ObjectKey) (*coverage.Node, error)
	// Advice has the node service watch the processes of the pod with that UID.
	Advice(ctx context.Context, pod client.ObjectKey, uid string, seconds int) (*coverage.Advice, error)
	// Run runs a command in the node service's container and returns what it printed.
	Run(ctx context.Context, pod client.ObjectKey, command ...string) (stdout, stderr string, err error)
}

// cluster is a connection.
type cluster struct {
	client client.Client
	config *rest.Config
	nodes  asker
	// namespace is what -n says, or the context's; asked: by -n.
	namespace string
	asked     bool
	release   string
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}()

func connect(s *settings) (*cluster, error) {
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.UserAgent = "kubectl-splitfs/" + driverinfo.Version
	namespace, asked, err := s.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &cluster{
		client: c, config: config, nodes: newForwarder(config), namespace: namespace, asked: asked, release: s.release,
	}, nil
}

// explain adds to an error what to do about it.
func explain(err error) error {
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w: SplitFS is not installed in this cluster, or with status.enabled=false", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: docs/kubectl-splitfs.md says which rights the command needs; the chart's value "+
			"plugin.viewerRole makes roles with them", err)
	}
	return err
}

// nodePods are the running pods of the node service, by node.
func (c *cluster) nodePods(ctx context.Context) (map[string]client.ObjectKey, error) {
	var list corev1.PodList
	if err := c.client.List(ctx, &list, client.InNamespace(c.release), nodeLabels); err != nil {
		return nil, fmt.Errorf("list the node services in namespace %s: %w", c.release, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("no node service of SplitFS runs in namespace %s; --splitfs-namespace names another",
			c.release)
	}
	pods := map[string]client.ObjectKey{}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			pods[pod.Spec.NodeName] = client.ObjectKeyFromObject(pod)
		}
	}
	return pods, nil
}

// unanswered is a node that could not be asked.
type unanswered struct {
	Node string `json:"node"`
	Why  string `json:"why"`
	err  error
}

// coverageOf asks these node services, all at once. The answers are sorted by node.
func (c *cluster) coverageOf(ctx context.Context, pods map[string]client.ObjectKey) ([]*coverage.Node, []unanswered) {
	var (
		mu      sync.Mutex
		answers []*coverage.Node
		failed  []unanswered
		group   errgroup.Group
	)
	group.SetLimit(askedAtOnce)
	for node, pod := range pods {
		group.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, askLimit)
			defer cancel()
			answer, err := c.nodes.Coverage(limited, pod)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, unanswered{Node: node, Why: explain(err).Error(), err: err})
				return nil
			}
			answers = append(answers, answer)
			return nil
		})
	}
	group.Wait() //nolint:errcheck // errors are in failed
	slices.SortFunc(answers, func(a, b *coverage.Node) int { return cmp.Compare(a.Node, b.Node) })
	slices.SortFunc(failed, func(a, b unanswered) int { return cmp.Compare(a.Node, b.Node) })
	return answers, failed
}

// nodePod is that of one node.
func (c *cluster) nodePod(ctx context.Context, node string) (client.ObjectKey, error) {
	pods, err := c.nodePods(ctx)
	if err != nil {
		return client.ObjectKey{}, err
	}
	pod, ok := pods[node]
	if !ok {
		return client.ObjectKey{}, fmt.Errorf("node %s: no node service of SplitFS runs there", node)
	}
	return pod, nil
}

// coverageOn asks the node service of one node.
func (c *cluster) coverageOn(ctx context.Context, node string) (*coverage.Node, error) {
	pod, err := c.nodePod(ctx, node)
	if err != nil {
		return nil, err
	}
	answers, failed := c.coverageOf(ctx, map[string]client.ObjectKey{node: pod})
	if err := errOf(answers, failed); err != nil {
		return nil, err
	}
	return answers[0], nil
}

// errOf is an error when nobody has answered: then there is nothing to show.
func errOf(answers []*coverage.Node, failed []unanswered) error {
	if len(answers) > 0 || len(failed) == 0 {
		return nil
	}
	var errs []error
	for _, f := range failed {
		errs = append(errs, fmt.Errorf("ask the node service of node %s: %w", f.Node, f.err))
	}
	return errors.Join(errs...)
}
