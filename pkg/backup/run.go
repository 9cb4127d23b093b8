// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/util/volumehelper"

	"github.com/velero-clipper/clipper/pkg/backup/archive"
	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/filter"
	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
	"github.com/velero-clipper/clipper/pkg/backup/volume"
	"github.com/velero-clipper/clipper/pkg/hook"
)

// run is the state of one Run. The steps fill it in order; what several goroutines use at once guards itself.
type run struct {
	deps    Deps
	request Request
	backup  *velerov1.Backup
	log     logrus.FieldLogger

	archive    *archive.Writer
	visits     *visits
	operations *operations
	progress   *progress
	volumes    *volume.Ledger
	objects    *volume.Objects
	native     *volume.Native
	mover      *volume.Mover
	podVolumes *podVolumes
	// workers holds a token for each block that is being walked.
	workers chan struct{}
	// giveUp ends the run because it can't succeed any more: pods would be frozen, and snapshots taken, for nothing.
	giveUp context.CancelCauseFunc

	// Filled by resolve.
	filter       *filter.Set
	hooks        *hook.Set
	runner       *hook.Runner
	record       FreezeRecord
	actions      []action
	blockActions []itemblock.Action
	planner      *volume.Planner
	helper       volumehelper.VolumeHelper

	// Filled by collect and plan.
	items  []collect.Item
	blocks blocks
	claims *claims
}

func newRun(deps Deps, request Request, out io.Writer) (*run, error) {
	tarball, err := archive.NewWriter(out, deps.Clock)
	if err != nil {
		return nil, fmt.Errorf("starting the tarball: %w", err)
	}
	r := &run{
		deps:       deps,
		request:    request,
		backup:     request.Backup,
		log:        request.Log,
		archive:    tarball,
		visits:     newVisits(),
		operations: &operations{},
		volumes:    volume.NewLedger(request.Backup),
		objects:    volume.NewObjects(deps.Client),
		workers:    make(chan struct{}, deps.Workers),
	}
	r.mover = volume.NewMover(request.Backup, deps.Client)
	r.progress = newProgress(deps, request, r.visits)
	return r, nil
}

// worker takes a worker for as long as do runs: that is how plugins are called by no more goroutines at once than the
// server allows. A panic fails the backup, not the server (369).
func (r *run) worker(ctx context.Context, do func()) (err error) {
	select {
	case r.workers <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
			r.giveUp(err)
		}
		<-r.workers
	}()
	if ctx.Err() != nil { // select picks any of two cases that are both possible
		return context.Cause(ctx)
	}
	do()
	return nil
}

func (r *run) closeArchive(context.Context) error { return r.archive.Close() }
