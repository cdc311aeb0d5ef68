// SPDX-License-Identifier: Apache-2.0

package nvdimm

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// All is the word for every region of a node.
const All = "all"

var regionName = regexp.MustCompile(`^region[0-9]+$`)

// Selector says which regions an operator has given to the driver: all of them, some by name, or some by interleave
// set, which unlike a name never changes.
type Selector struct {
	all   bool
	names []string
	sets  []InterleaveSet
}

// ParseSelector reads a list of "all", "region0" and "0x2468ac00123456".
func ParseSelector(list []string) (Selector, error) {
	var s Selector
	for _, word := range list {
		number, isSet := strings.CutPrefix(strings.ToLower(word), "0x")
		switch {
		case word == All:
			s.all = true
		case regionName.MatchString(word):
			s.names = append(s.names, word)
		case isSet:
			n, err := strconv.ParseUint(number, 16, 64)
			if err != nil || n == 0 {
				return Selector{}, fmt.Errorf(
					"%q is not an interleave set (like 0x2468ac00123456; `splitfs-csi devices` shows them)", word)
			}
			s.sets = append(s.sets, InterleaveSet(fmt.Sprintf("0x%x", n)))
		default:
			return Selector{}, fmt.Errorf(
				"%q selects no region; allowed: %s, a region's name (region0) or its interleave set (0x2468ac00123456)", word, All)
		}
	}
	return s, nil
}

// Empty says whether no region can ever be selected.
func (s Selector) Empty() bool { return !s.all && len(s.names) == 0 && len(s.sets) == 0 }

// Selects says whether the operator has given this region to the driver.
func (s Selector) Selects(r Region) bool {
	return s.all || slices.Contains(s.names, r.Dev) || r.ISetID != "" && slices.Contains(s.sets, r.ISetID)
}

// Of returns the selected regions.
func (s Selector) Of(i Inventory) []Region {
	return slices.DeleteFunc(i.Regions(), func(r Region) bool { return !s.Selects(r) })
}
