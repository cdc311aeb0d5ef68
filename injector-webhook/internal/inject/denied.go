// SPDX-License-Identifier: Apache-2.0

package inject

import "fmt"

// Reasons for refusing a pod, as they appear in metrics.
const (
	ReasonAnnotation = "annotation"
	ReasonMountPath  = "mount-path"
	ReasonConflict   = "conflict"
	ReasonClaim      = "claim"
	ReasonClass      = "storage-class"
)

// DeniedError is a pod that must not be admitted. Its message is for the pod's author: what is wrong, where, and what
// to do.
type DeniedError struct {
	Reason  string
	Message string
}

func (e *DeniedError) Error() string { return e.Message }

func denied(reason, format string, args ...any) error {
	return &DeniedError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
