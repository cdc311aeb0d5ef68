// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/module"
)

const (
	defaultDataDir = "/var/lib/splitfs"
	moduleDirHelp  = "directory with modules, one directory per kernel release in it; may be repeated, the first that " +
		"has one wins (default <data-dir>/modules, then /opt/splitfs/modules)"
	tolerantHelp = "exit with 0 after a failure too, and leave it to the node service to report it"
	dataDirHelp  = "directory for the driver's state on the node"
)

// moduleDirs are where modules are looked for: what was built or copied on this node, then what an image brought.
func moduleDirs(dataDir string) []string {
	return []string{filepath.Join(dataDir, "modules"), "/opt/splitfs/modules"}
}

func moduleStateDir(dataDir string) string { return filepath.Join(dataDir, "module") }

func newModuleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "module",
		Short: "Look at, build, load and unload the kernel module " + module.Name,
		Long: "The node service does what is needed by itself. These commands are for operators, and for the init " +
			"containers that\n" +
			"build or copy a module. Run them on the node or in the node service's container. docs/module.md says more.",
	}
	cmd.AddCommand(newModuleStatusCommand(), newModuleLoadCommand(), newModuleUnloadCommand(), newModuleBuildCommand(),
		newModuleCopyCommand())
	return cmd
}

// moduleOptions are the flags that several of the commands share.
type moduleOptions struct {
	dataDir string
	dirs    []string
	release string
}

func (o *moduleOptions) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.dataDir, "data-dir", defaultDataDir, dataDirHelp)
	cmd.Flags().StringSliceVar(&o.dirs, "module-dir", nil, moduleDirHelp)
}

func (o *moduleOptions) manager() (*module.Manager, error) {
	kernel, err := module.Running()
	if err != nil {
		return nil, err
	}
	if o.dirs == nil {
		o.dirs = moduleDirs(o.dataDir)
	}
	return module.NewManager(module.Config{
		Enabled: true, Dirs: o.dirs, StateDir: moduleStateDir(o.dataDir), Kernel: kernel,
	})
}

// addRelease adds --release, whose default is the running kernel's.
func (o *moduleOptions) addRelease(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.release, "release", "", "kernel release (default: the running kernel's)")
}

func (o *moduleOptions) completeRelease() error {
	if o.release != "" {
		return nil
	}
	kernel, err := module.Running()
	o.release = kernel.Release
	return err
}

func newModuleStatusCommand() *cobra.Command {
	var o moduleOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say what the module's state is on this node, and why; changes nothing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := o.manager()
			if err != nil {
				return err
			}
			report, err := m.Inspect(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(report)
			}
			return printReport(cmd.OutOrStdout(), report)
		},
	}
	o.addTo(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func printReport(out io.Writer, r module.Report) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	row := func(name string, value any) {
		if value != "" {
			fmt.Fprintf(table, "%s\t%v\n", name, value)
		}
	}
	row("state", r.State)
	row("why", string(r.Why))
	row("message", r.Message)
	row("kernel", r.Release)
	row("module", r.Path)
	row("version", r.Version)
	row("signed", r.Signed)
	row("loaded", r.Loaded)
	row("users", r.Users)
	row("lockdown", r.Lockdown)
	row("secure boot", r.SecureBoot)
	row("signatures enforced", r.Enforced)
	for _, fsType := range []string{"ext4", "xfs"} {
		row("provider of "+fsType, r.Providers[fsType])
	}
	return table.Flush()
}

func newModuleLoadCommand() *cobra.Command {
	var o moduleOptions
	var again bool
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Check, load and try the module for the running kernel, as the node service does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := o.manager()
			if err != nil {
				return err
			}
			if again {
				if err := m.Again(); err != nil {
					return err
				}
			}
			s := m.Ensure(cmd.Context())
			if s.State != module.Ready {
				return fmt.Errorf("%s: %s", s.State, s.Message)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", s.State, s.Message)
			return err
		},
	}
	o.addTo(cmd)
	cmd.Flags().BoolVar(&again, "again", false, "also when the machine went down while this module was loaded last")
	return cmd
}

func newModuleUnloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unload",
		Short: "Remove the module from the kernel; refused while a file system uses it",
		Long: "Remove the module from the kernel. Refused while a file system uses it. The node service never does " +
			"this by itself,\n" +
			"and loads the module again when it is enabled: disable it first (module.enabled=false).",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			kernel, err := module.Running()
			if err != nil {
				return err
			}
			if err := module.Unload(kernel); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "module %s is unloaded\n", module.Name)
			return err
		},
	}
}

func newModuleBuildCommand() *cobra.Command {
	var o moduleOptions
	var build module.BuildConfig
	var timeout time.Duration
	var tolerant bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the module for a kernel release, unless that was done",
		Long: "Build the module for a kernel release with kernel-patch/build and put it where the node service " +
			"looks for it.\n" +
			"Nothing is done when it was built from the same sources with the same key before.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.completeRelease(); err != nil {
				return err
			}
			build.Release = o.release
			if build.Out == "" {
				build.Out = moduleDirs(o.dataDir)[0]
			}
			err := runBuild(cmd, build, timeout)
			if err != nil && tolerant {
				// The node service reports it. Volumes must be served with what the kernel has itself.
				klog.FromContext(cmd.Context()).Error(err, "The module was not built")
				return nil
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", defaultDataDir, dataDirHelp)
	o.addRelease(cmd)
	f.StringVar(&build.Script, "script", "/opt/splitfs/kernel-patch/build",
		"the program that builds it: build of the kernel-patch directory")
	f.StringVar(&build.HostRoot, "host-root", "",
		"in a container: where /usr/src, /usr/lib and /lib/modules of the node are mounted")
	f.StringVar(&build.Headers, "headers", "", "kernel headers (default: what the script finds)")
	f.StringVar(&build.Source, "source", "", "kernel source, a directory or an archive (default: what the script finds)")
	f.BoolVar(&build.Offline, "offline", false, "fetch nothing")
	f.StringVar(&build.SignKey, "sign-key", "", "sign with this private key (PEM)")
	f.StringVar(&build.SignCert, "sign-cert", "", "and this certificate")
	f.StringVar(&build.Out, "out", "", "directory of modules (default <data-dir>/modules)")
	f.BoolVar(&build.Again, "again", false, "also when it was built before")
	f.DurationVar(&timeout, "timeout", 30*time.Minute, "give up after this long")
	f.BoolVar(&tolerant, "tolerant", false, tolerantHelp)
	return cmd
}

func runBuild(cmd *cobra.Command, build module.BuildConfig, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	built, err := module.Build(ctx, build)
	if err != nil {
		return err
	}
	what := "was built before; nothing to do"
	if built {
		what = "built"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "module for kernel %s in %s: %s\n", build.Release, build.Out, what)
	return err
}

func newModuleCopyCommand() *cobra.Command {
	var o moduleOptions
	var from, to string
	var tolerant bool
	cmd := &cobra.Command{
		Use:   "copy",
		Short: "Copy the module for a kernel release out of an image into the node's directory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.completeRelease(); err != nil {
				return err
			}
			if from == "" {
				return errors.New("--from names no directory of modules")
			}
			if to == "" {
				to = moduleDirs(o.dataDir)[0]
			}
			found, err := module.Copy(from, to, o.release)
			if err != nil && tolerant {
				klog.FromContext(cmd.Context()).Error(err, "The module of this image is not used")
				return nil
			}
			if err != nil {
				return err
			}
			what := "copied"
			if !found {
				what = "there is none in " + from
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "module for kernel %s: %s\n", o.release, what)
			return err
		},
	}
	cmd.Flags().StringVar(&o.dataDir, "data-dir", defaultDataDir, dataDirHelp)
	o.addRelease(cmd)
	cmd.Flags().StringVar(&from, "from", "/opt/splitfs/modules", "directory of modules in the image")
	cmd.Flags().BoolVar(&tolerant, "tolerant", false, tolerantHelp)
	cmd.Flags().StringVar(&to, "to", "", "directory of modules on the node (default <data-dir>/modules)")
	return cmd
}
