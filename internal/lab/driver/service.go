// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// identity is the CSI Identity service.
type identity struct {
	csi.UnimplementedIdentityServer
	name string
	// groups says that there is a group controller service, too.
	groups bool
}

// GetPluginInfo returns the driver's name, by which VolumeSnapshotClasses and PersistentVolumes find it.
func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.name, VendorVersion: "lab"}, nil
}

// GetPluginCapabilities says that there is a controller service.
func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if i.groups {
		services = append(services, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
	}
	response := &csi.GetPluginCapabilitiesResponse{}
	for _, service := range services {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: service}},
		})
	}
	return response, nil
}

// Probe says that the driver is ready.
func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// controller is the snapshot part of the CSI Controller service. The rest is Unimplemented.
type controller struct {
	csi.UnimplementedControllerServer
	storage *storage
	size    int64
}

// ControllerGetCapabilities names the two capabilities that external-snapshotter looks for.
func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, capability := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

// CreateSnapshot blocks until the snapshot is cut, as the specification asks, unless the volume's behaviour says
// otherwise. A change of the behaviours counts for calls that are waiting, too.
func (c *controller) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if req.GetName() == "" || req.GetSourceVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "name and source_volume_id are required")
	}
	for {
		step := c.storage.step(req.GetName(), req.GetSourceVolumeId())
		switch {
		case step.err != nil:
			return nil, step.err
		case step.snapshot != nil:
			return &csi.CreateSnapshotResponse{Snapshot: c.wire(*step.snapshot)}, nil
		}
		if err := step.wait(ctx); err != nil {
			return nil, status.FromContextError(err).Err()
		}
	}
}

// step is what a CreateSnapshot call is to do next: answer with an error or a snapshot, or wait and ask again.
type step struct {
	err      error
	snapshot *Snapshot
	// What is waited for; nil or zero where there is no such thing. A change of behaviours is always waited for.
	cut     <-chan struct{}
	until   time.Time
	changed <-chan struct{}
}

// wait returns when the next look is due, or with the context's error.
func (s step) wait(ctx context.Context) error {
	var due <-chan time.Time
	if !s.until.IsZero() {
		timer := time.NewTimer(time.Until(s.until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.changed:
	case <-s.cut:
	case <-due:
	}
	return nil
}

// step decides for a call. The order matters: a name that is taken comes first, as it is the caller's mistake; then what
// the storage does although it gives no answer; then the ways of not answering well.
func (s *storage) step(name, volume string) step {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, snapshot, under := s.rule(volume), s.snapshots[name], s.cutting[name]
	if (snapshot != nil && snapshot.Volume != volume) || (under != nil && under.volume != volume) {
		return step{err: status.Errorf(codes.AlreadyExists, "snapshot %s exists for another volume than %s", name, volume)}
	}
	if r.LateCut && snapshot == nil && under == nil {
		under = s.begin(name, volume, r)
	}
	now := time.Now()
	if until, hangs := r.hangs(volume, now); hangs {
		return step{until: until, changed: s.changed}
	}
	if snapshot == nil || now.Before(snapshot.Ready) {
		if err := r.failure(volume); err != nil {
			return step{err: err}
		}
	}
	if snapshot != nil {
		found := *snapshot
		return step{snapshot: &found}
	}
	if under == nil {
		if err := r.throttled(); err != nil {
			return step{err: err}
		}
		under = s.begin(name, volume, r)
	}
	return step{cut: under.done, changed: s.changed}
}

// DeleteSnapshot removes a snapshot at once. One that doesn't exist is no error.
func (c *controller) DeleteSnapshot(_ context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, status.Error(codes.InvalidArgument, "snapshot_id is required")
	}
	c.storage.remove(req.GetSnapshotId())
	return &csi.DeleteSnapshotResponse{}, nil
}

// ListSnapshots lists what is cut, in the order of the cuts, filtered and paged as the specification says.
func (c *controller) ListSnapshots(_ context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if req.GetMaxEntries() < 0 {
		return nil, status.Error(codes.InvalidArgument, "max_entries is negative")
	}
	var entries []*csi.ListSnapshotsResponse_Entry
	for _, snapshot := range c.storage.list() {
		if (req.GetSnapshotId() == "" || req.GetSnapshotId() == snapshot.ID) &&
			(req.GetSourceVolumeId() == "" || req.GetSourceVolumeId() == snapshot.Volume) {
			entries = append(entries, &csi.ListSnapshotsResponse_Entry{Snapshot: c.wire(snapshot)})
		}
	}
	start := 0
	if token := req.GetStartingToken(); token != "" {
		var err error
		if start, err = strconv.Atoi(token); err != nil || start < 0 || start > len(entries) {
			return nil, status.Errorf(codes.Aborted, "starting_token %q is none of ours", token)
		}
	}
	response := &csi.ListSnapshotsResponse{Entries: entries[start:]}
	if limit := int(req.GetMaxEntries()); limit > 0 && limit < len(response.GetEntries()) {
		response.Entries = response.GetEntries()[:limit]
		response.NextToken = strconv.Itoa(start + limit)
	}
	return response, nil
}

func (c *controller) wire(snapshot Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId:     snapshot.ID,
		SourceVolumeId: snapshot.Volume,
		SizeBytes:      c.size,
		CreationTime:   timestamppb.New(snapshot.Cut),
		ReadyToUse:     !time.Now().Before(snapshot.Ready),
	}
}
