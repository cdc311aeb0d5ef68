// SPDX-License-Identifier: Apache-2.0

package lvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"splitfs.io/splitfs/csi-driver/internal/command"
)

// settings make lvm independent of the node's and the image's configuration. Inside a container there is no udev to
// wait for: lvm makes its device nodes itself, and takes no device from udev's list. Nothing is kept beside the
// metadata on the devices. A write for which a thin pool has no space is an error at once and not held back.
const settings = `devices{external_device_info_source="none" obtain_device_list_from_udev=0 ` +
	`use_devicesfile=0 hints="none"} ` +
	`activation{udev_sync=0 udev_rules=0 verify_udev_operations=0 monitoring=0 error_when_full=1} ` +
	`backup{backup=0 archive=0} global{event_activation=0}`

// Commands of lvm, and their options.
const (
	lvCreate  = "lvcreate"
	lvList    = "lvs"
	assumeYes = "--yes"
	addTag    = "--addtag"
	nameIs    = "--name"
	sizeIs    = "--size"
)

// run runs one of lvm's commands. It sees the given devices and no other: whatever it does, it cannot do to a foreign
// volume group.
func run(ctx context.Context, devices []string, args ...string) ([]byte, error) {
	if len(devices) == 0 {
		return nil, fmt.Errorf("lvm %s: there is no device to run it for", args[0]) // without --devices lvm would see all
	}
	return command.Run(ctx, "lvm", append(args, "--config", settings, "--devices", strings.Join(devices, ","))...)
}

// count is a number as lvm reports it, in a string; what it does not know is empty.
type count int64

// UnmarshalJSON implements json.Unmarshaler.
func (c *count) UnmarshalJSON(in []byte) error {
	text := strings.Trim(string(in), `"`)
	if text == "" {
		*c = 0
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%.40q is not a number", text)
	}
	*c = count(n)
	return nil
}

// percent is a part as lvm reports it: "12.34", in a string; what it does not know is empty.
type percent float64

// UnmarshalJSON implements json.Unmarshaler.
func (p *percent) UnmarshalJSON(in []byte) error {
	text := strings.Trim(string(in), `"`)
	if text == "" {
		*p = 0
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n <= 100) {
		return fmt.Errorf("%.40q is not a percentage", text)
	}
	*p = percent(n)
	return nil
}

// of is that part of a whole, rounded up: what is nearly full is not taken for less.
func (p percent) of(whole int64) int64 { return int64(math.Ceil(float64(p) / 100 * float64(whole))) }

// tags are comma separated.
type tags []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *tags) UnmarshalJSON(in []byte) error {
	var text string
	if err := json.Unmarshal(in, &text); err != nil {
		return err
	}
	*t = nil
	if text != "" {
		*t = strings.Split(text, ",")
	}
	return nil
}

func (t tags) has(tag string) bool { return slices.Contains(t, tag) }

// physicalVolume is a row of pvs, with what is known of its volume group.
type physicalVolume struct {
	Device     string `json:"pv_name"`
	Start      count  `json:"pe_start"`
	Group      string `json:"vg_name"`
	GroupTags  tags   `json:"vg_tags"`
	Size       count  `json:"vg_size"`
	Free       count  `json:"vg_free"`
	ExtentSize count  `json:"vg_extent_size"`
}

const physicalFields = "pv_name,pe_start,vg_name,vg_tags,vg_size,vg_free,vg_extent_size"

// logicalVolume is a row of lvs.
type logicalVolume struct {
	Name  string `json:"lv_name"`
	Group string `json:"vg_name"`
	Tags  tags   `json:"lv_tags"`
	Size  count  `json:"lv_size"`
	// Minor is the number of the device, -1 when the volume is not active.
	Minor count `json:"lv_kernel_minor"`
	// Pool is the thin pool that the volume is in, "" when it is not thin.
	Pool string `json:"pool_lv"`
	// Of a thin pool that is active: how full it is, and what is wrong with it.
	Data         percent `json:"data_percent"`
	Metadata     percent `json:"metadata_percent"`
	MetadataSize count   `json:"lv_metadata_size"`
	WhenFull     string  `json:"lv_when_full"`
	Health       string  `json:"lv_health_status"`
}

const logicalFields = "lv_name,vg_name,lv_tags,lv_size,lv_kernel_minor,pool_lv,data_percent,metadata_percent," +
	"lv_metadata_size,lv_when_full,lv_health_status"

type report struct {
	Report []struct {
		Physical []physicalVolume `json:"pv"`
		Logical  []logicalVolume  `json:"lv"`
	} `json:"report"`
}

func parseReport(out []byte) (physical []physicalVolume, logical []logicalVolume, err error) {
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, nil, fmt.Errorf("decode the report of lvm: %w", err)
	}
	if len(r.Report) == 0 {
		return nil, nil, errors.New("decode the report of lvm: there is none")
	}
	for _, part := range r.Report {
		physical = append(physical, part.Physical...)
		logical = append(logical, part.Logical...)
	}
	return physical, logical, nil
}

// list runs pvs or lvs, for all or for those that names say.
func list(ctx context.Context, devices []string, what, fields string,
	names ...string) ([]physicalVolume, []logicalVolume, error) {
	if len(devices) == 0 {
		return nil, nil, nil
	}
	args := append([]string{what}, names...)
	out, err := run(ctx, devices,
		append(args, "--options", fields, "--units", "b", "--nosuffix", "--reportformat", "json")...)
	if err != nil {
		return nil, nil, err
	}
	return parseReport(out)
}
