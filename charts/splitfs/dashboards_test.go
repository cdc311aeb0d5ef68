// SPDX-License-Identifier: Apache-2.0

package splitfs

//lint:file-ignore SA1019 the first version of the schema is what every Grafana reads out of a ConfigMap

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"splitfs.io/splitfs/charts/charttest"
)

// boards are the rendered dashboards, decoded by Grafana's own types: a member that these do not know is an error.
func boards(t *testing.T) map[string]dashboard.Dashboard {
	t.Helper()
	plugins.RegisterDefaultPlugins() // the types of panels and queries
	found := map[string]dashboard.Dashboard{}
	for _, object := range objectsOf(charttest.Render(t, monitored...), "ConfigMap") {
		if object.GetLabels()["grafana_dashboard"] != "1" {
			t.Errorf("Grafana's sidecar does not find %s: %v", object.GetName(), object.GetLabels())
		}
		data, _ := object.Object["data"].(map[string]any)
		for file, text := range data {
			board, err := decodeBoard([]byte(text.(string)))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			found[file] = board
		}
	}
	return found
}

func decodeBoard(text []byte) (board dashboard.Dashboard, err error) {
	// It returns a list of mistakes that is not nil when it is empty, and drops the panels then: they are decoded below.
	err = board.UnmarshalJSONStrict(text)
	if mistakes := (cog.BuildErrors{}); err != nil && (!errors.As(err, &mistakes) || len(mistakes) > 0) {
		return board, fmt.Errorf("decode: %w", err)
	}
	board = dashboard.Dashboard{}
	if err := json.Unmarshal(text, &board); err != nil {
		return board, fmt.Errorf("decode: %w", err)
	}
	return board, board.Validate()
}

// TestBoardsAreChecked: a member that Grafana does not know, in a dashboard, panel or query, is found.
func TestBoardsAreChecked(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("files", "dashboards", "pod.json"))
	if err != nil {
		t.Fatal(err)
	}
	plugins.RegisterDefaultPlugins()
	for _, member := range []string{`"uid"`, `"gridPos"`, `"expr"`} {
		wrong := strings.Replace(string(text), member+":", `"misspelt":`, 1)
		if _, err := decodeBoard([]byte(wrong)); err == nil || !strings.Contains(err.Error(), "misspelt") {
			t.Errorf("%s misspelt: %v", member, err)
		}
	}
}

// panels are those of a dashboard, by title, with their expressions.
func panels(t *testing.T, board *dashboard.Dashboard) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	add := func(p *dashboard.Panel) {
		if p == nil || p.Title == nil || len(p.Targets) == 0 || p.Datasource == nil || *p.Datasource.Uid != "${datasource}" {
			t.Errorf("a panel without title, query or the chosen source: %+v", p)
			return
		}
		for _, target := range p.Targets {
			query, ok := target.(*prometheus.Dataquery)
			if q, plain := target.(prometheus.Dataquery); plain {
				query, ok = &q, true
			}
			if !ok {
				t.Errorf("panel %s has a %T", *p.Title, target)
				continue
			}
			found[*p.Title] = append(found[*p.Title], query.Expr)
		}
	}
	for _, p := range board.Panels {
		if p.RowPanel == nil {
			add(p.Panel)
			continue
		}
		for i := range p.RowPanel.Panels {
			add(&p.RowPanel.Panels[i])
		}
	}
	return found
}

// scraped are the targets that an operator makes of the chart's PodMonitors: the label honorLabels and the node's name
// come from these.
func scraped(t *testing.T) []charttest.Target {
	t.Helper()
	exporters := map[string][]string{
		"splitfs-node": {"node", "csi", "pods", "status"}, "splitfs-controller": {"controller"},
		"splitfs-injector": {"injector"},
	}
	var targets []charttest.Target
	for _, monitor := range objectsOf(charttest.Render(t, monitored...), "PodMonitor") {
		var spec podMonitor
		specOf(t, monitor, &spec)
		endpoint := spec.PodMetricsEndpoints[0]
		target := charttest.Target{
			Job: charttest.Namespace + "/" + monitor.GetName(), HonorLabels: endpoint.HonorLabels,
			Exporters: exporters[monitor.GetName()],
			Labels: map[string]string{
				"namespace": charttest.Namespace, "pod": monitor.GetName() + "-x", "container": "splitfs",
			},
		}
		for _, r := range endpoint.Relabelings {
			if r.SourceLabels[0] != "__meta_kubernetes_pod_node_name" {
				t.Errorf("%s: this test does not know label %s", monitor.GetName(), r.SourceLabels[0])
			}
			target.Labels[r.TargetLabel] = "n1"
		}
		targets = append(targets, target)
	}
	return targets
}

// TestDashboards: a real Prometheus that scrapes what the exporters print has data for each panel and each choice of
// each dashboard, and all metrics that an alert looks at.
func TestDashboards(t *testing.T) {
	boards := boards(t)
	if len(boards) != 4 {
		t.Errorf("%d dashboards", len(boards))
	}
	rules, err := filepath.Abs(filepath.Join("files", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	prom := charttest.StartPrometheus(t, rules, scraped(t))
	charttest.Eventually(t, "there is enough for a rate", func() error {
		return hasData(t, prom,
			`count_over_time(up{job=~".+/splitfs-node"}[1m]) > 3 and on () ALERTS{alertname="SplitFSVolumeDataLoss"}`)
	})
	for file, board := range boards {
		for title, expressions := range panels(t, &board) {
			for _, expression := range expressions {
				if err := hasData(t, prom, fill(expression)); err != nil {
					t.Errorf("%s, panel %q: %v", file, title, err)
				}
			}
		}
		checkChoices(t, prom, file, &board)
	}
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\b(splitfs|csi)_[a-z_]+\b`).FindAllString(string(text), -1) {
		if err := hasData(t, prom, name); err != nil {
			t.Errorf("an alert looks at %s: %v", name, err)
		}
	}
	for _, none := range []string{"splitfs_no_such_metric", `0 * (splitfs_volume_staged / 0)`} {
		if hasData(t, prom, none) == nil {
			t.Errorf("%s is said to have data", none)
		}
	}
}

// fill puts values for what Grafana fills in.
func fill(expression string) string { return fillFor("10s", expression) }

func fillFor(interval, expression string) string {
	pairs := []string{"$__rate_interval", interval}
	for _, variable := range []string{"$node", "$namespace", "$claim", "$pod"} {
		pairs = append(pairs, variable, ".*")
	}
	return strings.NewReplacer(pairs...).Replace(expression)
}

// hasData fails unless an expression gives at least one number.
func hasData(t *testing.T, prom promv1.API, expression string) error {
	t.Helper()
	value, _, _, err := prom.Query(t.Context(), expression, time.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", expression, err)
	}
	samples, ok := value.(model.Vector)
	if !ok {
		return fmt.Errorf("%s: it is a %s", expression, value.Type())
	}
	for _, sample := range samples {
		if !math.IsNaN(float64(sample.Value)) {
			return nil
		}
	}
	return fmt.Errorf("%s: no data in %d series", expression, len(samples))
}

// checkChoices: each variable of a dashboard has values.
func checkChoices(t *testing.T, prom promv1.API, file string, board *dashboard.Dashboard) {
	t.Helper()
	form := regexp.MustCompile(`^label_values\((.+), ([a-z_]+)\)$`)
	for _, variable := range board.Templating.List {
		if variable.Type == dashboard.VariableTypeDatasource {
			continue
		}
		parts := form.FindStringSubmatch(*variable.Query.String)
		if parts == nil {
			t.Errorf("%s: variable %s asks %q", file, variable.Name, *variable.Query.String)
			continue
		}
		values, _, _, err := prom.LabelValues(t.Context(), parts[2], []string{fill(parts[1])}, time.Now().Add(-time.Minute),
			time.Now())
		if err != nil || len(values) == 0 {
			t.Errorf("%s: variable %s has no values: %v", file, variable.Name, err)
		}
	}
}
