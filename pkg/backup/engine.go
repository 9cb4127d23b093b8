// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"io"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	vsv1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/volumesnapshotter/v1"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/velero"
	"github.com/velero-clipper/clipper/pkg/backup/fsbackup"
	"github.com/velero-clipper/clipper/pkg/hook"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// Taker takes snapshots; snapshot.Taker is one.
type Taker interface {
	// Take never blocks. It returns one future for each request, in the same order.
	Take(ctx context.Context, requests ...snapshot.Request) []*snapshot.Snapshot
	// AwaitReadiness returns when what is asked for would be created at once, or ctx ends.
	AwaitReadiness(ctx context.Context)
	// Reserve waits for room for these snapshots, or until ctx ends. The room is kept until release is called, after Take.
	Reserve(ctx context.Context, requests ...snapshot.Request) (release func())
}

// Settler removes snapshots and follows that; snapshot.Remover is one.
type Settler interface {
	// Remove asks for the removal of snapshots, the physical ones too.
	Remove(ctx context.Context, refs ...snapshot.Ref) error
	// LeaveGroup takes a VolumeSnapshot that is ready out of its group, if it is in one, so that it can be deleted by itself.
	LeaveGroup(ctx context.Context, namespace, name string) error
	// Settle waits until the snapshots are gone or ctx ends, and names those that are left.
	Settle(ctx context.Context, refs ...snapshot.Ref) []snapshot.Leftover
}

// Deps is what an Engine needs. All fields are required unless they say otherwise.
type Deps struct {
	// Client reads and writes without a cache.
	Client client.Client
	// Dynamic lists and gets items of any type.
	Dynamic dynamic.Interface
	// Discovery knows the cluster's resource types.
	Discovery discovery.Helper
	// Executor runs hooks in pods.
	Executor hook.Executor
	// Pods is asked before a pod is frozen whether it is still the one that was listed. Default: nobody is.
	Pods hook.Pods
	// OpenRecord begins the record of a backup's frozen pods. Default: none is kept, and pods stay frozen when the process dies.
	OpenRecord func(*velerov1.Backup) FreezeRecord
	// Taker and Settler take snapshots, remove those that turn out to be of no use, and follow the removal of failed ones.
	Taker   Taker
	Settler Settler
	// PodVolumes makes file-system backups of pod volumes. Default: none are made, and a pod that wants one fails.
	PodVolumes *fsbackup.Service
	// Parallelism is the server's limit of snapshots in flight; a percentage of it is resolved for each backup.
	Parallelism snapshot.Parallelism
	// Workers is how many item blocks may be walked, and so frozen, at once. Default: 1.
	Workers int
	// PageSize is how many objects one list request asks for; 0 means all at once.
	PageSize int
	// FreezeSeconds is told how long each pod was frozen. Default: nobody is.
	FreezeSeconds hook.Observer
	// FreezeLimits say how long pods may be frozen. Default: for ever.
	FreezeLimits FreezeLimits
	// BuiltIn plugins are called without a process of their own. Default: none.
	BuiltIn BuiltIn
	// Clock tells the time. Default: the real clock.
	Clock clock.WithTicker
}

// Engine takes backups. It is safe for concurrent use; each Run is on its own.
type Engine struct{ deps Deps }

// NewEngine returns an engine.
func NewEngine(deps Deps) *Engine {
	deps.Workers = max(deps.Workers, 1)
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	return &Engine{deps: deps}
}

// Request is one backup to be taken.
type Request struct {
	// Backup with all defaults filled in. It is what plugins see; the engine enters how many items there are, and nobody else
	// changes it. Its progress is patched in the cluster and returned in the Result.
	Backup *velerov1.Backup
	// Policies are the backup's resource policies, merged with the server's; nil when there are none.
	Policies *velero.Policies
	// SnapshotLocations are the backup's locations for native volume snapshots.
	SnapshotLocations []*velerov1.VolumeSnapshotLocation
	// ItemActions and BlockActions are the plugins' actions.
	ItemActions  framework.BackupItemActionResolverV2
	BlockActions framework.ItemBlockActionResolver
	// Snapshotters gives access to the plugins for native volume snapshots.
	Snapshotters VolumeSnapshotters
	// StopPlugins ends the plugins' processes, so that calls which hang return. Default: they are waited for.
	StopPlugins func()
	// Log is the backup's own log: an error line in it makes the backup PartiallyFailed (57).
	Log logrus.FieldLogger
}

// VolumeSnapshotters finds the plugin of a snapshot location's provider.
type VolumeSnapshotters interface {
	GetVolumeSnapshotter(provider string) (vsv1.VolumeSnapshotter, error)
}

// Run takes a backup and writes its tarball to out. An error means that the backup as a whole failed; what befalls single
// items is in the backup's log. The Result is never nil and tells what was done, whatever the error.
//
// When ctx ends, and when the backup can't succeed any more, no new pod is frozen, pods that are frozen are thawed, snapshots that are not cut are given up and
// removed, and Run returns the cause.
func (e *Engine) Run(ctx context.Context, request Request, out io.Writer) (*Result, error) {
	r, err := newRun(e.deps, request, out)
	if err != nil {
		return &Result{}, err
	}
	ctx, r.giveUp = context.WithCancelCause(ctx)
	defer r.giveUp(nil)
	reporting, stopReporting := context.WithCancel(ctx)
	var reporter errgroup.Group
	reporter.Go(func() error { r.progress.report(reporting); return nil })
	defer func() { stopReporting(); _ = reporter.Wait() }()
	defer func() { r.podVolumes.end(ctx) }()
	defer func() { r.closeRecord(ctx) }()

	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"resolving filters, hooks and plugins", r.resolve},
		{"collecting items", r.collect},
		{"planning blocks and volumes", r.plan},
		{"backing up blocks with hooks", r.hookedBlocks},
		{"backing up blocks without hooks", r.plainBlocks},
		{"backing up resource definitions", r.definitions},
		{"waiting for file-system backups", r.awaitPodVolumes},
		{"settling snapshots", r.settle},
		{"closing the tarball", r.closeArchive},
	}
	for _, step := range steps {
		if err := step.do(ctx); err != nil {
			_ = r.archive.Close() // a second Close only repeats the first one's error
			r.nameLeftovers(ctx)
			return r.result(), fmt.Errorf("%s: %w", step.what, err)
		}
	}
	stopReporting()
	_ = reporter.Wait() // it returns no error; this orders its last patch before the final one
	result := r.result()
	r.progress.final(ctx, result)
	return result, nil
}
