// SPDX-License-Identifier: Apache-2.0

package attach

import "testing"

func TestContainerInPath(t *testing.T) {
	for root, want := range map[string]string{
		"/var/lib/kubelet/pods/0b9c/containers/web/3f2a": "web",
		"/pods/0b9c/containers/web/3f2a":                 "web", // kubelet's directory is a file system of its own
		"/var/lib/containers/storage/overlay":            "",
		"/var/lib/kubelet/pods/0b9c/volumes/web":         "",
	} {
		found := ""
		if match := containerInPath.FindStringSubmatch(root); match != nil {
			found = match[1]
		}
		if found != want {
			t.Errorf("container of a mount of %s: %q, want %q", root, found, want)
		}
	}
}
