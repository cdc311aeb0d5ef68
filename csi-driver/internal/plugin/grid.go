// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"unicode/utf8"
)

// grid is a table of text. Where it is wider than the terminal, columns are left out whole: a line that wraps is no
// line of a table, and a number that is cut off is another number.
type grid struct {
	columns []gridColumn
	rows    [][]string
	// gap is the number of blanks between columns.
	gap int
}

// gridColumn is a column's name, and when it is left out: those with the smallest number first, one with 0 never.
type gridColumn struct {
	head  string
	leave int
}

// Heads that several tables have.
const (
	headClaim = "CLAIM"
	headMode  = "MODE"
)

// add adds a row; cells that are missing at its end are empty.
func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

func (g *grid) cell(row []string, column int) string {
	if column < len(row) {
		return row[column]
	}
	return ""
}

// lines are those of the table in so many columns of a terminal (0: as many as it takes), and the heads of what is left
// out.
func (g *grid) lines(terminal int) (lines, left []string) {
	shown := make([]bool, len(g.columns))
	widths := make([]int, len(g.columns))
	total := -g.gap
	for i, c := range g.columns {
		shown[i], widths[i] = true, utf8.RuneCountInString(c.head)
		for _, row := range g.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(g.cell(row, i)))
		}
		total += widths[i] + g.gap
	}
	for terminal > 0 && total > terminal {
		next := g.least(shown)
		if next < 0 {
			break
		}
		shown[next] = false
		left = append(left, g.columns[next].head)
		total -= widths[next] + g.gap
	}
	head := make([]string, len(g.columns))
	for i, c := range g.columns {
		head[i] = c.head
	}
	for _, row := range append([][]string{head}, g.rows...) {
		lines = append(lines, g.line(row, shown, widths))
	}
	return lines, left
}

// least is the column that is left out next; -1 when the others have to stay.
func (g *grid) least(shown []bool) int {
	next := -1
	for i, c := range g.columns {
		if shown[i] && c.leave > 0 && (next < 0 || c.leave < g.columns[next].leave) {
			next = i
		}
	}
	return next
}

func (g *grid) line(row []string, shown []bool, widths []int) string {
	var text strings.Builder
	for i := range g.columns {
		if !shown[i] {
			continue
		}
		cell := g.cell(row, i)
		text.WriteString(cell)
		text.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+g.gap))
	}
	return strings.TrimRight(text.String(), " ")
}
