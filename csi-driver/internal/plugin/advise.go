// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
	"splitfs.io/splitfs/internal/contract"
)

func newAdviseCommand(s *settings) *cobra.Command {
	var o output
	seconds := 10
	cmd := &cobra.Command{
		Use:   "advise POD",
		Short: "Watch a running pod for a while and say whether SplitFS would help it; it needs no volume of SplitFS",
		Long: "Has the pod's node look at the processes of the pod in /proc for some seconds, without stopping or tracing " +
			"them, and says what of their reads and\n" +
			"writes goes to files of volumes, what the kernel would go on serving and why, which mode they need for what they " +
			"do, and about how much CPU time\n" +
			"that would save. What a program does is counted exactly by `splitfs advise -- COMMAND` where it can be started.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			if seconds < 1 || seconds > coverage.MaxWatchSeconds {
				return fmt.Errorf("--seconds must be from 1 to %d", coverage.MaxWatchSeconds)
			}
			c, err := s.connect(s)
			if err != nil {
				return err
			}
			name := client.ObjectKey{Namespace: c.namespace, Name: arguments[0]}
			advice, err := advisePod(cmd.Context(), c, name, seconds)
			if err != nil {
				return err
			}
			report := podAdvice{Namespace: name.Namespace, Pod: name.Name, Advice: advice, Processes: conclude(advice)}
			if o.json() {
				return printJSON(s.streams.Out, &report)
			}
			return report.print(s.streams.Out)
		},
	}
	o.add(cmd)
	cmd.Flags().IntVar(&seconds, "seconds", seconds, "how long the pod is watched")
	return cmd
}

// podAdvice is what is said of one pod.
type podAdvice struct {
	Namespace string           `json:"namespace"`
	Pod       string           `json:"pod"`
	Advice    *coverage.Advice `json:"watched"`
	// Processes are the conclusions, in the order of Advice.Processes.
	Processes []conclusion `json:"processes"`
}

// conclusion is what follows for one process.
type conclusion struct {
	PID int `json:"pid"`
	// Mode is the one that it needs for what it does; empty: nothing of it would be served.
	Mode contract.Mode `json:"mode,omitempty"`
	Why  string        `json:"why"`
	// Kernel says what the kernel would go on serving.
	Kernel []string `json:"kernel,omitempty"`
	// SavedPerSecond are milliseconds of CPU time per second, at most, by mode; nil: not known.
	SavedPerSecond map[string]float64 `json:"savedMillisecondsPerSecond,omitempty"`
}

func advisePod(ctx context.Context, c *cluster, name client.ObjectKey, seconds int) (*coverage.Advice, error) {
	var pod corev1.Pod
	if err := c.client.Get(ctx, name, &pod); err != nil {
		return nil, fmt.Errorf("get pod %s: %w", name, err)
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodRunning {
		return nil, fmt.Errorf("pod %s is not running (%s): there is nothing to watch", name, pod.Status.Phase)
	}
	service, err := c.nodePod(ctx, pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	advice, err := c.nodes.Advice(ctx, service, string(pod.UID), seconds)
	if err != nil {
		return nil, fmt.Errorf("ask the node service of node %s: %w", pod.Spec.NodeName, err)
	}
	return advice, nil
}

func conclude(advice *coverage.Advice) []conclusion {
	conclusions := make([]conclusion, 0, len(advice.Processes))
	for i := range advice.Processes {
		p := &advice.Processes[i]
		c := conclusion{PID: p.PID}
		c.decide(p)
		if c.Mode != "" && advice.Costs != nil {
			c.estimate(p, advice)
		}
		conclusions = append(conclusions, c)
	}
	return conclusions
}

// decide finds the mode, and what stays the kernel's.
func (c *conclusion) decide(p *coverage.Watched) {
	has := func(test func(f *coverage.WatchedFile) bool) bool {
		return slices.ContainsFunc(p.Files, func(f coverage.WatchedFile) bool { return test(&f) })
	}
	for _, f := range p.Files {
		switch {
		case f.Mapped:
			c.Kernel = append(c.Kernel, f.Path+": it is mapped")
		case f.Stream:
			c.Kernel = append(c.Kernel, f.Path+": it is a standard stream")
		}
	}
	switch {
	case p.State == coverage.StateLoaded:
		c.Why = "it has the library already; kubectl splitfs top and why show what is served"
	case p.State != "":
		c.Why = "the library can't be loaded: " + p.Cause
	case p.Ring:
		c.Why = "it has an io_uring, with which nothing is staged"
	case len(p.Files) == 0:
		c.Why = "it had no file of a volume open"
	case len(c.Kernel) == len(p.Files):
		c.Why = "all its files are such that the kernel would go on serving them"
	case has(func(f *coverage.WatchedFile) bool { return f.Sync }):
		c.Mode, c.Why = contract.Sync, "it opens files with O_SYNC or O_DSYNC"
	case forced(p)*10 > p.Looks:
		c.Mode, c.Why = contract.Sync, fmt.Sprintf("its threads waited for fsync in %s of the looks",
			share(forced(p), p.Looks))
	default:
		c.Mode, c.Why = contract.Posix, "it was seldom seen waiting for fsync, and opens no file with O_SYNC"
	}
}

func forced(p *coverage.Watched) int64 {
	return p.Waited["fsync"] + p.Waited["fdatasync"] + p.Waited["sync_file_range"]
}

// estimate takes all calls for calls on files, in the sizes that were measured: it can't be more than that.
func (c *conclusion) estimate(p *coverage.Watched, advice *coverage.Advice) {
	kernel := advice.Costs.CPUNs["kernel"]
	c.SavedPerSecond = map[string]float64{}
	for mode, costs := range advice.Costs.CPUNs {
		if mode == "kernel" {
			continue
		}
		ns := saved(kernel, costs, "read", p.Reads, p.ReadBytes) + saved(kernel, costs, "append", p.Writes, p.WrittenBytes)
		c.SavedPerSecond[mode] = max(0, ns/1e6/advice.Seconds)
	}
}

// costSizes are those of `splitfs advise --measure`.
var costSizes = []int64{64, 4096, 65536}

// saved is what so many calls would save, by the measured size next below theirs.
func saved(kernel, ours map[string]int64, kind string, calls, bytes int64) float64 {
	if calls == 0 {
		return 0
	}
	size := costSizes[0]
	for _, s := range costSizes {
		if bytes/calls >= s {
			size = s
		}
	}
	key := fmt.Sprintf("%s%d", kind, size)
	return float64(calls * (kernel[key] - ours[key]))
}

func (r *podAdvice) print(out io.Writer) error {
	p := newPrinter(out)
	a := r.Advice
	p.printf("Pod %s/%s, on node %s, watched for %.0f s\n", printable(r.Namespace), printable(r.Pod), printable(a.Node),
		a.Seconds)
	if a.Incomplete != "" {
		p.printf("Not all processes could be watched: %s\n", printable(a.Incomplete))
	}
	if len(a.Processes) == 0 {
		p.printf("No process of it lived all that time.\n")
	}
	for i := range a.Processes {
		r.printProcess(p, &a.Processes[i], &r.Processes[i])
	}
	switch {
	case a.CostsUnknown != "":
		p.printf("\nWhat calls cost on the node is not known, so no time is estimated: %s\n", printable(a.CostsUnknown))
	case a.Costs != nil:
		p.printf("\nTime is CPU time, from what calls cost in %s of the node (%s), as if all calls were on files: it "+
			"can't be more.\n",
			printable(a.Costs.Directory), emulatedText(a.Costs.Emulated))
	}
	return p.err
}

func emulatedText(emulated bool) string {
	if emulated {
		return "emulated, no persistent memory"
	}
	return "persistent memory"
}

func (r *podAdvice) printProcess(p *printer, w *coverage.Watched, c *conclusion) {
	p.printf("\n%s (%d)\n", printable(w.Command), w.PID)
	p.printf("  reads   %s/s, %s/s   of it from files of volumes %s/s or more\n", timesRate(w.Reads, r.Advice.Seconds),
		bytesRate(w.ReadBytes, r.Advice.Seconds), bytesRate(w.FileRead, r.Advice.Seconds))
	p.printf("  writes  %s/s, %s/s   of it to files of volumes %s/s or more\n", timesRate(w.Writes, r.Advice.Seconds),
		bytesRate(w.WrittenBytes, r.Advice.Seconds), bytesRate(w.FileWritten, r.Advice.Seconds))
	if n := forced(w); n > 0 {
		p.printf("  fsync   waited for in %s of the looks\n", share(n, w.Looks))
	}
	if c.Mode == "" {
		p.printf("  no      %s\n", printable(c.Why))
	} else {
		p.printf("  mode    %s: %s\n", c.Mode, printable(c.Why))
	}
	var times []string
	for _, mode := range contract.ModeNames() {
		if ms, ok := c.SavedPerSecond[mode]; ok {
			times = append(times, fmt.Sprintf("%s %.1f", mode, ms))
		}
	}
	if len(times) > 0 {
		p.printf("  saves   at most, in ms a second: %s\n", strings.Join(times, ", "))
	}
	for _, line := range c.Kernel {
		p.printf("  kernel  %s\n", printable(line))
	}
}
