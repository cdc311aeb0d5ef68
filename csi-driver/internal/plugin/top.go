// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
)

// topOptions are the flags of top.
type topOptions struct {
	output   output
	all      bool
	once     bool
	interval time.Duration
}

func newTopCommand(s *settings) *cobra.Command {
	o := topOptions{}
	cmd := &cobra.Command{
		Use:   "top [POD]",
		Short: "Show what pods and their processes do on volumes now",
		Long: "Shows reads and writes a second, how many of them the library served, fsyncs, relinks, checkpoints and the " +
			"use of staging pools, by pod and\n" +
			"process. A process without the library is listed when it has files of a volume open. On a terminal the table is " +
			"drawn again in its place until it\n" +
			"is interrupted. With -o json each table is one line.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			if o.interval < time.Second {
				return fmt.Errorf("--interval is %s; it must be at least 1s", o.interval)
			}
			c, err := s.connect(s)
			if err != nil {
				return err
			}
			t := &top{cluster: c, filter: filter{namespace: c.namespace}, options: o, screen: newScreen(s.streams.Out), out: s}
			if o.all {
				t.filter.namespace = ""
			}
			if len(arguments) > 0 {
				t.filter.pod = arguments[0]
			}
			return t.run(cmd.Context())
		},
	}
	o.output.add(cmd)
	f := cmd.Flags()
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "pods of all namespaces")
	f.BoolVar(&o.once, "once", false, "end after the first table")
	f.DurationVar(&o.interval, "interval", 2*time.Second, "time from one look to the next")
	return cmd
}

// top looks again and again.
type top struct {
	cluster *cluster
	filter  filter
	options topOptions
	screen  *screen
	out     *settings
	// only is the node of the one pod that is looked at.
	only string
}

func (t *top) run(ctx context.Context) error {
	if t.filter.pod != "" {
		if t.options.all {
			return errors.New("a pod's name needs a namespace: -A cannot be used with it")
		}
		var pod corev1.Pod
		if err := t.cluster.client.Get(ctx, client.ObjectKey{Namespace: t.filter.namespace, Name: t.filter.pod},
			&pod); err != nil {
			return fmt.Errorf("get pod %s/%s: %w", t.filter.namespace, t.filter.pod, err)
		}
		if t.only = pod.Spec.NodeName; t.only == "" {
			return fmt.Errorf("pod %s/%s is not on a node yet; `kubectl splitfs why %s` may know more", t.filter.namespace,
				t.filter.pod, t.filter.pod)
		}
	}
	before, _, err := t.look(ctx)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil // interrupted by who has seen enough
		case <-time.After(t.options.interval):
		}
		after, failed, err := t.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.show(compare(before, after, failed, t.filter)); err != nil {
			return err
		}
		if t.options.once {
			return nil
		}
		before = after
	}
}

func (t *top) show(table *topTable) error {
	if !t.options.output.json() {
		return t.screen.draw(table.lines)
	}
	return json.NewEncoder(t.out.streams.Out).Encode(table)
}

func (t *top) look(ctx context.Context) ([]*coverage.Node, []unanswered, error) {
	if t.only != "" {
		answer, err := t.cluster.coverageOn(ctx, t.only)
		if err != nil {
			return nil, nil, err
		}
		return []*coverage.Node{answer}, nil, nil
	}
	pods, err := t.cluster.nodePods(ctx)
	if err != nil {
		return nil, nil, err
	}
	answers, failed := t.cluster.coverageOf(ctx, pods)
	return answers, failed, errOf(answers, failed)
}
