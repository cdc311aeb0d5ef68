// SPDX-License-Identifier: Apache-2.0

package charttest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"sigs.k8s.io/yaml"
)

// Promtool is Prometheus' tool. It skips the test when it has not been built.
func Promtool(tb testing.TB) string {
	tb.Helper()
	promtool := tool(tb, "prometheus", "promtool")
	if promtool == "" {
		tb.Skip("needs Prometheus: run hack/build-tools prometheus first")
	}
	return promtool
}

// Target is what a Prometheus scrapes: what exporters printed (names of files in SamplesDir), with the labels that a
// monitor gives it.
type Target struct {
	Job         string
	HonorLabels bool
	Labels      map[string]string
	Exporters   []string
}

// StartPrometheus starts a real Prometheus with these rules and targets, which it scrapes and evaluates every second,
// until the test ends.
func StartPrometheus(tb testing.TB, rules string, targets []Target) promv1.API {
	tb.Helper()
	program := filepath.Join(filepath.Dir(Promtool(tb)), "prometheus")
	dir := tb.TempDir()
	scrapes := make([]map[string]any, 0, len(targets))
	for _, target := range targets {
		exporter := httptest.NewServer(growing(tb, target.Exporters))
		tb.Cleanup(exporter.Close)
		scrapes = append(scrapes, map[string]any{
			"job_name": target.Job, "honor_labels": target.HonorLabels,
			"static_configs": []any{
				map[string]any{"targets": []string{exporter.Listener.Addr().String()}, "labels": target.Labels},
			},
		})
	}
	config, err := yaml.Marshal(map[string]any{
		"global": map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": []string{rules},
		"scrape_configs": scrapes,
	})
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		tb.Fatal(err)
	}
	address := FreeAddress(tb)
	log := &bytes.Buffer{}
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		tb.Fatalf("start prometheus: %v", err)
	}
	tb.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // Wait reports what became of it
		cmd.Wait()         //nolint:errcheck // it was killed
		if tb.Failed() {
			tb.Logf("Prometheus said:\n%s", log)
		}
	})
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	if err != nil {
		tb.Fatal(err)
	}
	prometheus := promv1.NewAPI(client)
	Eventually(tb, "Prometheus answers", func() error { _, err := prometheus.Config(tb.Context()); return err })
	return prometheus
}

// FreeAddress is one that nobody listens on now.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// growing serves samples; counters and histograms are larger with each scrape, as those of a node that has something to
// do.
func growing(tb testing.TB, exporters []string) http.Handler {
	tb.Helper()
	var text []byte
	for _, exporter := range exporters {
		content, err := os.ReadFile(filepath.Join(SamplesDir(tb), exporter+".prom"))
		if err != nil {
			tb.Fatal(err)
		}
		text = append(text, content...)
	}
	var scrapes atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		if _, err := w.Write(grown(text, float64(scrapes.Add(1)))); err != nil {
			tb.Logf("write samples: %v", err)
		}
	})
}

// grown multiplies all values of counters and histograms.
func grown(text []byte, by float64) []byte {
	var out bytes.Buffer
	counts := false
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "# TYPE ") {
			counts = !strings.HasSuffix(line, " gauge")
		}
		at := strings.LastIndexByte(line, ' ')
		if value, err := strconv.ParseFloat(line[at+1:], 64); err == nil && counts && line[0] != '#' {
			line = fmt.Sprintf("%s %g", line[:at], value*by)
		}
		out.WriteString(line + "\n")
	}
	return out.Bytes()
}
