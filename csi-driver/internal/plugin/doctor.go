// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// verdict is what a check has found.
type verdict string

// Verdicts, from good to bad.
const (
	good    verdict = "OK"
	skipped verdict = "SKIPPED" // the user may not look
	warning verdict = "WARNING" // it works, with less than it could have
	failure verdict = "FAILURE"
)

// finding is one line of the report.
type finding struct {
	Verdict verdict `json:"verdict"`
	What    string  `json:"what"`
	Says    string  `json:"says"`
}

// doctor checks a cluster.
type doctor struct {
	cluster  *cluster
	settings *settings
	findings []finding
}

func (d *doctor) add(v verdict, what, format string, arguments ...any) {
	d.findings = append(d.findings, finding{v, what, fmt.Sprintf(format, arguments...)})
}

// failed records that something could not be looked at.
func (d *doctor) failed(what string, err error) {
	if apierrors.IsForbidden(err) {
		d.add(skipped, what, "%v", err)
		return
	}
	d.add(failure, what, "%v", explain(err))
}

func newDoctorCommand(s *settings) *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check an installation",
		Long: "Checks versions, the driver's parts, the webhook (a pod is sent through it without being made), " +
			"StorageClasses, nodes, the kernel module, what memory\n" +
			"volumes are on, volumes, and whether processes run without the library. Exits with 1 when something does not work.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.connect(s)
			if err != nil {
				return err
			}
			d := &doctor{cluster: c, settings: s}
			for _, check := range checks {
				check(d, cmd.Context())
			}
			if o.json() {
				err = printJSON(s.streams.Out, d.findings)
			} else {
				err = d.print(s.streams.Out)
			}
			if err == nil && d.count(failure) > 0 {
				err = errFound
			}
			return err
		},
	}
	o.add(cmd)
	return cmd
}

// checks are made in this order: what comes later rests on what comes before.
var checks = []func(*doctor, context.Context){
	(*doctor).checkServer, (*doctor).checkDriver, (*doctor).checkParts, (*doctor).checkWebhook, (*doctor).checkClasses,
	(*doctor).checkInjection,
	(*doctor).checkNodes, (*doctor).checkRegistration, (*doctor).checkVolumes, (*doctor).checkProcesses,
}

func (d *doctor) count(v verdict) int {
	n := 0
	for _, f := range d.findings {
		if f.Verdict == v {
			n++
		}
	}
	return n
}

func (d *doctor) print(out io.Writer) error {
	width := 0
	for _, f := range d.findings {
		width = max(width, len(f.What))
	}
	p := newPrinter(out)
	for _, f := range d.findings {
		p.printf("%-7s   %-*s   %s\n", f.Verdict, width, f.What, strings.Join(strings.Fields(printable(f.Says)), " "))
	}
	p.printf("\n%d checks are good, %s, %s, %d skipped.\n", d.count(good), count(d.count(warning), "warning"),
		count(d.count(failure), "failure"), d.count(skipped))
	return p.err
}
