// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"fmt"

	"splitfs.io/splitfs/internal/contract"
)

// Status is what the annotation splitfs.io/status says.
type Status struct {
	Injected bool `json:"injected"`
	// Containers maps a container's name and a mount path in it to the mode.
	Containers map[string]map[string]contract.Mode `json:"containers,omitempty"`
	// Fsync names the containers whose fsync does not show the bytes to programs without the library.
	Fsync map[string]contract.Fsync `json:"fsync,omitempty"`
	// Protect names the containers that are guarded against stray stores where the node's processor has protection keys.
	Protect map[string]contract.Protect `json:"protect,omitempty"`
	// Reason says why nothing was injected although it might have been expected.
	Reason string `json:"reason,omitempty"`
}

func (s *Status) text() (string, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("marshal status: %w", err)
	}
	return string(raw), nil
}
