// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestRealDevicesClaimed meets namespaces that are claimed and have no driver: one whose making was interrupted just
// then, which holds its space and keeps others from being made, and one that has data and lost its driver.
func TestRealDevicesClaimed(t *testing.T) {
	for _, d := range realDevices(t) {
		if d.device == volume.DeviceNamespace {
			t.Run(d.device, func(t *testing.T) { realClaimed(t, d) })
		}
	}
}

func realClaimed(t *testing.T, d realDevice) {
	ctx := context.Background()
	m, err := manager(d)
	must(t, err)
	room, err := m.Available(ctx)
	must(t, err)
	const half, size = killID, 64 * volume.MiB

	halfMake(t, d.region, half)
	must(t, m.Create(ctx, otherID, size))
	must(t, m.Delete(ctx, otherID))
	must(t, m.Delete(ctx, half))
	halfMake(t, d.region, half)
	must(t, m.Create(ctx, half, size))
	path, err := m.Attach(ctx, half)
	must(t, err)
	content := bytes.Repeat([]byte("sixteen bytes..."), 1<<16)
	must(t, os.WriteFile(path, content, 0))
	must(t, exec.Command("sync", path).Run())

	script(t, `
namespace=$(ndctl list --namespaces | jq -er --arg name "$1" '.. | objects | select(.name == $name) | .dev')
for file in /sys/bus/nd/devices/pfn*/namespace; do
    if [ "$(cat "$file")" = "$namespace" ]; then
        basename "$(dirname "$file")" >/sys/bus/nd/drivers/nd_pmem/unbind
    fi
done
! ndctl list --namespaces | grep -q "$1"`, half)
	path, err = m.Attach(ctx, half)
	must(t, err)
	if got, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(got, content) {
		t.Errorf("a namespace that lost its driver lost its data: %d bytes, %v", len(got), err)
	}
	must(t, m.Delete(ctx, half))
	if after, err := m.Available(ctx); err != nil || after != room {
		t.Errorf("%d bytes available before, %d after, %v", room, after, err)
	}
}

// halfMake takes the steps of making a namespace up to the one before the last, as the kernel's interface has them.
func halfMake(t *testing.T, region, name string) {
	t.Helper()
	script(t, `
cd /sys/bus/nd/devices
namespace=$(cat "$1/namespace_seed") pfn=$(cat "$1/pfn_seed")
cat /proc/sys/kernel/random/uuid >"$namespace/uuid"
echo "$2" >"$namespace/alt_name"
echo $((80 << 20)) >"$namespace/size"
cat /proc/sys/kernel/random/uuid >"$pfn/uuid"
echo pmem >"$pfn/mode"
echo 2097152 >"$pfn/align"
echo "$namespace" >"$pfn/namespace"
ndctl list --namespaces --idle |
	jq -e --arg name "$2" 'any(.. | objects; .name == $name and (has("size") | not))' >/dev/null`, region, name)
}

func script(t *testing.T, text string, args ...string) {
	t.Helper()
	out, err := exec.Command("bash", append([]string{"-euo", "pipefail", "-c", text, "-"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
