// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"strings"
	"time"

	vsv1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/volumesnapshotter/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// firstRedelivery and lastRedelivery are the shortest and the longest wait before a call is tried again that hasn't reached
	// its plugin. The waits double.
	firstRedelivery = 10 * time.Millisecond
	lastRedelivery  = 3 * time.Second
)

// deliver makes a call of a plugin, again until the call reaches it. A plugin's process that has died is started anew, but only
// when Velero's framework has noticed, which takes some milliseconds: without this the items of that time would fail, too, as
// they do with Velero's own engine. A call that may have reached the plugin is never repeated.
func (r *run) deliver(ctx context.Context, do func() error) error {
	for wait := firstRedelivery; ; wait *= 2 {
		err := do()
		if !undelivered(err) || wait > lastRedelivery {
			return err
		}
		timer := r.deps.Clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// undelivered says whether a call failed because no process was there to connect to. gRPC has no code of its own for that:
// Unavailable is also what becomes of a call in the middle of which the process dies.
func undelivered(err error) bool {
	answer, ok := status.FromError(err)
	return ok && answer.Code() == codes.Unavailable && strings.HasPrefix(answer.Message(), "connection error: ")
}

// closed says whether a call failed because its process was stopped.
func closed(err error) bool {
	answer, ok := status.FromError(err)
	return ok && answer.Code() == codes.Canceled && strings.Contains(answer.Message(), "connection is closing")
}

// deliveringSnapshotters gives snapshotters whose calls are delivered as deliver says.
type deliveringSnapshotters struct {
	VolumeSnapshotters
	run *run
	ctx context.Context //nolint:containedctx // the plugins' interfaces have none, and this lives for one run
}

// GetVolumeSnapshotter implements VolumeSnapshotters.
func (d deliveringSnapshotters) GetVolumeSnapshotter(provider string) (vsv1.VolumeSnapshotter, error) {
	plugin, err := d.VolumeSnapshotters.GetVolumeSnapshotter(provider)
	if err != nil {
		return nil, err
	}
	return deliveringSnapshotter{VolumeSnapshotter: plugin, deliver: func(do func() error) error { return d.run.deliver(d.ctx, do) }}, nil
}

// deliveringSnapshotter delivers those calls that a backup makes.
type deliveringSnapshotter struct {
	vsv1.VolumeSnapshotter
	deliver func(func() error) error
}

// Init implements VolumeSnapshotter. It is the one call for which Velero's framework doesn't start a process that has ended; but it
// remembers the configuration, and uses it when it starts one for the next call.
func (d deliveringSnapshotter) Init(config map[string]string) error {
	err := d.VolumeSnapshotter.Init(config)
	if undelivered(err) || closed(err) {
		return nil
	}
	return err
}

// GetVolumeID implements VolumeSnapshotter.
func (d deliveringSnapshotter) GetVolumeID(pv runtime.Unstructured) (id string, err error) {
	err = d.deliver(func() error { id, err = d.VolumeSnapshotter.GetVolumeID(pv); return err })
	return id, err
}

// GetVolumeInfo implements VolumeSnapshotter.
func (d deliveringSnapshotter) GetVolumeInfo(volumeID, zone string) (kind string, iops *int64, err error) {
	err = d.deliver(func() error { kind, iops, err = d.VolumeSnapshotter.GetVolumeInfo(volumeID, zone); return err })
	return kind, iops, err
}

// CreateSnapshot implements VolumeSnapshotter.
func (d deliveringSnapshotter) CreateSnapshot(volumeID, zone string, tags map[string]string) (id string, err error) {
	err = d.deliver(func() error { id, err = d.VolumeSnapshotter.CreateSnapshot(volumeID, zone, tags); return err })
	return id, err
}
