// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vmware-tanzu/velero/pkg/label"
	"golang.org/x/sync/errgroup"

	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// errServerGone is why a wait for Velero is given up early.
var errServerGone = errors.New("the server has ended and nothing is left that would start it again")

// takeBackups makes the scenario's backups, lets its events happen, and returns when all backups reached their last phase and
// all events happened.
func (r *run) takeBackups(ctx context.Context, background *errgroup.Group) error {
	origin := time.Now()
	r.board.update(func(rec *recording) { rec.origin = origin })
	work, workCtx := errgroup.WithContext(ctx)
	for _, b := range r.scenario.Backups {
		if b.After == "" && b.When == nil {
			if err := r.createBackup(ctx, b); err != nil {
				return err
			}
			continue
		}
		work.Go(func() error { return r.createAfter(workCtx, b) })
	}
	var noMoreEvents atomic.Bool
	work.Go(func() error {
		err := r.doEvents(workCtx, background)
		noMoreEvents.Store(true)
		r.board.wake()
		return err
	})
	work.Go(func() error { return r.awaitBackups(workCtx, &noMoreEvents) })
	err := work.Wait()
	r.afterBackups()
	return err
}

func (r *run) createBackup(ctx context.Context, b scenario.Backup) error {
	now := time.Now()
	r.board.update(func(rec *recording) { rec.backups[b.Name] = &backupRecord{name: b.Name, created: now} })
	if err := r.lab.cluster.Client().Create(ctx, backupObject(b)); err != nil {
		return fmt.Errorf("creating backup %s: %w", b.Name, err)
	}
	return nil
}

// createAfter makes a backup when the one that it waits for has reached its last phase.
func (r *run) createAfter(ctx context.Context, b scenario.Backup) error {
	if b.When != nil {
		if err := r.awaitCondition(ctx, *b.When, "creating backup "+b.Name); err != nil {
			return err
		}
		return r.createBackup(ctx, b)
	}
	err := r.board.wait(ctx, func(rec *recording) bool { return rec.terminal(b.After) })
	if err != nil {
		return unfinished(err, "backup %s, to create %s after it", b.After, b.Name)
	}
	return r.createBackup(ctx, b)
}

// terminal says whether a backup has reached a phase that it never leaves.
func (rec *recording) terminal(name string) bool {
	b := rec.backups[name]
	return b != nil && scenario.IsTerminal(b.phases.outcome())
}

// awaitBackups returns when every backup of the scenario has reached its last phase. It gives up when the server has
// ended and no event can start it again.
func (r *run) awaitBackups(ctx context.Context, noMoreEvents *atomic.Bool) error {
	gone := false
	err := r.board.wait(ctx, func(rec *recording) bool {
		gone = noMoreEvents.Load() && !rec.running
		return gone || len(r.openBackups(rec)) == 0
	})
	var open []string
	r.board.view(func(rec *recording) { open = r.openBackups(rec) })
	if err == nil && gone && len(open) > 0 {
		return &unfinishedError{waitingFor: strings.Join(open, ", "), err: errServerGone}
	}
	return unfinished(err, "%s", strings.Join(open, ", "))
}

// openBackups names the backups that have not reached their last phase.
func (r *run) openBackups(rec *recording) []string {
	var open []string
	for _, b := range r.scenario.Backups {
		if rec.terminal(b.Name) {
			continue
		}
		phase := "not created"
		if record := rec.backups[b.Name]; record != nil {
			phase = "in phase " + record.phases.last()
		}
		open = append(open, fmt.Sprintf("backup %s (%s)", b.Name, strings.TrimSpace(phase)))
	}
	return open
}

// afterBackups notes what can be seen at this moment only, before steps delete backups and the cluster comes to rest.
func (r *run) afterBackups() {
	r.board.view(func(rec *recording) {
		for _, b := range rec.backups {
			if at := b.phases.terminalAt(); at.After(r.lastPhase) {
				r.lastPhase = at
			}
		}
		vs, vsc := rec.leftovers()
		r.leftovers.AtTerminal = len(vs) + len(vsc)
	})
	if r.lastPhase.IsZero() {
		r.lastPhase = time.Now()
	}
	for _, b := range r.scenario.Backups {
		r.readArtifacts(b.Name)
	}
}

// leftovers names the VolumeSnapshots and contents in the cluster that a backup made, and that are there still.
func (rec *recording) leftovers() (vs, vsc []string) {
	for _, s := range rec.snapshots {
		if s.restore == "" && !rec.foreign[s.uid] && s.deleted.IsZero() {
			vs = append(vs, fmt.Sprintf("VolumeSnapshot %s/%s", s.namespace, s.name))
		}
	}
	for _, c := range rec.contents {
		if c.restore == "" && !rec.foreign[c.snapshot] && !rec.foreign[c.uid] && c.deleted.IsZero() {
			vsc = append(vsc, "VolumeSnapshotContent "+c.name)
		}
	}
	slices.Sort(vs)
	slices.Sort(vsc)
	return vs, vsc
}

// progress is what conditions are held against.
func (r *run) progress(rec *recording) scenario.Progress {
	p := scenario.Progress{Phases: map[string]string{}, Gone: map[string]bool{}, ServerReady: rec.ready, ServerExited: !rec.running && len(rec.exits) > 0}
	for _, s := range rec.snapshots {
		if s.restore == "" && !rec.notOfBackups(s.uid) {
			p.Created++
		}
	}
	for _, c := range rec.contents {
		if c.restore == "" && !rec.notOfBackups(c.snapshot) && !c.cut.IsZero() {
			p.Cuts++
		}
	}
	execs := r.executions(rec.origin)
	for _, e := range execs {
		if !e.end.IsZero() {
			p.Hooks++
		}
	}
	p.Frozen = frozenPods(execs, r.hooks)
	for name, b := range rec.backups {
		if b.uid != "" && b.gone.IsZero() {
			p.Backups++
		}
		p.Phases[name], p.Gone[name] = b.phases.outcome(), !b.gone.IsZero()
	}
	for _, call := range r.driverCalls(rec.origin) {
		if call.method == methodCreate {
			p.Calls++
		}
	}
	return p
}

// driverCalls are the calls to all drivers since a moment, in the order of their start.
func (r *run) driverCalls(since time.Time) []driverCall {
	var out []driverCall
	for name, d := range r.lab.drivers {
		for _, call := range d.Calls() {
			if call.Start.Before(since) {
				continue
			}
			c := driverCall{
				driver: name, method: call.Method, name: call.Name, volume: call.Volume, snapshot: call.SnapshotID,
				start: call.Start, end: call.End,
			}
			c.throttled = call.Throttled
			if call.Code != "" && call.Code != "OK" {
				c.err = call.Code + ": " + call.Message
			}
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(x, y driverCall) int { return x.start.Compare(y.start) })
	return out
}

// restoreResult is a restore as far as the board has it.
func (r *run) restoreResult(name string) *result.Restore {
	out := &result.Restore{PVCs: map[string]string{}, ResultErrors: []string{}}
	labelled := label.GetValidName(name)
	r.board.view(func(rec *recording) {
		record := rec.restores[name]
		if record == nil {
			return
		}
		out.Phase, out.Errors, out.Warnings = record.phases.last(), record.status.Errors, record.status.Warnings
		if len(record.phases) > 0 {
			out.Seconds = record.phases[len(record.phases)-1].at.Sub(record.created).Seconds()
		}
		for _, s := range rec.snapshots {
			if s.restore == labelled {
				out.VS++
			}
		}
		for _, c := range rec.contents {
			if c.restore == labelled {
				out.VSC++
			}
		}
	})
	return out
}
