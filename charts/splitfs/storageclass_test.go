// SPDX-License-Identifier: Apache-2.0

package splitfs

import (
	"errors"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"splitfs.io/splitfs/charts/charttest"
)

// TestStorageClassPolicy: on a real API server a class of the driver that can never provide a volume is refused, with
// what to do; those of others, and the chart's own, are not.
func TestStorageClassPolicy(t *testing.T) {
	env := charttest.StartAPIServer(t)
	admin := charttest.NewClient(t, env.Config)
	objects := charttest.Render(t, "--set", "injector.library.delivery=ephemeral", "--set",
		"devices.lvm.enabled=true,devices.regions={all}", "--set-json",
		`devices.lvm.classes=[{"name":"near"},{"name":"bulk"},{"name":"thin","type":"thin","thinPool":{"name":"pool0"}}]`)
	for _, object := range objects {
		if object.GetName() == "splitfs-storageclass" {
			if err := charttest.Apply(t.Context(), admin, object); err != nil {
				t.Fatal(err)
			}
		}
	}
	create := func(provisioner string, binding *storagev1.VolumeBindingMode, parameters map[string]string) error {
		class := &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "class-"}, Provisioner: provisioner, VolumeBindingMode: binding,
			Parameters: parameters,
		}
		return admin.Create(t.Context(), class, client.DryRunAll)
	}
	immediate, waiting := storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	const ours = "csi.splitfs.io"
	charttest.Eventually(t, "the policy has effect", func() error {
		if create(ours, &immediate, nil) == nil {
			return errors.New("the class was admitted")
		}
		return nil
	})
	for _, test := range []struct {
		name, provisioner string
		binding           *storagev1.VolumeBindingMode
		parameters        map[string]string
		refused           string
	}{
		{"immediate", ours, &immediate, nil, "set volumeBindingMode to WaitForFirstConsumer"},
		{"by default immediate", ours, nil, map[string]string{"mode": "strict"},
			"set volumeBindingMode to WaitForFirstConsumer"},
		{"a mode that is none", ours, &waiting, map[string]string{"mode": "turbo"}, "posix, sync or strict"},
		{"a mode", ours, &waiting, map[string]string{"mode": "sync"}, ""},
		{"no mode", ours, &waiting, nil, ""},
		{"a pool", ours, &waiting, map[string]string{"pool": "1.5Gi"}, ""},
		{"the smallest pool", ours, &waiting, map[string]string{"pool": "32Mi"}, ""},
		{"the largest pool", ours, &waiting, map[string]string{"pool": "1Ti"}, ""},
		{"a pool that is too small", ours, &waiting, map[string]string{"pool": "31Mi"}, "from 32Mi to 1Ti"},
		{"a pool that is too large", ours, &waiting, map[string]string{"pool": "1025Gi"}, "from 32Mi to 1Ti"},
		{"a pool of no size", ours, &waiting, map[string]string{"pool": "large"}, "from 32Mi to 1Ti"},
		{"a device class", ours, &waiting, map[string]string{"device": "lvm", "deviceClass": "bulk"}, ""},
		{"a device class that is none", ours, &waiting, map[string]string{"device": "lvm", "deviceClass": "slow"},
			"devices.lvm.classes ('near', 'bulk', 'thin')"},
		{"a thin class for posix", ours, &waiting, map[string]string{"device": "lvm", "deviceClass": "thin"}, ""},
		{"a thin class for any memory", ours, &waiting,
			map[string]string{"device": "lvm", "deviceClass": "thin", "mode": "strict", "durability": "any"}, ""},
		{"a thin class for strict", ours, &waiting,
			map[string]string{"device": "lvm", "deviceClass": "thin", "mode": "strict"}, "have no direct access (DAX)"},
		{"a thin class for durable memory", ours, &waiting,
			map[string]string{"device": "lvm", "deviceClass": "thin", "durability": "required"},
			"name a device class that is not thin"},
		{"a device class of another device", ours, &waiting, map[string]string{"deviceClass": "bulk"}, "with the device lvm"},
		{"another driver's", "other.example.com", &immediate, map[string]string{"mode": "turbo"}, ""},
	} {
		err := create(test.provisioner, test.binding, test.parameters)
		if (err != nil) != (test.refused != "") || (err != nil && !strings.Contains(err.Error(), test.refused)) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	for _, object := range objects {
		if object.GetKind() == "StorageClass" {
			if err := charttest.Apply(t.Context(), admin, object); err != nil {
				t.Errorf("the chart's class %s: %v", object.GetName(), err)
			}
		}
	}
}
