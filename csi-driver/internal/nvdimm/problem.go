// SPDX-License-Identifier: Apache-2.0

package nvdimm

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/klog/v2"
)

// Unfit says why nothing may be kept in the region, whatever is made there; nil when it may. On virtio-pmem what a
// program stored and flushed is durable only when the host has been asked to write it, which no program can do for a
// mapping: the kernel refuses MAP_SYNC.
func (r Region) Unfit() error {
	if r.Provider != providerVirtio {
		return nil
	}
	return fmt.Errorf(
		"it is of %s, where a store is durable only after fsync (no MAP_SYNC): no mode could keep its promise there",
		r.Provider)
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

// ProblemReporter reports what is wrong with regions to an operator, when that changes.
type ProblemReporter struct {
	// OnProblem gets what the log gets; may be nil.
	OnProblem func(ctx context.Context, message string)

	mu   sync.Mutex
	last string
}

// Report reports problems that are not those of the last call.
func (r *ProblemReporter) Report(ctx context.Context, device string, problems Problems) {
	err := problems.Err()
	text := ""
	if err != nil {
		text = err.Error()
	}
	r.mu.Lock()
	news := text != r.last && err != nil
	r.last = text
	r.mu.Unlock()
	if !news {
		return
	}
	klog.FromContext(ctx).Error(err, "Regions that were given to the driver cannot be used", "device", device)
	if r.OnProblem != nil {
		r.OnProblem(ctx, text)
	}
}

// Current returns what is wrong now, "" when nothing is.
func (r *ProblemReporter) Current() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
