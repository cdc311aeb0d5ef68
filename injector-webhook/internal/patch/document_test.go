// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"errors"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// TestIntents applies intents and compares the document's own view with what the patch makes of the original text.
func TestIntents(t *testing.T) {
	const original = `{"a":{"list":[1,{"x":"y"}],"big":12345678901234567890,"nothing":null},"odd/key~":1}`
	tests := []struct {
		name       string
		do         func(*Document) error
		want       string
		operations int
	}{
		{"set a new member", func(d *Document) error { return d.Set("v", "a", "new") },
			`{"a":{"list":[1,{"x":"y"}],"big":12345678901234567890,"nothing":null,"new":"v"},"odd/key~":1}`, 1},
		{"replace a member", func(d *Document) error { return d.Set("z", "a", "list", 1, "x") },
			`{"a":{"list":[1,{"x":"z"}],"big":12345678901234567890,"nothing":null},"odd/key~":1}`, 1},
		{"replace an element", func(d *Document) error { return d.Set(2, "a", "list", 0) },
			`{"a":{"list":[2,{"x":"y"}],"big":12345678901234567890,"nothing":null},"odd/key~":1}`, 1},
		{"set what is there", func(d *Document) error { return d.Set(map[string]string{"x": "y"}, "a", "list", 1) }, original,
			0},
		{"a key that needs escaping", func(d *Document) error { return d.Set(2, "odd/key~") },
			`{"a":{"list":[1,{"x":"y"}],"big":12345678901234567890,"nothing":null},"odd/key~":2}`, 1},
		{"insert first", func(d *Document) error { return d.Insert(0, "a", "list", 0) },
			`{"a":{"list":[0,1,{"x":"y"}],"big":12345678901234567890,"nothing":null},"odd/key~":1}`, 1},
		{"append", func(d *Document) error { return d.Insert(2, "a", "list", 2) },
			`{"a":{"list":[1,{"x":"y"},2],"big":12345678901234567890,"nothing":null},"odd/key~":1}`, 1},
		{"ensure what is there",
			func(d *Document) error { return errors.Join(d.EnsureObject("a"), d.EnsureArray("a", "list")) }, original, 0},
		{"null counts as absent", func(d *Document) error {
			return errors.Join(d.EnsureArray("a", "nothing"), d.Insert("first", "a", "nothing", 0))
		}, `{"a":{"list":[1,{"x":"y"}],"big":12345678901234567890,"nothing":["first"]},"odd/key~":1}`, 2},
		{"an inserted object can be reached", func(d *Document) error {
			return errors.Join(d.EnsureObject("b"), d.Set("v", "b", "c"), d.Set("w", "b", "c"))
		}, `{"a":{"list":[1,{"x":"y"}],"big":12345678901234567890,"nothing":null},"odd/key~":1,"b":{"c":"w"}}`, 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d, err := Parse([]byte(original))
			if err != nil {
				t.Fatal(err)
			}
			if err := test.do(d); err != nil {
				t.Fatal(err)
			}
			if len(d.Operations()) != test.operations {
				t.Errorf("%d operations, want %d: %v", len(d.Operations()), test.operations, d.Operations())
			}
			after := []byte(original)
			if len(d.Operations()) > 0 {
				text, err := json.Marshal(d.Operations())
				if err != nil {
					t.Fatal(err)
				}
				patch, err := jsonpatch.DecodePatch(text)
				if err != nil {
					t.Fatal(err)
				}
				if after, err = patch.Apply([]byte(original)); err != nil {
					t.Fatalf("apply %s: %v", text, err)
				}
			}
			if !jsonpatch.Equal(after, []byte(test.want)) {
				t.Errorf("the patch makes %s, want %s", after, test.want)
			}
			view, err := json.Marshal(d.root)
			if err != nil {
				t.Fatal(err)
			}
			if !jsonpatch.Equal(view, []byte(test.want)) {
				t.Errorf("the document sees %s, want %s", view, test.want)
			}
		})
	}
}

func TestIntentsThatDoNotFit(t *testing.T) {
	for name, do := range map[string]func(*Document) error{
		"the root":                   func(d *Document) error { return d.Set(1) },
		"insert at the root":         func(d *Document) error { return d.Insert(1) },
		"a parent that is missing":   func(d *Document) error { return d.Set(1, "x", "y") },
		"a parent that is a number":  func(d *Document) error { return d.Set(1, "n", "y") },
		"an index into an object":    func(d *Document) error { return d.Set(1, "o", 0) },
		"a member of an array":       func(d *Document) error { return d.Set(1, "l", "x") },
		"an element that is missing": func(d *Document) error { return d.Set(1, "l", 7) },
		"insert behind the end":      func(d *Document) error { return d.Insert(1, "l", 2) },
		"insert into an object":      func(d *Document) error { return d.Insert(1, "o", 0) },
		"insert by name":             func(d *Document) error { return d.Insert(1, "l", "x") },
		"an array that is an object": func(d *Document) error { return d.EnsureArray("o") },
		"an object that is an array": func(d *Document) error { return d.EnsureObject("l") },
		"a value that is no JSON":    func(d *Document) error { return d.Set(func() {}, "o", "f") },
		"an insert that is no JSON":  func(d *Document) error { return d.Insert(func() {}, "l", 0) },
	} {
		d, err := Parse([]byte(`{"n":1,"o":{},"l":[1]}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := do(d); err == nil {
			t.Errorf("%s: no error", name)
		}
		if len(d.Operations()) != 0 {
			t.Errorf("%s: left operations %v", name, d.Operations())
		}
	}
}
