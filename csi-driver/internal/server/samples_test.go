// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2/ktesting"

	"splitfs.io/splitfs/charts/charttest"
	"splitfs.io/splitfs/internal/contract"
)

// TestSamples keeps charts/splitfs/testdata/metrics/csi.prom what the service counts: a call that it serves, and one
// that fails.
func TestSamples(t *testing.T) {
	manager := csimetrics.NewCSIMetricsManagerForPlugin(contract.Driver)
	socket := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	s := NewGRPC(ktesting.NewLogger(t, ktesting.NewConfig()), manager)
	csi.RegisterNodeServer(s, failingNode{})
	go s.Serve(listener) //nolint:errcheck // the calls below would fail
	defer s.Stop()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := csi.NewNodeClient(conn)
	if _, err := client.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{
		VolumeId: "v", TargetPath: "/t",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: "v",
	}); status.Code(err) != codes.Internal {
		t.Fatalf("a call that fails: %v", err)
	}
	charttest.CheckSamples(t, "csi", manager.GetRegistry(), "csi_")
}

type failingNode struct{ csi.UnimplementedNodeServer }

func (failingNode) NodeUnpublishVolume(context.Context,
	*csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (failingNode) NodeStageVolume(context.Context, *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return nil, status.Error(codes.Internal, "broken")
}
