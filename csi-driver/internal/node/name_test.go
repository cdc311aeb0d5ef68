// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"
)

// TestNodeName: a node whose name is too long for a label could have volumes that nothing binds to it. It is told so at
// the start.
func TestNodeName(t *testing.T) {
	longest := "node." + strings.Repeat("a", 58)
	for name, good := range map[string]bool{"": false, "node-1.example.com": true, longest: true, longest + "b": false} {
		_, err := New(t.Context(), Config{Name: name, StateDir: t.TempDir(), InjectDir: t.TempDir(), AgentsDir: t.TempDir()})
		if (err == nil) != good || len(name) > 63 && !strings.Contains(err.Error(), "63") {
			t.Errorf("the name %q: %v", name, err)
		}
	}
}
