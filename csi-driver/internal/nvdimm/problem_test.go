// SPDX-License-Identifier: Apache-2.0

package nvdimm

import (
	"context"
	"errors"
	"reflect"
	"testing"
)

// TestTeller: a problem is told once, until it changes or comes back.
func TestTeller(t *testing.T) {
	var told []string
	teller := ProblemReporter{OnProblem: func(_ context.Context, message string) { told = append(told, message) }}
	one, two := Problem{"region0", errors.New("no labels")}, Problem{"region1", errors.New("no room")}
	for _, now := range []Problems{nil, {one}, {one}, {one, two}, nil, nil, {one}} {
		teller.Report(context.Background(), "lvm", now)
	}
	if want := []string{
		"region0: no labels", "region0: no labels\nregion1: no room", "region0: no labels",
	}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %q, wanted %q", told, want)
	}
	if Problems(nil).Err() != nil {
		t.Error("no problems are an error")
	}
}
