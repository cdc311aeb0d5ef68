// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestWrap: no line is wider than the terminal, no word is lost, and a line goes on below its own text.
func TestWrap(t *testing.T) {
	for _, c := range []struct {
		line    string
		columns int
		want    []string
	}{
		{"a line that is long enough", 0, []string{"a line that is long enough"}},
		{"as wide as that", 15, []string{"as wide as that"}},
		{"WARNING   what                  it says more than there is room for", 60, []string{
			"WARNING   what                  it says more than there is", "                                room for",
		}},
		// No room behind the margin.
		{"WARNING   what                  it says more than there is room for", 50, []string{
			"WARNING   what                  it says more than", "  there is room for",
		}},
		{"  sleep (4714): has the library, and has not used the volume", 40, []string{
			"  sleep (4714): has the library, and has", "    not used the volume",
		}},
		{"  /a/very/long/path/without/any/blank/in/it, claim x", 30, []string{
			"  /a/very/long/path/without/any/blank/in/it,", "    claim x",
		}},
	} {
		if got := wrap(c.line, c.columns); !slices.Equal(got, c.want) {
			t.Errorf("%d columns: %q, want %q", c.columns, got, c.want)
		}
	}
	const line = "  mode    sync: ää its threads waited for fsync in 75% of the looks, and  so on and on and on"
	for columns := 40; columns < 100; columns++ {
		got := wrap(line, columns)
		for _, part := range got {
			if utf8.RuneCountInString(part) > columns {
				t.Errorf("%d columns: %q", columns, part)
			}
		}
		if !slices.Equal(strings.Fields(strings.Join(got, " ")), strings.Fields(line)) {
			t.Errorf("%d columns: words of %q", columns, got)
		}
	}
}

// TestGrid: columns that have no room are left out whole, in their order, and named; those that have to stay, stay.
func TestGrid(t *testing.T) {
	g := &grid{columns: []gridColumn{{"NAME", 0}, {"WHAT", 2}, {"SIZE", 1}, {"ÄGE", 3}}, gap: 2}
	g.add("one", "something", "100Gi", "1d")
	g.add("two", "", "1Ki")
	for terminal, want := range map[int]string{
		0:  "NAME  WHAT       SIZE   ÄGE\none   something  100Gi  1d\ntwo              1Ki\n",
		27: "NAME  WHAT       SIZE   ÄGE\none   something  100Gi  1d\ntwo              1Ki\n",
		26: "NAME  WHAT       ÄGE\none   something  1d\ntwo\n(a wider terminal and -o\n  json show more: SIZE)\n",
		19: "NAME  ÄGE\none   1d\ntwo\n(a wider terminal\n  and -o json show\n  more: SIZE, WHAT)\n",
		1:  "NAME\none\ntwo\n(a\n  wider\n  terminal\n  and\n  -o\n  json\n  show\n  more:\n  SIZE,\n  WHAT,\n  ÄGE)\n",
	} {
		var out bytes.Buffer
		p := &printer{out: &out, columns: terminal}
		p.grid(g)
		if out.String() != want || p.err != nil {
			t.Errorf("%d columns: %q (%v), want %q", terminal, out.String(), p.err, want)
		}
	}
}

// TestTopOnTerminals: columns of top that have no room are left out, and how long calls took is then a line for each
// kind of call.
func TestTopOnTerminals(t *testing.T) {
	nodes := lookedTwice()["splitfs-node-1"]
	table := compare(nodes[:1], nodes[1:], nil, filter{})
	for columns := 60; columns < 160; columns++ {
		for _, line := range table.lines(columns) {
			if utf8.RuneCountInString(line) > columns {
				t.Errorf("%d columns: %q", columns, line)
			}
		}
	}
	for columns, want := range map[int][]string{
		80: {
			"POD / PROCESS          MODE    SERVED            CALLS/s  READ/s  WRITE/s",
			"  redis-server (4711)  strict  99%               602      98K     2.0M",
			"CLAIM      MODE    CALL    p50     p99",
			"shop/data  strict  append  768 ns  49.2 us",
		},
		120: {
			"NAMESPACE  POD / PROCESS          MODE    SERVED            CALLS/s  READ/s  WRITE/s  FSYNC/s  POOL         " +
				"CONTAINER",
			"CLAIM      MODE    APPEND p50, p99  OVERWRITE p50, p99  READ p50, p99      FSYNC p50, p99",
		},
	} {
		lines := table.lines(columns)
		for _, line := range want {
			if !slices.Contains(lines, line) {
				t.Errorf("%d columns: no line %q in\n%s", columns, line, strings.Join(lines, "\n"))
			}
		}
	}
}
