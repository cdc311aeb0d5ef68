// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/device"
	"splitfs.io/splitfs/csi-driver/internal/emulated"
	"splitfs.io/splitfs/csi-driver/internal/events"
	"splitfs.io/splitfs/csi-driver/internal/lvm"
	"splitfs.io/splitfs/csi-driver/internal/namespace"
	"splitfs.io/splitfs/csi-driver/internal/nvdimm"
	"splitfs.io/splitfs/csi-driver/internal/pmemcsi"
	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// deviceOptions are the flags that say what a node's volumes are made of.
type deviceOptions struct {
	devices          []string
	emulatedDir      string
	emulatedCapacity quantity
	emulatedMinFree  quantity
	regions          []string
	regionPercent    int
	namespaceMap     string
	lvmClasses       string
}

func (o *deviceOptions) addTo(f *pflag.FlagSet) {
	o.emulatedCapacity, o.emulatedMinFree = quantity(10*volume.GiB), quantity(volume.GiB)
	f.StringSliceVar(&o.devices, "devices", []string{volume.DeviceEmulated},
		"what volumes of this node can be made of: "+strings.Join(deviceNames(), ", "))
	f.StringVar(&o.emulatedDir, "emulated-dir", "",
		"directory for the backing files of emulated devices (default <data-dir>/emulated)")
	f.Var(&o.emulatedCapacity, "emulated-capacity", "most that emulated volumes may take together")
	f.Var(&o.emulatedMinFree, "emulated-min-free", "what stays free on the file system of --emulated-dir")
	f.StringSliceVar(&o.regions, "regions", nil,
		"regions of persistent memory that the driver may use: all, or names (region0) and interleave sets "+
			"(0x2468ac00123456) of some; `splitfs-csi devices` shows them")
	f.IntVar(&o.regionPercent, "region-percent", 100, "most of each of these regions that the driver takes")
	f.StringVar(&o.lvmClasses, "lvm-classes", "",
		"device classes of logical volumes, a JSON list of objects with name, regions (as in --regions; all that are given "+
			"when there are none), spare (what stays free in each volume group), default, type (linear or thin) and thinPool "+
			"(of a thin class: name, size and overprovisionRatio)")
	f.StringVar(&o.namespaceMap, "namespace-map", string(nvdimm.MapDev),
		"where new namespaces keep what the kernel knows of their pages: dev (persistent memory, 1/64 of it) or "+
			"mem (main memory)")
}

func deviceNames() []string {
	return []string{volume.DeviceEmulated, volume.DeviceLVM, volume.DeviceNamespace}
}

// complete refuses what cannot work.
func (o *deviceOptions) complete() error {
	if len(o.devices) == 0 {
		return fmt.Errorf("--devices names nothing; allowed: %s", strings.Join(deviceNames(), ", "))
	}
	for _, name := range o.devices {
		if !slices.Contains(deviceNames(), name) {
			return fmt.Errorf("--devices names %q; allowed: %s", name, strings.Join(deviceNames(), ", "))
		}
	}
	return nil
}

// managers builds the managers of the node; memory says what its persistent memory is.
func (o *deviceOptions) managers(nodeName string, recorder events.Recorder,
	memory func(context.Context) ([]nvdimm.Range, error)) (device.Managers, error) {
	regions, err := nvdimm.ParseSelector(o.regions)
	if err != nil {
		return nil, fmt.Errorf("--regions: %w", err)
	}
	where, err := nvdimm.ParseMap(o.namespaceMap)
	if err != nil {
		return nil, fmt.Errorf("--namespace-map: %w", err)
	}
	tool := &nvdimm.Tool{Memory: memory}
	unusable := func(device string) func(context.Context, string) {
		return func(ctx context.Context, message string) {
			recorder.OnNode(ctx, nodeName, true, events.ReasonRegionUnusable,
				"persistent memory that was given to SplitFS cannot be used for "+device+" volumes: "+message)
		}
	}
	var managers []device.Manager
	add := func(m device.Manager, err error) error {
		managers = append(managers, m)
		return err
	}
	for _, name := range o.devices {
		switch name {
		case volume.DeviceEmulated:
			err = add(
				emulated.New(emulated.Config{
					Dir: o.emulatedDir, Capacity: int64(o.emulatedCapacity), MinFree: int64(o.emulatedMinFree),
				}))
		case volume.DeviceLVM:
			var classes []lvm.Class
			if classes, err = parseClasses(o.lvmClasses, o.regions); err != nil {
				return nil, fmt.Errorf("--lvm-classes: %w", err)
			}
			err = add(lvm.New(lvm.Config{
				Regions: regions, Percent: o.regionPercent, Map: where, Classes: classes, OnProblem: unusable(name),
			}, tool))
		case volume.DeviceNamespace:
			err = add(
				namespace.New(namespace.Config{Regions: regions, Percent: o.regionPercent, Map: where, OnProblem: unusable(name)},
					tool))
		}
		if err != nil {
			return nil, err
		}
	}
	return device.NewManagers(managers...), nil
}

// classOption is a device class as it is written down.
type classOption struct {
	Name    string   `json:"name"`
	Regions []string `json:"regions"`
	Spare   string   `json:"spare"`
	Default bool     `json:"default"`
	Type    string   `json:"type"`

	ThinPool *thinPoolOption `json:"thinPool"`
}

// Types of device classes; the first one is the default.
const (
	classLinear = "linear"
	classThin   = "thin"
)

// thinPoolOption is a thin pool as it is written down.
type thinPoolOption struct {
	Name  string  `json:"name"`
	Size  string  `json:"size"`
	Ratio float64 `json:"overprovisionRatio"`
}

// thinPool reads the thin pool of a class; nil when the class is linear.
func (o classOption) thinPool() (*lvm.ThinPool, error) {
	switch {
	case o.Type == "" || o.Type == classLinear:
		if o.ThinPool != nil {
			return nil, fmt.Errorf("it has a thinPool, and not the type %s", classThin)
		}
		return nil, nil
	case o.Type != classThin:
		return nil, fmt.Errorf("type is %q; allowed: %s, %s", o.Type, classLinear, classThin)
	case o.ThinPool == nil:
		return nil, fmt.Errorf("its type is %s, and it has no thinPool", classThin)
	}
	pool := &lvm.ThinPool{Name: o.ThinPool.Name, Overprovision: cmp.Or(o.ThinPool.Ratio, 1)}
	if o.ThinPool.Size == "" {
		return pool, nil
	}
	var size quantity
	if err := size.Set(o.ThinPool.Size); err != nil {
		return nil, fmt.Errorf("size of the thinPool: %w", err)
	}
	pool.Size = int64(size)
	return pool, nil
}

// parseClasses reads device classes; given are the regions that the driver has.
func parseClasses(text string, given []string) ([]lvm.Class, error) {
	if text == "" {
		return nil, nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	var options []classOption
	if err := decoder.Decode(&options); err != nil {
		return nil, err
	}
	classes := make([]lvm.Class, 0, len(options))
	for _, o := range options {
		class := lvm.Class{Name: o.Name, Default: o.Default}
		for _, region := range o.Regions {
			if !slices.Contains(given, region) && !slices.Contains(given, nvdimm.All) {
				return nil, fmt.Errorf("class %q has region %s, which the driver is not given (--regions)", o.Name, region)
			}
		}
		var err error
		if class.Regions, err = nvdimm.ParseSelector(o.Regions); err != nil {
			return nil, fmt.Errorf("class %q: %w", o.Name, err)
		}
		if o.Spare != "" {
			var spare quantity
			if err := spare.Set(o.Spare); err != nil {
				return nil, fmt.Errorf("class %q: spare: %w", o.Name, err)
			}
			class.Spare = int64(spare)
		}
		if class.Thin, err = o.thinPool(); err != nil {
			return nil, fmt.Errorf("class %q: %w", o.Name, err)
		}
		classes = append(classes, class)
	}
	return classes, nil
}

// tellOthers looks for what others have in the node's persistent memory.
func (o *deviceOptions) tellOthers(ctx context.Context, nodeName string, recorder events.Recorder) {
	if slices.Contains(o.devices, volume.DeviceLVM) || slices.Contains(o.devices, volume.DeviceNamespace) {
		tellPMEMCSI(ctx, &nvdimm.Tool{}, nodeName, recorder)
	}
}

// tellPMEMCSI tells the node's readers that volumes of pmem-csi are there: nobody else looks after them any more, and
// they take space.
func tellPMEMCSI(ctx context.Context, tool *nvdimm.Tool, nodeName string, recorder events.Recorder) {
	inventory, err := tool.List(ctx)
	if err != nil {
		// the managers' checks fail for the same reason
		klog.FromContext(ctx).Error(err, "Cannot look for volumes of pmem-csi")
		return
	}
	findings := pmemcsi.Find(inventory)
	if len(findings) == 0 {
		return
	}
	var bytes int64
	for _, f := range findings {
		klog.FromContext(ctx).Info("Found something of pmem-csi, which is left alone", "what", f.String())
		bytes += f.Size
	}
	recorder.OnNode(ctx, nodeName, false, events.ReasonPMEMCSI, fmt.Sprintf(
		"%d namespaces of pmem-csi (%d MiB) are on this node and left alone; `splitfs-csi devices` lists them, "+
			"docs/migrate-pmem-csi.md says how to bring their data over",
		len(findings), bytes>>20))
}
