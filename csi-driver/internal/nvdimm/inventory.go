// SPDX-License-Identifier: Apache-2.0

// Package nvdimm finds and divides the persistent memory of a node: regions and the namespaces in them, whatever
// brought them (NVDIMMs, CXL memory, virtio-pmem, memory reserved on the kernel's command line). It speaks to ndctl,
// whose JSON is stable; the library behind it is not safe to use concurrently, and neither are two ndctl that change
// one region, so a Tool runs one at a time.
package nvdimm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"strings"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// Inventory is all the persistent memory of a node.
type Inventory []Bus

// Bus is what regions hang on.
type Bus struct {
	// Provider says what brings the memory: "ACPI.NFIT", "CXL", "virtio-pmem", "e820", ...
	Provider string   `json:"provider"`
	Dev      string   `json:"dev"`
	Regions  []Region `json:"regions"`
}

// Region is memory that is one contiguous range of addresses, maybe of several modules interleaved.
type Region struct {
	// Provider is the bus's; Regions fills it in.
	Provider string `json:"-"`
	// Memory is what it is, and MemoryWhy who said so; the Tool fills them in.
	Memory    volume.Memory `json:"-"`
	MemoryWhy string        `json:"-"`

	Dev  string `json:"dev"`
	Size Bytes  `json:"size"`
	// Align is what begin and size of every namespace in the region must be multiples of.
	Align              Bytes         `json:"align"`
	Available          Bytes         `json:"available_size"`
	MaxAvailableExtent Bytes         `json:"max_available_extent"`
	Type               string        `json:"type"`
	ISetID             InterleaveSet `json:"iset_id"`
	Namespaces         []Namespace   `json:"namespaces"`
}

// Namespace is a part of a region, or all of one that has no labels.
type Namespace struct {
	Dev      string `json:"dev"`
	Mode     string `json:"mode"`
	Map      string `json:"map"`
	Size     Bytes  `json:"size"`
	UUID     string `json:"uuid"`
	Align    Bytes  `json:"align"`
	BlockDev string `json:"blockdev"`
	State    string `json:"state"`
	Name     string `json:"name"`
	// Claimed: it holds space, and how much is not listed, because a mode has been chosen whose driver is not there.
	// Making it was interrupted, or its driver gave up: it may hold data.
	Claimed bool `json:"-"`
}

// UnmarshalJSON implements json.Unmarshaler. ndctl leaves out the size of a namespace that is claimed and says 0 for
// one that has none.
func (n *Namespace) UnmarshalJSON(in []byte) error {
	type plain Namespace
	var sized struct {
		Size *Bytes `json:"size"`
	}
	if err := json.Unmarshal(in, &sized); err != nil {
		return err
	}
	if err := json.Unmarshal(in, (*plain)(n)); err != nil {
		return err
	}
	n.Claimed = sized.Size == nil && !n.Enabled()
	return nil
}

// ModeFSDAX is the mode of a namespace that file systems with DAX live on.
const ModeFSDAX = "fsdax"

// providerVirtio brings virtio-pmem.
const providerVirtio = "virtio-pmem"

// typePMEM is the type of regions that are memory; others are reached through windows and have no DAX.
const typePMEM = "pmem"

// Bytes is a size as ndctl prints it. What it cannot know (it prints all ones) is 0.
type Bytes int64

// UnmarshalJSON implements json.Unmarshaler.
func (b *Bytes) UnmarshalJSON(in []byte) error {
	n, err := strconv.ParseUint(string(in), 10, 64)
	if err != nil {
		if signed, err := strconv.ParseInt(string(in), 10, 64); err == nil && signed < 0 {
			*b = 0 // the same all ones, printed as a signed number
			return nil
		}
		return fmt.Errorf("%.40q is not a number of bytes", in)
	}
	if n > math.MaxInt64 {
		n = 0
	}
	*b = Bytes(n)
	return nil
}

// InterleaveSet identifies a region for ever: the modules it is made of, and their order. Only regions with labels have
// one.
type InterleaveSet string

// UnmarshalJSON implements json.Unmarshaler.
func (s *InterleaveSet) UnmarshalJSON(in []byte) error {
	n, err := strconv.ParseUint(string(in), 10, 64)
	if err != nil {
		signed, err := strconv.ParseInt(string(in), 10, 64)
		if err != nil {
			return fmt.Errorf("%.40q is not the number of an interleave set", in)
		}
		n = uint64(signed)
	}
	*s = ""
	if n != 0 {
		*s = InterleaveSet(fmt.Sprintf("0x%x", n))
	}
	return nil
}

// Parse reads what `ndctl list --buses --regions --namespaces --idle` prints: nothing where there is no persistent
// memory, else one array.
func Parse(out []byte) (Inventory, error) {
	if len(bytes.TrimSpace(out)) == 0 {
		return nil, nil
	}
	var inventory Inventory
	decoder := json.NewDecoder(bytes.NewReader(out))
	if err := decoder.Decode(&inventory); err != nil {
		return nil, fmt.Errorf("decode the list of ndctl: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decode the list of ndctl: there is more than one list")
	}
	for _, bus := range inventory {
		for _, region := range bus.Regions {
			if !deviceName(region.Dev) {
				return nil, fmt.Errorf("decode the list of ndctl: %q is no name of a region", region.Dev)
			}
			for _, ns := range region.Namespaces {
				if !deviceName(ns.Dev) || ns.BlockDev != "" && !deviceName(ns.BlockDev) {
					return nil, fmt.Errorf("decode the list of ndctl: %q (%q) is no name of a namespace", ns.Dev, ns.BlockDev)
				}
			}
		}
	}
	return inventory, nil
}

// deviceName says whether a name can be a kernel's: it becomes a path and a program's argument.
func deviceName(name string) bool {
	return name != "" && !strings.HasPrefix(name, "-") && !strings.HasPrefix(name, ".") &&
		!strings.ContainsAny(name, "/ \t\r\n\x00")
}

// Regions returns all regions of persistent memory.
func (i Inventory) Regions() []Region {
	var regions []Region
	for _, bus := range i {
		for _, region := range bus.Regions {
			if region.Type == typePMEM || region.Type == "" {
				region.Provider = bus.Provider
				regions = append(regions, region)
			}
		}
	}
	return regions
}

// Used goes over the namespaces that hold space, in all regions.
func (i Inventory) Used() iter.Seq2[Region, Namespace] {
	return func(yield func(Region, Namespace) bool) {
		for _, region := range i.Regions() {
			for _, ns := range region.Used() {
				if !yield(region, ns) {
					return
				}
			}
		}
	}
}

// Kind is what brings the memory, in one word.
func (r Region) Kind() string {
	if r.Provider == "CXL" {
		return "cxl"
	}
	return typePMEM
}

// Labeled says whether the region has labels: only then can it be divided, and its namespaces have names.
func (r Region) Labeled() bool { return r.ISetID != "" }

// Used returns the namespaces that hold space. A region always shows one more, the seed of the next one; a namespace
// that could not be made leaves its name there.
func (r Region) Used() []Namespace {
	var used []Namespace
	for _, ns := range r.Namespaces {
		if ns.Size > 0 || ns.Claimed {
			used = append(used, ns)
		}
	}
	return used
}

// Step is what sizes of namespaces are multiples of, such that 2 MiB mappings work too.
func (r Region) Step() int64 { return max(int64(r.Align), HugePage) }

// Enabled says whether the namespace has a driver, so that its device can be used. Nothing else that is listed of one
// that has none can be relied on but its name.
func (n Namespace) Enabled() bool { return n.State != "disabled" }

// Path is the namespace's block device; only an enabled namespace has one.
func (n Namespace) Path() (string, error) {
	if n.Mode != ModeFSDAX || !n.Enabled() || n.BlockDev == "" {
		return "", fmt.Errorf("namespace %s (%q) has no block device with DAX: its mode is %q, state %q", n.Dev, n.Name,
			n.Mode, n.State)
	}
	return "/dev/" + n.BlockDev, nil
}
