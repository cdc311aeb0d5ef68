// SPDX-License-Identifier: Apache-2.0

package nvdimm

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/klog/v2"
)

// Unfit says why nothing may be kept in the region, whatever is made there; nil when it may. On virtio-pmem what a program stored and
// flushed is durable only when the host has been asked to write it, which no program can do for a mapping: the kernel refuses MAP_SYNC.
func (r Region) Unfit() error {
	if r.Provider != providerVirtio {
		return nil
	}
	return fmt.Errorf("it is of %s, where a store is durable only after fsync (no MAP_SYNC): no mode could keep its promise there", r.Provider)
}

// Problem is why a region that the operator gave to the driver cannot be used.
type Problem struct {
	Region string
	Err    error
}

// Problems are those of all regions; the error names each.
type Problems []Problem

// Err joins them; nil when there are none.
func (p Problems) Err() error {
	errs := make([]error, 0, len(p))
	for _, each := range p {
		errs = append(errs, fmt.Errorf("%s: %w", each.Region, each.Err))
	}
	return errors.Join(errs...)
}

// Teller tells an operator what is wrong with regions, when that changes.
type Teller struct {
	// OnProblem is told what the log is told; may be nil.
	OnProblem func(ctx context.Context, message string)

	mu   sync.Mutex
	told string
}

// Tell tells of problems that were not told last time.
func (t *Teller) Tell(ctx context.Context, device string, problems Problems) {
	err := problems.Err()
	text := ""
	if err != nil {
		text = err.Error()
	}
	t.mu.Lock()
	news := text != t.told && err != nil
	t.told = text
	t.mu.Unlock()
	if !news {
		return
	}
	klog.FromContext(ctx).Error(err, "Regions that were given to the driver cannot be used", "device", device)
	if t.OnProblem != nil {
		t.OnProblem(ctx, text)
	}
}

// Told is what is wrong now, "" when nothing is.
func (t *Teller) Told() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.told
}
