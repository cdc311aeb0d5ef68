// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"splitfs.io/splitfs/csi-driver/internal/driverinfo"
	"splitfs.io/splitfs/csi-driver/internal/server"
	"splitfs.io/splitfs/internal/contract"
)

// Identity is the CSI Identity service of both subcommands.
type Identity struct {
	csi.UnimplementedIdentityServer
	// Check says whether the driver can do its work now.
	Check func(ctx context.Context) error
	// Groups: there is a GroupController service, too.
	Groups bool
}

// GetPluginInfo implements csi.IdentityServer.
func (Identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: contract.Driver, VendorVersion: driverinfo.Version}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (i Identity) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(t csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}}
	}
	resp := &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE,
		}}},
	}}
	if i.Groups {
		resp.Capabilities = append(resp.Capabilities, service(csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE))
	}
	return resp, nil
}

// Probe implements csi.IdentityServer.
func (i Identity) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	err := i.Check(ctx)
	if errors.Is(err, server.ErrNotYet) {
		return &csi.ProbeResponse{Ready: wrapperspb.Bool(false)}, nil // sidecars wait for this, and give up at an error
	}
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, fmt.Sprintf("the driver is not usable: %v", err))
	}
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
