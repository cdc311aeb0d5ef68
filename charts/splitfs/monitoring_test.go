// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"splitfs.io/splitfs/charts/charttest"
)

// monitored are the values that switch on all that is for Prometheus and Grafana.
var monitored = []string{
	"--set", "monitoring.podMonitors.enabled=true,monitoring.rules.enabled=true,monitoring.dashboards.enabled=true",
}

// ruleFile is what Prometheus reads, and the spec of a PrometheusRule.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

func objectsOf(objects []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() == kind {
			found = append(found, object)
		}
	}
	return found
}

func specOf(t *testing.T, object *unstructured.Unstructured, into any) []byte {
	t.Helper()
	text, err := yaml.Marshal(object.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return text
}

// TestMonitoringIsOptional: a cluster without prometheus-operator gets none of its objects.
func TestMonitoringIsOptional(t *testing.T) {
	for _, object := range charttest.Render(t) {
		if strings.HasPrefix(object.GetAPIVersion(), "monitoring.coreos.com/") || object.GetKind() == "ConfigMap" {
			t.Errorf("%s %s was not wanted", object.GetKind(), object.GetName())
		}
	}
}

// TestPodMonitors: each selects the pods of a workload and names a port that these have.
func TestPodMonitors(t *testing.T) {
	objects := charttest.Render(t,
		append([]string{"--set", "monitoring.podMonitors.labels.release=prometheus"}, monitored...)...)
	monitors := objectsOf(objects, "PodMonitor")
	if len(monitors) != 3 {
		t.Errorf("%d PodMonitors", len(monitors))
	}
	for _, monitor := range monitors {
		var spec podMonitor
		specOf(t, monitor, &spec)
		if monitor.GetLabels()["release"] != "prometheus" {
			t.Errorf("%s has labels %v", monitor.GetName(), monitor.GetLabels())
		}
		if pod := podOf(t, objects, monitor.GetName()); !selects(spec.Selector.MatchLabels, pod.Labels) ||
			!hasPort(pod, spec.PodMetricsEndpoints[0].Port) {
			t.Errorf("%s does not find the pods of its name, or not their port: %+v", monitor.GetName(), spec)
		}
	}
}

// TestScrapeConfig: the configuration for a Prometheus without the operator finds what the PodMonitors find, with the
// same labels.
func TestScrapeConfig(t *testing.T) {
	path, err := filepath.Abs(filepath.Join("files", "scrape.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		ScrapeConfigs []struct {
			HonorLabels   bool                                            `json:"honor_labels"`
			Kubernetes    []struct{ Namespaces struct{ Names []string } } `json:"kubernetes_sd_configs"`
			RelabelConfig []struct {
				SourceLabels             []string `json:"source_labels"`
				Regex, Action, Separator string
				TargetLabel              string `json:"target_label"`
			} `json:"relabel_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.ScrapeConfigs) != 1 {
		t.Fatalf("%d configurations: %v", len(file.ScrapeConfigs), err)
	}
	config := file.ScrapeConfigs[0]
	if n := config.Kubernetes[0].Namespaces.Names; len(n) != 1 || n[0] != charttest.Namespace {
		t.Errorf("it looks in %v", n)
	}
	keep := regexp.MustCompile("^(?:" + config.RelabelConfig[0].Regex + ")$")
	targets := map[string]string{}
	for _, r := range config.RelabelConfig {
		if r.TargetLabel != "" {
			targets[r.TargetLabel] = strings.Join(r.SourceLabels, r.Separator)
		}
	}
	kept := 0
	for _, monitor := range objectsOf(charttest.Render(t, monitored...), "PodMonitor") {
		var spec podMonitor
		specOf(t, monitor, &spec)
		selector, endpoint := spec.Selector.MatchLabels, spec.PodMetricsEndpoints[0]
		pod := strings.Join([]string{
			selector["app.kubernetes.io/name"], selector["app.kubernetes.io/component"], endpoint.Port,
		}, ";")
		if !keep.MatchString(pod) || endpoint.HonorLabels != config.HonorLabels {
			t.Errorf("%s is not scraped as the PodMonitor says", pod)
		}
		if "splitfs-"+selector["app.kubernetes.io/component"] != monitor.GetName() {
			t.Errorf("the job of %s is another one", monitor.GetName())
		}
		for _, r := range endpoint.Relabelings {
			if targets[r.TargetLabel] != strings.Join(r.SourceLabels, r.TargetLabel) {
				t.Errorf("label %s is %q", r.TargetLabel, targets[r.TargetLabel])
			}
		}
		kept++
	}
	if want := strings.Count(config.RelabelConfig[0].Regex, "|") + 1; kept != want {
		t.Errorf("%d PodMonitors, %d kinds of pods", kept, want)
	}
	const job = "__meta_kubernetes_namespace/splitfs-__meta_kubernetes_pod_label_app_kubernetes_io_component"
	if targets["job"] != job {
		t.Errorf("the job is %s", targets["job"])
	}
	main := filepath.Join(t.TempDir(), "prometheus.yaml")
	if err := os.WriteFile(main, []byte("scrape_config_files: ['"+path+"']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), charttest.Promtool(t), "check", "config", main).
		CombinedOutput(); err != nil {
		t.Errorf("promtool check config: %v\n%s", err, output)
	}
}

type podMonitor struct {
	Selector            struct{ MatchLabels map[string]string }
	PodMetricsEndpoints []struct {
		Port, Interval string
		HonorLabels    bool
		Relabelings    []struct {
			SourceLabels []string
			TargetLabel  string
		}
	}
}

func selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

// podOf is the pod template of the workload of this name.
func podOf(t *testing.T, objects []*unstructured.Unstructured, name string) *corev1.PodTemplateSpec {
	t.Helper()
	for _, object := range objects {
		if object.GetName() == name && (object.GetKind() == "DaemonSet" || object.GetKind() == "Deployment") {
			var spec struct{ Template corev1.PodTemplateSpec }
			text, err := yaml.Marshal(object.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(text, &spec); err != nil {
				t.Fatal(err)
			}
			return &spec.Template
		}
	}
	t.Fatalf("no workload %s", name)
	return nil
}

func hasPort(pod *corev1.PodTemplateSpec, name string) bool {
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == name {
				return true
			}
		}
	}
	return false
}

// TestRunbooks: each alert has a page with the sections that a page has, and each page an alert; the annotation leads
// there.
func TestRunbooks(t *testing.T) {
	dir := filepath.Join(charttest.Root(t), "docs", "runbooks")
	rules := func(set ...string) map[string]string {
		var file ruleFile
		specOf(t, objectsOf(charttest.Render(t, append(set, monitored...)...), "PrometheusRule")[0], &file)
		urls := map[string]string{}
		for _, group := range file.Groups {
			for _, rule := range group.Rules {
				urls[rule.Alert] = rule.Annotations["runbook_url"]
				if s := rule.Labels["severity"]; s != "critical" && s != "warning" || rule.Annotations["summary"] == "" {
					t.Errorf("alert %s is %+v", rule.Alert, rule)
				}
			}
		}
		return urls
	}
	alerts := rules()
	elsewhere := rules("--set", "monitoring.rules.runbookURL=https://docs.example.com/runbooks/{alert}/")
	for alert, url := range alerts {
		if url != "docs/runbooks/"+alert+".md" || elsewhere[alert] != "https://docs.example.com/runbooks/"+alert+"/" {
			t.Errorf("%s: pages are %s and %s", alert, url, elsewhere[alert])
		}
		page, err := os.ReadFile(filepath.Join(dir, alert+".md"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, part := range []string{
			"# " + alert + "\n", "\n## What it means\n", "\n## What to look at\n", "\n## What to do\n",
		} {
			if !strings.Contains(string(page), part) {
				t.Errorf("the page of %s has no %q", alert, strings.TrimSpace(part))
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "SplitFS*.md"))
	if err != nil || len(pages) != len(alerts) {
		t.Errorf("%d pages for %d alerts (%v)", len(pages), len(alerts), err)
	}
}

// TestRules: Prometheus' own tool finds nothing in what the chart renders, and its tests of each alert pass.
func TestRules(t *testing.T) {
	promtool := charttest.Promtool(t)
	var file ruleFile
	text := specOf(t, objectsOf(charttest.Render(t, monitored...), "PrometheusRule")[0], &file)
	rendered := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rendered, text, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := filepath.Join("testdata", "alerts_test.yaml")
	for _, arguments := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", rendered}, {"test", "rules", tests},
	} {
		if output, err := exec.CommandContext(t.Context(), promtool, arguments...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, output)
		}
	}
	content, err := os.ReadFile(tests)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if !strings.Contains(string(content), fmt.Sprintf("alertname: %s\n        exp_alerts:\n          -", rule.Alert)) {
				t.Errorf("no test in which %s fires", rule.Alert)
			}
			if rule.For != "" && !strings.Contains(string(content), fmt.Sprintf("alertname: %s, exp_alerts: []", rule.Alert)) {
				t.Errorf("no test in which %s does not fire", rule.Alert)
			}
		}
	}
}
