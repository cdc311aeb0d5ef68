// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"splitfs.io/splitfs/csi-driver/internal/blank"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/pmemcsi"
	"splitfs.io/splitfs/csi-driver/internal/splitfs"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// regionReport is what `splitfs-csi devices` says of a region.
type regionReport struct {
	Region        string            `json:"region"`
	Memory        volume.Memory     `json:"memory"`
	Provider      string            `json:"provider"`
	InterleaveSet string            `json:"interleaveSet,omitempty"`
	Size          int64             `json:"size"`
	LargestRoom   int64             `json:"largestRoom"`
	Selected      bool              `json:"selected"`
	Note          string            `json:"note,omitempty"`
	Namespaces    []namespaceReport `json:"namespaces"`
}

type namespaceReport struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name,omitempty"`
	Mode      string   `json:"mode"`
	Size      int64    `json:"size"`
	Device    string   `json:"device,omitempty"`
	Owner     string   `json:"owner"`
	Holds     []string `json:"holds,omitempty"`
}

// Owners of a namespace, by its name. What is on one without a name tells nothing about who may touch it.
// defaultBinary is where the image has the splitfs program.
const defaultBinary = "/usr/local/bin/splitfs"

const (
	ownerSplitFS = "splitfs"
	ownerPMEMCSI = "pmem-csi"
	ownerOther   = "other"
)

func newDevicesCommand() *cobra.Command {
	var regions []string
	var asJSON bool
	var binary string
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show the persistent memory of this node, and whose it is",
		Long: "Shows regions and namespaces and changes nothing. Run it on the node or in the node service's container.\n" +
			"docs/devices.md says how to give regions to the driver, docs/migrate-pmem-csi.md what to do with " +
			"volumes of pmem-csi.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			selector, err := nvdimm.ParseSelector(regions)
			if err != nil {
				return fmt.Errorf("--regions: %w", err)
			}
			inventory, err := (&nvdimm.Tool{Memory: splitfs.CLI{Binary: binary}.Memory}).List(cmd.Context())
			if err != nil {
				return err
			}
			reports := []regionReport{}
			for _, region := range inventory.Regions() {
				reports = append(reports, reportRegion(cmd.Context(), region, selector))
			}
			if asJSON {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(reports)
			}
			return printRegions(cmd.OutOrStdout(), reports, pmemcsi.Find(inventory))
		},
	}
	cmd.Flags().StringSliceVar(&regions, "regions", nil,
		"regions that the node service is given, as its own flag of that name")
	cmd.Flags().StringVar(&binary, "splitfs-binary", defaultBinary,
		"the splitfs program, which knows what the regions' memory is")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func reportRegion(ctx context.Context, region nvdimm.Region, selector nvdimm.Selector) regionReport {
	r := regionReport{
		Region: region.Dev, Memory: region.Memory, Provider: region.Provider, InterleaveSet: string(region.ISetID),
		Size:        int64(region.Size),
		LargestRoom: region.LargestRoom(), Selected: selector.Selects(region), Namespaces: []namespaceReport{},
	}
	if err := region.Unfit(); err != nil {
		r.Note = "never used: " + err.Error()
	} else if !region.Labeled() {
		r.Note = "no labels: it is one namespace that nobody can mark; usable for lvm only, once it has mode " +
			"fsdax and is blank"
	}
	for _, ns := range region.Used() {
		n := namespaceReport{Namespace: ns.Dev, Name: ns.Name, Mode: ns.Mode, Size: int64(ns.Size), Owner: owner(ns)}
		if !ns.Enabled() {
			n.Mode = "disabled" // what is in it shows only when it is enabled
		}
		if ns.BlockDev != "" {
			n.Device = "/dev/" + ns.BlockDev
			var err error
			if n.Holds, err = blank.Signatures(ctx, n.Device); err != nil {
				n.Holds = []string{err.Error()}
			}
		}
		r.Namespaces = append(r.Namespaces, n)
	}
	return r
}

func owner(ns nvdimm.Namespace) string {
	switch {
	case nvdimm.Own(ns.Name):
		return ownerSplitFS
	case ns.Name == pmemcsi.NamespaceName || pmemcsi.IsVolume(ns.Name):
		return ownerPMEMCSI
	}
	return ownerOther
}

func printRegions(out io.Writer, reports []regionReport, findings []pmemcsi.Finding) error {
	if len(reports) == 0 {
		_, err := fmt.Fprintln(out, "The kernel shows no persistent memory on this node.")
		return err
	}
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "REGION\tINTERLEAVE SET\tPROVIDER\tMEMORY\tSIZE MiB\tLARGEST ROOM MiB\tGIVEN TO THE DRIVER")
	for _, r := range reports {
		set := r.InterleaveSet
		if set == "" {
			set = "(no labels)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\t%t\n", r.Region, set, r.Provider, r.Memory, r.Size>>20, r.LargestRoom>>20,
			r.Selected)
	}
	fmt.Fprintln(table, "\t\t\t\t\t\t")
	fmt.Fprintln(table, "NAMESPACE\tNAME\tMODE\tSIZE MiB\tOWNER\tHOLDS")
	for _, r := range reports {
		for _, n := range r.Namespaces {
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%v\n", n.Namespace, n.Name, n.Mode, n.Size>>20, n.Owner, n.Holds)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range reports {
		if r.Note == "" {
			continue
		}
		if _, err := fmt.Fprintf(out, "%s: %s\n", r.Region, r.Note); err != nil {
			return err
		}
	}
	for _, f := range findings {
		if _, err := fmt.Fprintf(out,
			"pmem-csi: %s; it is left alone. docs/migrate-pmem-csi.md says how to bring its data over\n", f); err != nil {
			return err
		}
	}
	return nil
}
