// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestParseThinClasses: a class's type and its thin pool are read as the chart writes them, and go together.
func TestParseThinClasses(t *testing.T) {
	classes, err := parseClasses(`[{"name":"a"},{"name":"b","type":"linear"},
		{"name":"c","type":"thin","thinPool":{"name":"pool0","size":"10Gi","overprovisionRatio":2.5}},
		{"name":"d","type":"thin","thinPool":{"name":"pool1"}}]`, []string{"all"})
	if err != nil {
		t.Fatal(err)
	}
	if classes[0].Thin != nil || classes[1].Thin != nil {
		t.Errorf("%+v", classes)
	}
	if p := classes[2].Thin; p == nil || p.Name != "pool0" || p.Size != 10*volume.GiB || p.Overprovision != 2.5 {
		t.Errorf("%+v", p)
	}
	if p := classes[3].Thin; p == nil || p.Size != 0 || p.Overprovision != 1 {
		t.Errorf("without a ratio and a size: %+v", p)
	}
	for text, want := range map[string]string{
		`[{"name":"a","thinPool":{"name":"p"}}]`:                                 "not the type thin",
		`[{"name":"a","type":"thin"}]`:                                           "has no thinPool",
		`[{"name":"a","type":"thick"}]`:                                          "allowed: linear, thin",
		`[{"name":"a","type":"thin","thinPool":{"name":"p","size":"much"}}]`:     "size of the thinPool",
		`[{"name":"a","type":"thin","thinPool":{"name":"p","overprovision":2}}]`: "unknown field",
	} {
		if _, err := parseClasses(text, []string{"all"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
