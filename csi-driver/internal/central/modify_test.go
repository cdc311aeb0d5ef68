// SPDX-License-Identifier: Apache-2.0

package central

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"splitfs.io/splitfs/csi-driver/internal/modify"
	"splitfs.io/splitfs/csi-driver/internal/volume"
	"splitfs.io/splitfs/internal/contract"
)

// strictOnly is a node that knows one volume and makes it strict, nothing else.
type strictOnly struct{}

func (strictOnly) Name() string { return "node-1" }

func (strictOnly) Modify(_ context.Context, id string, changes volume.Changes) (*volume.Record, error) {
	if changes.Mode != contract.Strict {
		return nil, fmt.Errorf("%w: strict only", volume.ErrInvalid)
	}
	return &volume.Record{ID: id, Mode: changes.Mode}, nil
}

// TestControllerModifyVolume: the call succeeds when the volume's node has made the change, and not before.
func TestControllerModifyVolume(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset(persistentVolume("one", "node-1"), persistentVolume("lost", ""))
	controller := NewController(newView(t, client), client)
	call := func(ctx context.Context, id string, parameters map[string]string) error {
		_, err := controller.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
			VolumeId: id, MutableParameters: parameters,
		})
		return err
	}
	strict := map[string]string{"mode": "strict"}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := call(short, "handle-one", strict); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "node-1, has not changed it yet") {
		t.Errorf("while the node is away: %v", err)
	}
	worker, err := modify.NewWorker(client, strictOnly{}, &volume.Locks{})
	if err != nil {
		t.Fatal(err)
	}
	go worker.Run(ctx)
	for _, c := range []struct {
		name, id   string
		parameters map[string]string
		code       codes.Code
		message    string
	}{
		{"made", "handle-one", strict, codes.OK, ""},
		{"repeated", "handle-one", strict, codes.OK, ""},
		{"nothing to change", "handle-one", nil, codes.OK, ""},
		{"refused by the node", "handle-one", map[string]string{"mode": "sync"}, codes.InvalidArgument,
			"node node-1 refused: invalid argument: strict only"},
		{"refused again", "handle-one", map[string]string{"mode": "sync"}, codes.InvalidArgument, "strict only"},
		{"made again", "handle-one", strict, codes.OK, ""},
		{"no such mode", "handle-one", map[string]string{"mode": "fast"}, codes.InvalidArgument,
			"allowed: posix, sync, strict"},
		{"what cannot be changed", "handle-one", map[string]string{"device": "lvm"}, codes.InvalidArgument,
			`unknown VolumeAttributesClass parameter "device"; allowed: mode, erase`},
		{"no node", "handle-lost", strict, codes.FailedPrecondition, "does not say which node"},
		{"unknown", "handle-x", strict, codes.NotFound, "no PersistentVolume has it"},
		{"no ID", "", strict, codes.InvalidArgument, "no volume ID"},
	} {
		if err := call(ctx, c.id, c.parameters); status.Code(err) != c.code ||
			err != nil && !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	pv, err := controller.view.volume("handle-one")
	if err != nil || pv.Annotations["csi.splitfs.io/mode"] != "strict" {
		t.Errorf("annotations %v, %v", (&corev1.PersistentVolume{ObjectMeta: pv.ObjectMeta}).Annotations, err)
	}
}
