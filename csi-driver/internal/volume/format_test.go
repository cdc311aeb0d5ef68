// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"splitfs.io/splitfs/internal/contract"
)

// TestOtherVersions reads the state files of the first versions and of one to come, and writes them back: an upgrade
// understands what was there, and a downgrade loses nothing of what a newer driver had added.
func TestOtherVersions(t *testing.T) {
	id := IDFromName("pvc-1")
	for _, name := range []string{"state-first", "state-second", "state-next"} {
		t.Run(name, func(t *testing.T) {
			before, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			s, err := OpenStore(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.path(id), before, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := s.Get(id)
			if err != nil {
				t.Fatal(err)
			}
			if r.Mode != contract.Strict || r.FSType != XFS || !r.Formatted || r.Size != 256*MiB || r.Staged == nil ||
				len(r.Published) != 1 ||
				r.Recovery.Replayed != 2 || r.PVC.Name != "data" || r.Block {
				t.Errorf("understood as %+v", r)
			}
			if err := s.Put(r); err != nil {
				t.Fatal(err)
			}
			after, err := os.ReadFile(s.path(id))
			if err != nil {
				t.Fatal(err)
			}
			if want, have := mustTree(t, before), mustTree(t, after); !reflect.DeepEqual(want, have) {
				t.Errorf("written back as\n%s\nit was\n%s", after, before)
			}
		})
	}
}

// TestUnknownFieldsOfWhatIsGone: what a newer driver had said of a target goes with the target.
func TestUnknownFieldsOfWhatIsGone(t *testing.T) {
	id := IDFromName("pvc-1")
	content, err := os.ReadFile(filepath.Join("testdata", "state-next.json"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path(id), content, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := s.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		r.Published, r.Staged, r.Quarantined = nil, nil, Quarantined{}
		if err := s.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	after, err := os.ReadFile(s.path(id))
	if err != nil {
		t.Fatal(err)
	}
	tree, ok := mustTree(t, after).(map[string]any)
	if !ok || tree["fromTheFuture"] == nil || tree["published"] != nil || tree["staged"] != nil ||
		tree["quarantined"] != nil {
		t.Errorf("left: %s", after)
	}
}

func mustTree(t *testing.T, raw []byte) any {
	t.Helper()
	tree, err := decodeTree(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}
