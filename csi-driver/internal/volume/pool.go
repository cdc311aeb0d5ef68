// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds of a staging pool. A process is leased at least two staging files, of 16 MiB each, and nobody waits for more
// than is here to be zeroed before a volume is shown.
const (
	MinPool = 32 * MiB
	maxPool = 1024 * GiB
)

// parsePool reads the size of a staging pool, a quantity like 512Mi, and returns it in bytes, a multiple of 1 MiB.
func parsePool(what, value string) (int64, error) {
	q, err := resource.ParseQuantity(value)
	if err != nil {
		return 0, fmt.Errorf("%w: %s is %q, which is no quantity like 512Mi or 1Gi", ErrInvalid, what, value)
	}
	if q.CmpInt64(MinPool) < 0 || q.CmpInt64(maxPool) > 0 {
		return 0, fmt.Errorf("%w: %s is %q; allowed: 32Mi to 1Ti", ErrInvalid, what, value)
	}
	return RoundUp(q.Value()), nil
}
