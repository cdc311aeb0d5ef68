// SPDX-License-Identifier: Apache-2.0

// Command scale measures what a large cluster costs: a real API server, scheduler and controller manager, the real
// controller, injector and status writers, and nodes that are objects only. hack/scale runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"k8s.io/klog/v2"
)

type options struct {
	nodes       int
	steps       []int
	sample      int
	rate        float64
	kubernetes  string
	etcd        string
	controller  string
	injector    string
	objects     string
	dir         string
	idle        time.Duration
	concurrency int
}

func main() {
	var o options
	var steps string
	flag.IntVar(&o.nodes, "nodes", 1000, "simulated nodes")
	flag.StringVar(&steps, "steps", "100,1000,10000", "numbers of volumes at which is measured, separated by commas")
	flag.IntVar(&o.sample, "sample", 50,
		"volumes that are provisioned one after another, and measured, at the end of each step")
	flag.Float64Var(&o.rate, "rate", 0.5, "volumes a second while measuring")
	flag.IntVar(&o.concurrency, "concurrency", 32, "requests at a time while filling up")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "how long an idle cluster is watched after each step")
	flag.StringVar(&o.kubernetes, "kubernetes", "",
		"directory of kube-apiserver, kube-controller-manager and kube-scheduler")
	flag.StringVar(&o.etcd, "etcd", "", "directory of etcd")
	flag.StringVar(&o.controller, "controller", "", "the program splitfs-csi")
	flag.StringVar(&o.injector, "injector", "", "the program splitfs-injector")
	flag.StringVar(&o.objects, "objects", "", "file with the chart's objects")
	flag.StringVar(&o.dir, "dir", "", "directory for logs and certificates")
	flag.Parse()
	klog.SetOutput(os.Stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.parse(steps); err == nil {
		err = run(ctx, o)
		if err != nil {
			fmt.Fprintln(os.Stderr, "scale:", err)
			os.Exit(1)
		}
	} else {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(2)
	}
}

func (o *options) parse(steps string) error {
	for text := range strings.SplitSeq(steps, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < o.sample {
			return fmt.Errorf("--steps: %q is not a number of at least %d volumes (--sample)", text, o.sample)
		}
		o.steps = append(o.steps, n)
	}
	if !slices.IsSorted(o.steps) {
		return fmt.Errorf("--steps %s: the numbers must grow", steps)
	}
	if o.nodes < 1 || o.sample < 1 || o.rate <= 0 || o.concurrency < 1 {
		return fmt.Errorf("--nodes, --sample, --rate and --concurrency must be positive")
	}
	if last := o.steps[len(o.steps)-1]; last > o.nodes*volumesPerNode {
		return fmt.Errorf("%d nodes hold at most %d volumes", o.nodes, o.nodes*volumesPerNode)
	}
	return nil
}

func run(ctx context.Context, o options) (err error) {
	started := time.Now()
	say := func(format string, a ...any) {
		fmt.Fprintf(os.Stderr, "[%4.0f s] %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, a...))
	}
	ctx, cancel := context.WithCancel(ctx)
	c, err := startCluster(ctx, o)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel() // the API server waits for its clients when it ends
		if stopErr := c.stop(); err == nil {
			err = stopErr
		}
	}()
	say("API server, scheduler, controller manager, controller and injector are up")
	s, err := startNodes(ctx, c, o)
	if err != nil {
		return err
	}
	say("%d nodes, each with a status writer", o.nodes)
	var rows []row
	for _, step := range o.steps {
		if err := s.fill(ctx, step-o.sample); err != nil {
			return err
		}
		say("%d volumes", step-o.sample)
		r, err := s.measure(ctx, step)
		if err != nil {
			return err
		}
		say("%d volumes, measured: %+v", step, r)
		rows = append(rows, r)
	}
	print(o, rows)
	return nil
}

func print(o options, rows []row) {
	fmt.Printf("%d nodes; %d volumes provisioned at %g a second at each step\n\n", o.nodes, o.sample, o.rate)
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	line := func(what string, value func(row) string) {
		cells := append(make([]string, 0, 1+len(rows)), what)
		for _, r := range rows {
			cells = append(cells, value(r))
		}
		fmt.Fprintln(w, "| "+strings.Join(cells, "\t| ")+"\t|")
	}
	line("volumes", func(r row) string { return strconv.Itoa(r.volumes) })
	line("---", func(row) string { return "---" })
	for _, l := range []struct {
		what string
		of   func(row) latency
	}{
		{"claim made to node chosen (scheduler)", func(r row) latency { return r.selected }},
		{"node chosen to claim bound", func(r row) latency { return r.bound }},
		{"node chosen to SplitFSVolume there", func(r row) latency { return r.shown }},
	} {
		line(l.what+", median", func(r row) string { return millis(l.of(r).p50) })
		line("the same, 99th percentile", func(r row) string { return millis(l.of(r).p99) })
	}
	for _, who := range askers {
		line("requests per volume, "+who.String(), func(r row) string { return fmt.Sprintf("%.2f", r.requests[who]) })
	}
	line("requests per volume, everybody", func(r row) string { return fmt.Sprintf("%.1f", r.total) })
	for _, who := range askers {
		line("requests per minute when idle, "+who.String(), func(r row) string { return fmt.Sprintf("%.0f", r.idle[who]) })
	}
	for _, program := range []string{"controller", "injector", "kube-apiserver"} {
		line("memory of "+program, func(r row) string { return fmt.Sprintf("%d MiB", r.memory[program]>>20) })
	}
	_ = w.Flush() // to standard output, as the line before the table
}

func millis(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
