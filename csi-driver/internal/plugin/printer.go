// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// printer writes lines, and keeps the first error of many writes. On a terminal a line that has no room goes on in the
// next one, below its own text.
type printer struct {
	out io.Writer
	err error
	// columns of the terminal; 0: it is none.
	columns int
}

func newPrinter(out io.Writer) *printer {
	columns, _ := terminalSize(out)
	return &printer{out: out, columns: columns}
}

func (p *printer) printf(format string, arguments ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, arguments...)) {
		text, end := strings.CutSuffix(line, "\n")
		p.write(strings.Join(wrap(text, p.columns), "\n"))
		if end {
			p.write("\n")
		}
	}
}

func (p *printer) write(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.out, text)
	}
}

// grid writes a table, and below it says what it had no room for.
func (p *printer) grid(g *grid) {
	lines, left := g.lines(p.columns)
	for _, line := range lines {
		p.write(line + "\n")
	}
	if len(left) > 0 {
		p.printf("(a wider terminal and -o json show more: %s)\n", strings.Join(left, ", "))
	}
}

const (
	// leastText is what a terminal must have room for behind the margin of a text for the text to go on behind it.
	leastText = 28
	// mostMargin is how wide a margin is at most: a gap that comes later is in the text.
	mostMargin = 40
)

// wrap breaks a line between words where a terminal of so many columns ends (0: nowhere). What has no blank, such as a
// path, stays whole.
func wrap(line string, columns int) []string {
	if columns == 0 || utf8.RuneCountInString(line) <= columns {
		return []string{line}
	}
	begin, indent := marginOf(line)
	if indent > columns-leastText {
		indent = blanks(line) + 2
	}
	var lines []string
	text, empty := line[:begin], true // of words behind the margin
	for _, word := range strings.Fields(line[begin:]) {
		if !empty && utf8.RuneCountInString(text)+1+utf8.RuneCountInString(word) > columns {
			lines, text, empty = append(lines, text), strings.Repeat(" ", indent), true
		}
		if !empty {
			text += " "
		}
		text, empty = text+word, false
	}
	return append(lines, text)
}

// blanks is how many there are at a line's begin.
func blanks(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// marginOf is where the text of a line begins: behind its last gap of two blanks or more, as in `mode    sync: why`, or
// else at its first word. It goes on at indent.
func marginOf(line string) (begin, indent int) {
	begin = blanks(line)
	if gap := strings.LastIndex(line[:min(len(line), mostMargin)], "  "); gap >= begin {
		return gap + 2, utf8.RuneCountInString(line[:gap+2])
	}
	return begin, begin + 2
}
