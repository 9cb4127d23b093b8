// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// groupController is the CSI GroupController service. A group is no more than its snapshots, which are cut side by side, each as
// its volume's behaviour says.
type groupController struct {
	csi.UnimplementedGroupControllerServer
	*controller
}

// GroupControllerGetCapabilities names the one capability that there is.
func (g *groupController) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

// CreateVolumeGroupSnapshot blocks until all the snapshots are cut.
func (g *groupController) CreateVolumeGroupSnapshot(ctx context.Context, req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if req.GetName() == "" || len(req.GetSourceVolumeIds()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "name and source_volume_ids are required")
	}
	id := "group-" + req.GetName()
	snapshots := make([]*csi.Snapshot, len(req.GetSourceVolumeIds()))
	group, ctx := errgroup.WithContext(ctx)
	for i, volume := range req.GetSourceVolumeIds() {
		group.Go(func() error {
			created, err := g.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: id + "/" + volume, SourceVolumeId: volume})
			if err != nil {
				return err
			}
			snapshots[i] = created.GetSnapshot()
			snapshots[i].GroupSnapshotId = id
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: grouped(id, snapshots)}, nil
}

// DeleteVolumeGroupSnapshot removes the snapshots at once.
func (g *groupController) DeleteVolumeGroupSnapshot(_ context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	for _, id := range req.GetSnapshotIds() {
		g.storage.remove(id)
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot describes the snapshots that are asked for.
func (g *groupController) GetVolumeGroupSnapshot(_ context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	known := map[string]Snapshot{}
	for _, snapshot := range g.storage.list() {
		known[snapshot.ID] = snapshot
	}
	var snapshots []*csi.Snapshot
	for _, id := range req.GetSnapshotIds() {
		found, ok := known[id]
		if !ok {
			return nil, status.Errorf(codes.NotFound, "there is no snapshot %s", id)
		}
		wire := g.wire(found)
		wire.GroupSnapshotId = req.GetGroupSnapshotId()
		snapshots = append(snapshots, wire)
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: grouped(req.GetGroupSnapshotId(), snapshots)}, nil
}

func grouped(id string, snapshots []*csi.Snapshot) *csi.VolumeGroupSnapshot {
	group := &csi.VolumeGroupSnapshot{GroupSnapshotId: id, Snapshots: snapshots, ReadyToUse: true, CreationTime: timestamppb.New(time.Time{})}
	for i, snapshot := range snapshots {
		group.ReadyToUse = group.GetReadyToUse() && snapshot.GetReadyToUse()
		if i == 0 || snapshot.GetCreationTime().AsTime().After(group.GetCreationTime().AsTime()) {
			group.CreationTime = snapshot.GetCreationTime()
		}
	}
	return group
}
