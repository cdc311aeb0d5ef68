// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
)

// prometheusOfCluster names the variable with the address of a Prometheus that scrapes a cluster whose volumes are
// used; hack/dashboards starts one. Without it the test of this file is skipped.
const prometheusOfCluster = "SPLITFS_TEST_PROMETHEUS"

// emptyWhenWell are panels that show nothing in a cluster without persistent memory in which nothing is wrong or under
// way, and why.
func emptyWhenWell() map[string]string {
	return map[string]string{
		"cluster, Alerts":                              "no alert fires",
		"cluster, Problems of volumes":                 "no volume has a problem",
		"node, Copies and zeros that volumes wait for": "no volume is copied or zeroed",
		"node, CSI calls that fail":                    "no call failed",
		"node, Room of device classes":                 "the driver has no device classes",
		"node, Thin pools in use":                      "no device class is thin",
		"node, Thin pools: promised":                   "no device class is thin",
		"node, Memory":                                 "the node has no persistent memory",
		"pod, Without":                                 "all processes have the library",
		"pod, Without the library":                     "all processes have the library",
		"volume, Problems":                             "no volume has a problem",
	}
}

// TestEmptyWhenWell: each panel that may be empty is there, so that it is no other one that may.
func TestEmptyWhenWell(t *testing.T) {
	empty := emptyWhenWell()
	for file, board := range boards(t) {
		for title := range panels(t, &board) {
			delete(empty, panelName(file, title))
		}
	}
	if len(empty) > 0 {
		t.Errorf("no dashboard has these panels: %v", slices.Sorted(maps.Keys(empty)))
	}
}

// panelName is how emptyWhenWell calls a panel of a dashboard's file.
func panelName(file, title string) string {
	return strings.TrimSuffix(strings.TrimPrefix(file, "splitfs-"), ".json") + ", " + title
}

// TestDashboardsOfCluster: with what a cluster's own pods export, each panel and each choice has data, but for those
// that are empty when all is well. One may have data: other tests make mistakes meanwhile.
func TestDashboardsOfCluster(t *testing.T) {
	address := os.Getenv(prometheusOfCluster)
	if address == "" {
		t.Skipf("needs a cluster in use, and in %s the address that hack/dashboards prints", prometheusOfCluster)
	}
	client, err := api.NewClient(api.Config{Address: address})
	if err != nil {
		t.Fatal(err)
	}
	prom := promv1.NewAPI(client)
	// Rates need two scrapes, and quantiles calls that were timed in between: the time is for a busy machine.
	end := time.Now().Add(3 * time.Minute)
	empty, all := emptyWhenWell(), 0
	for file, board := range boards(t) {
		for title, expressions := range panels(t, &board) {
			name := panelName(file, title)
			for _, expression := range expressions {
				all++
				err := hasDataBy(t, prom, fillFor("40s", expression), end, empty[name] != "")
				if err != nil && empty[name] == "" {
					t.Errorf("%s: %v", name, err)
				}
				if err == nil && empty[name] != "" {
					t.Logf("%s has data, though %q", name, empty[name])
				}
			}
		}
		checkChoices(t, prom, file, &board)
	}
	if all < 60 {
		t.Errorf("%d queries only", all)
	}
	t.Logf("%d queries; nothing to show in %d panels: %v", all, len(empty), slices.Sorted(maps.Keys(empty)))
}

// hasDataBy waits for data until then; once is for what is not expected to have any.
func hasDataBy(t *testing.T, prom promv1.API, expression string, end time.Time, once bool) error {
	t.Helper()
	for {
		err := hasData(t, prom, expression)
		if err == nil || once || time.Now().After(end) {
			return err
		}
		time.Sleep(time.Second)
	}
}
