// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"slices"
	"strings"
	"testing"
)

func TestModes(t *testing.T) {
	for i, m := range Modes {
		if parsed, err := ParseMode(string(m)); err != nil || parsed != m {
			t.Errorf("ParseMode(%q) = %q, %v", m, parsed, err)
		}
		for j, other := range Modes {
			if m.Stronger(other) != (i > j) {
				t.Errorf("%s stronger than %s: %v", m, other, i <= j)
			}
		}
		if !m.Stronger("nonsense") || Mode("nonsense").Stronger(m) {
			t.Errorf("%s is not stronger than what is no mode", m)
		}
	}
	if Posix.NeedsLibrary() || !Sync.NeedsLibrary() || !Strict.NeedsLibrary() || Mode("").NeedsLibrary() {
		t.Error("which modes need the library")
	}
	for _, wrong := range []string{"", "Strict", "strict ", strings.Repeat("x", 1000)} {
		if _, err := ParseMode(wrong); err == nil || !strings.Contains(err.Error(), "posix, sync, strict") ||
			len(err.Error()) > 100 {
			t.Errorf("ParseMode of %d bytes: %v", len(wrong), err)
		}
	}
}

func TestUnserved(t *testing.T) {
	for _, u := range []Unserved{Refuse, Durable, Allow} {
		if parsed, err := ParseUnserved(string(u)); err != nil || parsed != u {
			t.Errorf("ParseUnserved(%q) = %q, %v", u, parsed, err)
		}
	}
	for _, wrong := range []string{"", "Refuse", "allow ", "perhaps"} {
		if parsed, err := ParseUnserved(wrong); err == nil || parsed != "" ||
			!strings.Contains(err.Error(), string(Durable)) {
			t.Errorf("ParseUnserved(%q) = %q, %v", wrong, parsed, err)
		}
	}
}

// TestConfig: what the injector writes is what the driver reads, and the library after kubelet has expanded it.
func TestConfig(t *testing.T) {
	for _, served := range [][]Served{
		nil,
		{{Strict, "/data", AgentsDir}},
		{{Strict, "/data", AgentsDir}, {Posix, "/a $(HOME) b", "/agents"}},
	} {
		value := Config(served)
		if back := ParseConfig(value); !slices.Equal(back, served) {
			t.Errorf("%v became %q and then %v", served, value, back)
		}
		if strings.Contains(strings.ReplaceAll(value, "$$", ""), "$") {
			t.Errorf("%q: kubelet would expand it", value)
		}
	}
	if got := ParseConfig("strict:/data;;posix:/a:/b;x"); !slices.Equal(got, []Served{{Posix, "/a", "/b"}}) {
		t.Errorf("entries that are none: %v", got)
	}
}

func TestPreloadElements(t *testing.T) {
	want := []string{"/a.so", "/b.so"}
	for _, value := range []string{"/a.so:/b.so", "/a.so /b.so", " :/a.so: /b.so:"} {
		if got := PreloadElements(value); !slices.Equal(got, want) {
			t.Errorf("%q: %v", value, got)
		}
	}
}
