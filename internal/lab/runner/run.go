// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/velero-clipper/clipper/internal/lab/driver"
	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

// Options of an experiment.
type Options struct {
	// Scenario from scenario.Load. Required.
	Scenario *scenario.Scenario
	// Engine overrides the scenario's engine. Default: the scenario's.
	Engine string
	// Velero is the velero binary. Required.
	Velero string
	// Recorder is the recording plugin. Required by scenarios whose server has plugins.
	Recorder string
	// Programs and SnapshotCRDs are what toolchain.Ensure and toolchain.SnapshotCRDs returned. Required.
	Programs     toolchain.Paths
	SnapshotCRDs string
	// Dir gets state and logs. Default: a temporary folder.
	Dir string
	// Keep leaves Dir in place at the end; result.Server.LogDir names it. Otherwise it is removed.
	Keep bool
	// Progress gets a line for each step, for people. Default: discarded.
	Progress io.Writer
	// FloorOnly ends the experiment when the floor has been measured.
	FloorOnly bool
}

// SetupError says that the experiment could not be made at all, in contrast to one that failed.
type SetupError struct {
	// Step is what was being done.
	Step string
	Err  error
}

func (e *SetupError) Error() string { return e.Step + ": " + e.Err.Error() }

func (e *SetupError) Unwrap() error { return e.Err }

// run is one experiment.
type run struct {
	opts     Options
	scenario *scenario.Scenario
	workload scenario.Workload
	hooks    hookCommands
	board    *board
	lab      *lab
	server   *serverControl

	floor      time.Duration
	unfinished string
	startError string
	artifacts  map[string]*artifacts
	restores   map[string]*result.Restore
	deletions  map[string]*result.Deletion
	commands   map[string]*result.Command
	leftovers  result.Leftovers
	// second is the second cluster, once a step was done in it; first is set in the run of the second cluster only.
	second, first *run
	lastPhase     time.Time // when the last backup of the main part reached its last phase
}

// Run makes one experiment. The error is a *SetupError when it could not be made.
func Run(ctx context.Context, opts Options) (*result.Result, error) {
	r, err := newRun(opts)
	if err != nil {
		return nil, &SetupError{Step: "preparing the experiment", Err: err}
	}
	defer r.removeDir()
	group, groupCtx := errgroup.WithContext(ctx)
	work, stop := context.WithCancel(groupCtx)
	var out *result.Result
	group.Go(func() error {
		defer stop()
		var err error
		out, err = r.experiment(work, group)
		return err
	})
	// The first error is the cause; the others only follow from the end of the context.
	err = group.Wait()
	r.lab.closeLogs()
	var setup *SetupError
	if err != nil && !errors.As(err, &setup) {
		err = &SetupError{Step: "running the lab", Err: err}
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func newRun(opts Options) (*run, error) {
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	s := *opts.Scenario
	if opts.Engine != "" {
		s.Server.Engine = opts.Engine
	}
	var err error
	if opts.Velero, err = filepath.Abs(opts.Velero); err != nil {
		return nil, err
	}
	if opts.Dir == "" {
		// A short path: it holds unix sockets, whose paths have a limit of about 100 bytes.
		if opts.Dir, err = os.MkdirTemp("", "lab-"); err != nil {
			return nil, err
		}
	}
	if opts.Dir, err = filepath.Abs(opts.Dir); err != nil {
		return nil, err
	}
	return &run{
		opts: opts, scenario: &s, workload: s.Expand(), hooks: commandsOf(&s), board: newBoard(),
		lab:       &lab{drivers: map[string]*driver.Driver{}},
		artifacts: map[string]*artifacts{}, restores: map[string]*result.Restore{},
		deletions: map[string]*result.Deletion{}, commands: map[string]*result.Command{},
	}, nil
}

func (r *run) removeDir() {
	if !r.opts.Keep {
		// What is left in a temporary folder harms nobody.
		_ = os.RemoveAll(r.opts.Dir)
	}
}

// experiment is the list of steps. Whatever they start in the background belongs to the group and ends with the context.
func (r *run) experiment(ctx context.Context, group *errgroup.Group) (*result.Result, error) {
	defer r.stop()
	for _, step := range r.setup() {
		if err := r.step(ctx, group, step); err != nil {
			return nil, err
		}
	}
	if r.startError == "" && !r.opts.FloorOnly && len(r.scenario.Backups) > 0 {
		if err := r.measured(ctx, group); err != nil {
			return nil, err
		}
	}
	out, err := r.collect(ctx)
	if err != nil {
		return nil, &SetupError{Step: "collecting the results", Err: err}
	}
	return out, nil
}

// measured is the part with the backups. What does not come to its end in it is an outcome, not an error.
func (r *run) measured(ctx context.Context, group *errgroup.Group) error {
	r.say("taking the backups")
	limited, cancel := context.WithTimeoutCause(ctx, r.scenario.Timeout.Duration(), errTimeout)
	defer cancel()
	sampling, stopSampling := context.WithCancel(ctx)
	defer stopSampling()
	group.Go(func() error {
		r.sampleMetrics(sampling)
		return nil
	})
	err := r.takeBackups(limited, group)
	if err == nil {
		err = r.doSteps(limited, group)
	}
	var unfinished *unfinishedError
	switch {
	case errors.As(err, &unfinished):
		r.unfinished = unfinished.Error()
	case err != nil:
		return &SetupError{Step: "taking the backups", Err: err}
	}
	r.say("waiting for the cluster to come to rest")
	if r.second != nil {
		if err := r.second.settle(ctx); err != nil {
			return err
		}
	}
	return r.settle(ctx)
}

// step is a part of the set-up, with a name for people. What it starts in the background belongs to the group.
type step struct {
	name string
	do   func(context.Context, *errgroup.Group) error
}

// setup lists what comes before the backups.
func (r *run) setup() []step {
	steps := []step{{"starting the cluster", r.startLab}, {"creating the workload", r.createWorkload}}
	if r.scenario.Cluster.OldSnapshots > 0 {
		steps = append(steps, step{"creating the old snapshots", r.createOldSnapshots})
	}
	if *r.scenario.Floor && *r.scenario.Cluster.SnapshotCRDs {
		steps = append(steps, step{"measuring the floor", r.measureFloor})
	}
	if !r.opts.FloorOnly {
		steps = append(steps, step{"starting the Velero server", r.startServer})
	}
	return steps
}

func (r *run) step(ctx context.Context, group *errgroup.Group, s step) error {
	r.say("%s", s.name)
	if err := s.do(ctx, group); err != nil {
		return &SetupError{Step: s.name, Err: errors.Join(err, r.lab.failed())}
	}
	return nil
}

// errTimeout is the cause of a context that the scenario's timeout ended.
var errTimeout = errors.New("the scenario's timeout passed")

// unfinishedError says that something that the scenario waits for did not happen.
type unfinishedError struct {
	waitingFor string
	err        error
}

func (e *unfinishedError) Error() string {
	return fmt.Sprintf("waiting for %s: %s", e.waitingFor, e.err)
}

func (e *unfinishedError) Unwrap() error { return e.err }

// unfinished sorts the error of a wait: the scenario's timeout is an outcome, an interrupt is an error.
func unfinished(err error, format string, args ...any) error {
	if err == nil || !errors.Is(err, errTimeout) {
		return err
	}
	return &unfinishedError{waitingFor: fmt.Sprintf(format, args...), err: err}
}

// say tells the person in front of the screen what is being done.
func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.opts.Progress, "%s: %s\n", r.scenario.Name, fmt.Sprintf(format, args...))
}

// note puts a line into the timeline.
func (r *run) note(kind, object, format string, args ...any) {
	now := time.Now()
	r.board.update(func(rec *recording) {
		rec.notes = append(rec.notes, note{at: now, kind: kind, object: object, message: fmt.Sprintf(format, args...)})
	})
}
