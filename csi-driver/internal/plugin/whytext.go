// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/csi-driver/internal/coverage"
	"splitfs.io/splitfs/csi-driver/internal/promise"
	"splitfs.io/splitfs/internal/contract"
)

// injectorName is the name of the webhook's configuration, and of the injector's Deployment and Service.
const injectorName = "splitfs-injector"

// notInjected finds out why a pod with our volumes was left alone.
func (c *cluster) notInjected(ctx context.Context, pod *corev1.Pod) (string, error) {
	for what, values := range map[string]map[string]string{"label": pod.Labels, "annotation": pod.Annotations} {
		if promise.OptedOut(values) {
			return fmt.Sprintf("the pod opted out: it has the %s %s: \"false\"", what, contract.AnnotationInject), nil
		}
	}
	var said struct {
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal([]byte(pod.Annotations[contract.AnnotationStatus]), &said); err == nil && said.Reason != "" {
		return "the injector left the pod alone: " + said.Reason, nil
	}
	if pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows {
		return "it is a Windows pod", nil
	}
	var namespace corev1.Namespace
	var webhook admissionregistrationv1.MutatingWebhookConfiguration
	for object, name := range map[client.Object]string{&namespace: pod.Namespace, &webhook: injectorName} {
		err := c.client.Get(ctx, client.ObjectKey{Name: name}, object)
		switch {
		case apierrors.IsForbidden(err):
			return "it was created while the injector was away, or in a namespace where it does not look (you may not read " +
				name + " to tell)", nil
		case apierrors.IsNotFound(err) && object == client.Object(&webhook):
			return "there is no injector: MutatingWebhookConfiguration " + injectorName + " does not exist", nil
		case err != nil:
			return "", fmt.Errorf("get %s: %w", name, err)
		}
	}
	for i := range webhook.Webhooks {
		selector, err := metav1.LabelSelectorAsSelector(webhook.Webhooks[i].NamespaceSelector)
		if err == nil && !selector.Matches(labels.Set(namespace.Labels)) {
			return fmt.Sprintf("the injector does not look into namespace %s: it has the label %s: \"false\", or lacks "+
				"\"true\", or is exempt (the chart's injector.namespaces and injector.exemptNamespaces)",
				pod.Namespace, contract.AnnotationInject), nil
		}
	}
	return "it was created while no injector answered, or before its claim existed. Delete it, so that it is created " +
		"anew with the injector", nil
}

// print shows the report as text.
func (r *podReport) print(out io.Writer) error {
	p := newPrinter(out)
	where := "not on a node yet"
	if r.Node != "" {
		where = "on node " + r.Node
	}
	p.printf("Pod %s/%s, %s, %s\n", r.Namespace, r.Pod, where, r.Phase)
	for _, claim := range r.Missing {
		p.printf("  claim %s does not exist\n", claim)
	}
	if r.Reason != "" {
		p.printf("  not injected: %s\n", printable(r.Reason))
	}
	mounted := false
	for i := range r.Containers {
		mounted = mounted || len(r.Containers[i].Mounts) > 0
		r.Containers[i].print(p, r)
	}
	if !mounted && len(r.Missing) == 0 {
		p.printf("\nNo container has a volume of SplitFS, so there is nothing to serve.\n")
	}
	if r.Unknown != "" {
		p.printf("\nNot all is known of its processes: %s\n", printable(r.Unknown))
	}
	if len(r.Unserved) > 0 {
		p.printf("\nWithout the library, and opened files for writing:\n")
	}
	for i := range r.Unserved {
		p.printf("  %s\n", unservedText(&r.Unserved[i]))
	}
	if len(r.Events) > 0 {
		p.printf("\nEvents:\n")
	}
	for _, event := range r.Events {
		p.printf("  %s\n", printable(event))
	}
	return p.err
}

func (c *containerReport) print(p *printer, r *podReport) {
	p.printf("\nContainer %s\n", orDash(c.Name))
	if len(c.Mounts) == 0 && len(c.Processes) == 0 {
		p.printf("  has no volume of SplitFS\n")
		return
	}
	for _, m := range c.Mounts {
		p.printf("  %s\n", m.text())
	}
	for i := range c.Processes {
		p.printf("  %s\n", processText(&c.Processes[i], r))
	}
	if len(c.Mounts) > 0 && len(c.Processes) == 0 && r.Unknown == "" && r.Phase == string(corev1.PodRunning) {
		p.printf("  no process of it runs\n")
	}
}

func (m *mountReport) text() string {
	at := fmt.Sprintf("%s, claim %s: ", printable(m.Path), m.Claim)
	switch {
	case m.Block:
		return at + "not served: a raw block volume has no file system"
	case m.Given == "":
		return at + "not served: the container was not given the library" + shortfall(m.Promised)
	case m.Given != m.Promised:
		return at + fmt.Sprintf("served in mode %s; annotations and volume say %s, which a pod that is created anew gets",
			m.Given, m.Promised)
	}
	return at + "served in mode " + m.Given
}

// shortfall says what is lost without the library.
func shortfall(mode string) string {
	if m := contract.Mode(mode); m == contract.Posix || m == "" {
		return ", and works as on any file system"
	}
	return ", so its writes do not have what mode " + mode + " promises"
}

func processText(p *coverage.Process, r *podReport) string {
	name := fmt.Sprintf("%s (%d): ", printable(p.Command), p.PID)
	switch {
	case p.Served():
		c := p.Counters
		return name + fmt.Sprintf("served in mode %s, %s of %s reads and writes, %s read and %s written so far", p.Mode,
			share(c.Served(), c.Calls()),
			amount(float64(c.Calls()), 1000), amount(float64(c["read_bytes"]), 1024), amount(float64(c.Written()), 1024))
	case p.State == coverage.StateLoaded:
		return name + "has the library, and has not used the volume yet"
	}
	open := "; it has no file of the volume open now"
	if p.Open {
		open = "; it has files of the volume open" + shortfall(r.promised(p.Container))
	}
	return name + "not served: " + strings.TrimSpace(p.Cause) + open
}

// unservedText says what became of a program without the library.
func unservedText(u *coverage.Unserved) string {
	did := "refused (EPERM)"
	if u.Did == string(contract.Durable) {
		did = "made synchronous"
	}
	times := "once"
	if u.Opens != 1 {
		times = fmt.Sprintf("%d times", u.Opens)
	}
	return fmt.Sprintf("%s (%d): %s %s, last %d s ago with %s. Let the dynamic linker load the library into it, or set "+
		"annotation %s: %s or %s", printable(u.Program), u.PID, did, times, u.Seconds,
		printable(u.Path), contract.AnnotationUnserved, contract.Durable, contract.Allow)
}

// promised is the strongest promise to a container.
func (r *podReport) promised(container string) string {
	strongest := contract.Posix
	for _, c := range r.Containers {
		for _, m := range c.Mounts {
			if mode := contract.Mode(m.Promised); c.Name == container && mode.Stronger(strongest) {
				strongest = mode
			}
		}
	}
	return string(strongest)
}
