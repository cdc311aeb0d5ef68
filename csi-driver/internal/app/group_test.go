// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// TestGroupService: csi-sanity calls the GroupController service with what is missing only; here it is used.
func TestGroupService(t *testing.T) {
	s := startNode(t, "", "")
	s.stop() // calls are not repeated here, so the service must not be busy looking after the volumes
	s.options.watchInterval = time.Hour
	s.start()
	ctx := context.Background()
	one, two := s.create("one", "posix"), s.create("two", "strict")
	groups, controller := csi.NewGroupControllerClient(s.conn), csi.NewControllerClient(s.conn)
	wanted := func(code codes.Code) func(what string, err error) {
		return func(what string, err error) {
			t.Helper()
			if status.Code(err) != code {
				t.Errorf("%s: %v; wanted %s", what, err, code)
			}
		}
	}
	request := &csi.CreateVolumeGroupSnapshotRequest{
		Name: "group", SourceVolumeIds: []string{two.id, one.id},
		Parameters: map[string]string{"csi.storage.k8s.io/volumegroupsnapshot/name": "group"},
	}
	create := func() *csi.VolumeGroupSnapshot {
		t.Helper()
		for {
			resp, err := groups.CreateVolumeGroupSnapshot(ctx, request)
			if status.Code(err) == codes.Aborted { // on a slow machine the call ends before the work does
				continue
			}
			s.must(err)
			if group := resp.GetGroupSnapshot(); group.GetReadyToUse() {
				return group
			}
		}
	}
	group := create()
	var ids, sources []string
	for _, snapshot := range group.GetSnapshots() {
		ids, sources = append(ids, snapshot.GetSnapshotId()), append(sources, snapshot.GetSourceVolumeId())
		if snapshot.GetGroupSnapshotId() != group.GetGroupSnapshotId() || !snapshot.GetReadyToUse() ||
			!snapshot.GetCreationTime().AsTime().Equal(group.GetCreationTime().AsTime()) {
			t.Errorf("a snapshot of %s is %s", group, snapshot)
		}
	}
	slices.Sort(sources)
	if want := []string{one.id, two.id}; len(ids) != 2 || !slices.Equal(sources, slices.Sorted(slices.Values(want))) {
		t.Errorf("snapshots of %q, wanted of %q", sources, want)
	}
	if again := create(); again.String() != group.String() {
		t.Errorf("the same call again made %s of %s", again, group)
	}
	found, err := groups.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{
		GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids,
	})
	if err != nil || found.GetGroupSnapshot().String() != group.String() {
		t.Errorf("found %s, %v", found, err)
	}
	_, err = groups.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{
		Name: "group", SourceVolumeIds: []string{one.id},
	})
	wanted(codes.AlreadyExists)("the same name for other volumes", err)
	_, err = groups.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: "none"})
	wanted(codes.InvalidArgument)("a group of nothing", err)
	_, err = groups.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{
		Name: "parameters", SourceVolumeIds: []string{one.id}, Parameters: map[string]string{"freeze": "never"},
	})
	wanted(codes.InvalidArgument)("an unknown parameter", err)
	_, err = groups.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{
		Name: "nodes", SourceVolumeIds: []string{one.id, volume.IDFromName("elsewhere")},
	})
	wanted(codes.FailedPrecondition)("volumes of two nodes", err)
	_, err = controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: ids[0]})
	wanted(codes.InvalidArgument)("deleting one of a group", err)
	mismatch := &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids[:1]}
	_, err = groups.DeleteVolumeGroupSnapshot(ctx, mismatch)
	wanted(codes.InvalidArgument)("deleting a group by one of its snapshots", err)
	for range 2 {
		_, err = groups.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{
			GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids,
		})
		s.must(err)
	}
	list, err := controller.ListSnapshots(ctx, &csi.ListSnapshotsRequest{})
	if err != nil || len(list.GetEntries()) != 0 {
		t.Errorf("left: %s, %v", list, err)
	}
	s.must(s.delete(one), s.delete(two))
}
