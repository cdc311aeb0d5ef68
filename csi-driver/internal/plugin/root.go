// SPDX-License-Identifier: Apache-2.0

// Package plugin is the kubectl plugin: what a cluster's users and operators ask of SplitFS. It reads objects of the
// API server, asks node services through forwarded ports, and changes nothing but by the command recover.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"splitfs.io/splitfs/csi-driver/internal/driverinfo"
)

// errFound is the end of a command that has already shown what is wrong.
var errFound = errors.New("something is wrong")

// Main runs the program and returns its exit code: 0, or 1 when the command failed or has found something wrong.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	err := newRoot(newSettings(streams)).ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !errors.Is(err, errFound) {
		fmt.Fprintln(os.Stderr, "error:", explain(err))
	}
	return 1
}

// settings are what all commands share.
type settings struct {
	streams genericiooptions.IOStreams
	flags   *genericclioptions.ConfigFlags
	// release is the namespace of the release.
	release string
	// connect is replaced by tests, and now is their clock.
	connect func(s *settings) (*cluster, error)
	now     func() time.Time
}

func newSettings(streams genericiooptions.IOStreams) *settings {
	return &settings{
		streams: streams, flags: genericclioptions.NewConfigFlags(true), release: "splitfs-system", connect: connect,
		now: time.Now,
	}
}

func newRoot(s *settings) *cobra.Command {
	root := &cobra.Command{
		Use:     "kubectl-splitfs",
		Short:   "See and check SplitFS volumes",
		Version: driverinfo.Version,
		Long: "See which pods are served by SplitFS, how fast, and why others are not; check an installation.\n" +
			"docs/kubectl-splitfs.md says what each command reads and which rights it needs.",
		SilenceUsage: true, SilenceErrors: true,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl splitfs"},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	s.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&s.release, "splitfs-namespace", s.release, "namespace that SplitFS is installed in")
	root.SetOut(s.streams.Out)
	root.SetErr(s.streams.ErrOut)
	root.AddCommand(newStatusCommand(s), newTopCommand(s), newWhyCommand(s), newDoctorCommand(s), newRecoverCommand(s),
		newAdviseCommand(s))
	return root
}

// output is the flag -o.
type output string

func (o *output) add(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", "\"json\": print JSON instead of tables")
}

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

// Set implements pflag.Value.
func (o *output) Set(value string) error {
	if value != "json" {
		return fmt.Errorf("%q is not known; there is json, and without -o tables", value)
	}
	*o = output(value)
	return nil
}

func (o *output) json() bool { return *o == "json" }
