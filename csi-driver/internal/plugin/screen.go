// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen is where tables are drawn: on a terminal each over the one before, elsewhere one after another. What was on
// the terminal before stays above, and the last table stays when the command ends.
type screen struct {
	out io.Writer
	// size is that of the terminal; ok is false where there is none.
	size func() (columns, rows int, ok bool)

	drawn         int
	columns, rows int
}

func newScreen(out io.Writer) *screen {
	return &screen{out: out, size: func() (int, int, bool) {
		columns, rows := terminalSize(out)
		return columns, rows, columns > 0 && rows > 0
	}}
}

// terminalSize is that of the terminal that out is; zeros: it is none.
func terminalSize(out io.Writer) (columns, rows int) {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		if columns, rows, err := term.GetSize(int(file.Fd())); err == nil {
			return columns, rows
		}
	}
	return 0, 0
}

// draw draws the lines of a table that fits so many columns; 0 is for as many as it takes.
func (s *screen) draw(table func(columns int) []string) error {
	columns, rows, terminal := s.size()
	if !terminal {
		_, err := fmt.Fprintf(s.out, "%s\n\n", strings.Join(table(0), "\n"))
		return err
	}
	var text strings.Builder
	lines := table(columns)
	switch {
	case s.drawn > 0 && (columns != s.columns || rows != s.rows):
		text.WriteString("\033[H\033[2J") // where the lines before stand now nobody knows
	case s.drawn > 0:
		fmt.Fprintf(&text, "\033[%dA\r", s.drawn)
	}
	s.columns, s.rows = columns, rows
	// The last line of the terminal is the cursor's.
	if most := max(rows-1, 3); len(lines) > most {
		lines = append(lines[:most-1:most-1], fmt.Sprintf("and %s", count(len(lines)-most+1, "more line")))
	}
	for _, line := range lines {
		text.WriteString(cut(line, columns) + "\033[K\n")
	}
	text.WriteString("\033[J")
	s.drawn = len(lines)
	_, err := io.WriteString(s.out, text.String())
	return err
}

// cut ends a line at the edge of the terminal: one that wraps would be two to go up.
func cut(line string, columns int) string {
	for i := range line {
		if columns == 0 {
			return line[:i]
		}
		columns--
	}
	return line
}
