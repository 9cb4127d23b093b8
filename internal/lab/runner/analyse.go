// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"

	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// analysis turns a recording into the parts of a result that follow from it. It looks at nothing else, so that tables of
// made-up recordings cover it.
type analysis struct {
	rec      *recording
	workload scenario.Workload
	hooks    hookCommands
	out      *result.Result

	byLabel map[string]string   // backup name by the value of its label
	podsOf  map[string][]string // pods by claim, both "namespace/name"
	hooked  map[string]bool     // pods that are frozen by a hook, "namespace/name"
}

// analyse fills in backups, restores, pods, order, drivers, server exits and timeline.
func analyse(rec *recording, s *scenario.Scenario) *result.Result {
	a := &analysis{
		rec: rec, workload: s.Expand(), hooks: commandsOf(s),
		out: &result.Result{
			Scenario: s.Name, StartedAt: rec.origin,
			Backups: map[string]*result.Backup{}, Restores: map[string]*result.Restore{}, Deletions: map[string]*result.Deletion{},
			Commands: map[string]*result.Command{}, Pods: map[string]*result.Pod{}, Drivers: map[string]*result.Driver{},
		},
		byLabel: map[string]string{}, podsOf: map[string][]string{}, hooked: map[string]bool{},
	}
	a.index()
	a.backups()
	a.claims()
	a.pods()
	a.order()
	a.drivers(s)
	a.server()
	a.metrics()
	a.timeline()
	return a.out
}

func (a *analysis) index() {
	for name := range a.rec.backups {
		a.byLabel[label.GetValidName(name)] = name
	}
	for _, claim := range a.workload.Claims {
		a.podsOf[claim.Key()] = claim.Pods
	}
	for _, pod := range a.workload.Pods {
		a.hooked[pod.Key()] = pod.Hooked()
	}
	for _, e := range a.rec.execs {
		if a.hooks.kind(e.command) != hookNone {
			a.hooked[e.pod] = true
		}
	}
}

// at is the result's notion of time; what never happened is 0.
func (a *analysis) at(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return t.Sub(a.rec.origin).Seconds()
}

func (a *analysis) backups() {
	for name, record := range a.rec.backups {
		b := &result.Backup{
			Phase: record.phases.outcome(), Terminal: scenario.IsTerminal(record.phases.outcome()),
			FailureReason: record.status.FailureReason, ValidationErrors: nonNil(record.status.ValidationErrors),
			Errors: record.status.Errors, Warnings: record.status.Warnings,
			CreatedAt: a.at(record.created), PVCs: map[string]*result.PVC{},
			Phases: []result.PhaseChange{}, Tarball: []string{}, LogErrors: []string{}, LogWarnings: []string{},
			ResultErrors: []string{}, ResultWarnings: []string{},
		}
		if progress := record.status.Progress; progress != nil {
			b.ItemsBackedUp, b.TotalItems = progress.ItemsBackedUp, progress.TotalItems
		}
		for _, seen := range record.phases {
			b.Phases = append(b.Phases, result.PhaseChange{Phase: seen.phase, At: a.at(seen.at)})
		}
		began, left := record.phases.inProgress()
		b.SecondsInProgress = left.Sub(began).Seconds()
		if b.Terminal {
			b.SecondsToTerminal = record.phases.terminalAt().Sub(record.created).Seconds()
			if !left.IsZero() {
				b.SecondsFinishing = record.phases.terminalAt().Sub(left).Seconds()
			}
		}
		a.out.Backups[name] = b
	}
}

// outcome is the phase that counts: the one that a backup never leaves, or else the present one. A backup that is
// deleted afterwards passes through Deleting, which says nothing about how it went.
func (p phases) outcome() string {
	for _, seen := range p {
		if scenario.IsTerminal(seen.phase) {
			return seen.phase
		}
	}
	return p.last()
}

// terminalAt is when the first phase that a backup never leaves was seen.
func (p phases) terminalAt() time.Time {
	for _, seen := range p {
		if scenario.IsTerminal(seen.phase) {
			return seen.at
		}
	}
	return time.Time{}
}

// inProgress is when the change to InProgress and the next change after it were seen; both zero when there was none.
func (p phases) inProgress() (began, left time.Time) {
	for i, seen := range p {
		if seen.phase == string(velerov1.BackupPhaseInProgress) && i+1 < len(p) {
			return seen.at, p[i+1].at
		}
	}
	return time.Time{}, time.Time{}
}

// claims writes what happened to each claim in each backup, the older VolumeSnapshots of a claim first.
func (a *analysis) claims() {
	snapshots := make([]*snapshotRecord, 0, len(a.rec.snapshots))
	for _, s := range a.rec.snapshots {
		snapshots = append(snapshots, s)
	}
	slices.SortFunc(snapshots, func(x, y *snapshotRecord) int {
		return cmp.Or(x.created.Compare(y.created), strings.Compare(x.name, y.name))
	})
	volumes := map[string]bool{}
	for _, snapshot := range snapshots {
		b, ok := a.out.Backups[a.byLabel[snapshot.backup]]
		if !ok || snapshot.pvc == "" {
			continue
		}
		key := snapshot.namespace + "/" + snapshot.pvc
		volumes[key] = true
		pvc := a.claim(key, snapshot)
		if earlier := b.PVCs[key]; earlier != nil {
			pvc.Attempts += earlier.Attempts
		}
		b.PVCs[key] = pvc
	}
	a.uploads()
	for _, b := range a.out.Backups {
		for _, pvc := range b.PVCs {
			switch pvc.Verdict {
			case result.VerdictReady:
				b.Cuts++
				b.Ready++
			case result.VerdictCut:
				b.Cuts++
			}
		}
	}
	a.out.Volumes = len(volumes)
}

// uploads adds the DataUploads to their claims.
func (a *analysis) uploads() {
	for _, upload := range a.rec.uploads {
		b := a.out.Backups[a.byLabel[upload.backup]]
		if b == nil || b.PVCs[upload.claim] == nil {
			continue
		}
		pvc := b.PVCs[upload.claim]
		pvc.Uploads++
		pvc.UploadCreatedAt, pvc.UploadPhase = a.at(upload.created), upload.phase
	}
}

func (a *analysis) claim(key string, snapshot *snapshotRecord) *result.PVC {
	pvc := &result.PVC{
		Pods: nonNil(a.podsOf[key]), VolumeSnapshot: snapshot.name, Attempts: 1,
		CreatedAt: a.at(snapshot.created), ReadyAt: a.at(snapshot.ready), DeletedAt: a.at(snapshot.deleted),
		Error: snapshot.err,
	}
	for _, pod := range pvc.Pods {
		pvc.Hooked = pvc.Hooked || a.hooked[pod]
	}
	if content := a.rec.contentOf(snapshot.uid); content != nil {
		pvc.Driver, pvc.CutAt = content.driver, a.at(content.cut)
		if pvc.ReadyAt == 0 {
			pvc.ReadyAt = a.at(content.ready)
		}
		pvc.Error = cmp.Or(content.err, pvc.Error)
	}
	if pvc.CutAt != 0 {
		pvc.CutSeconds = pvc.CutAt - pvc.CreatedAt
	}
	for _, call := range a.rec.calls {
		if call.method == methodCreate && call.name == snapshotName(snapshot) {
			a.addCall(pvc, call)
		}
	}
	pvc.TooLate = a.tooLate(snapshot, pvc)
	pvc.Verdict = verdict(pvc)
	return pvc
}

// snapshotName is what the csi-snapshotter calls the snapshot of a VolumeSnapshot towards the driver.
func snapshotName(s *snapshotRecord) string { return "snapshot-" + string(s.uid) }

// addCall adds a call to those for a claim, in the order of their start. Once one has succeeded the snapshot is cut, and
// the times stay: further calls only ask whether it is ready.
func (a *analysis) addCall(pvc *result.PVC, call driverCall) {
	pvc.Calls++
	if pvc.Calls == 1 {
		pvc.CallStartedAt = a.at(call.start)
	}
	if call.end.IsZero() || pvc.DriverCut {
		return
	}
	pvc.CallEndedAt = a.at(call.end)
	pvc.DriverSeconds = max(pvc.DriverSeconds, call.end.Sub(call.start).Seconds())
	pvc.DriverCut = call.err == ""
}

// tooLate says whether the backup had given the snapshot up before it was cut.
func (a *analysis) tooLate(snapshot *snapshotRecord, pvc *result.PVC) bool {
	if pvc.CutAt == 0 {
		return false
	}
	if !snapshot.deleting.IsZero() && pvc.CutAt > a.at(snapshot.deleting) {
		return true
	}
	end := a.rec.backups[a.byLabel[snapshot.backup]].phases.terminalAt()
	return !end.IsZero() && pvc.CutAt > a.at(end)
}

func verdict(pvc *result.PVC) string {
	switch {
	case pvc.TooLate:
		return result.VerdictFailed
	case pvc.ReadyAt != 0:
		return result.VerdictReady
	case pvc.CutAt != 0:
		return result.VerdictCut
	case pvc.Error != "" || pvc.DeletedAt != 0:
		return result.VerdictFailed
	}
	return result.VerdictPending
}

// drivers counts the calls since the first backup.
func (a *analysis) drivers(s *scenario.Scenario) {
	for _, d := range s.Storage.Drivers {
		a.out.Drivers[d.Name] = &result.Driver{}
	}
	var creates = map[string][]driverCall{}
	for _, call := range a.rec.calls {
		d := a.out.Drivers[call.driver]
		if d == nil {
			continue
		}
		switch call.method {
		case methodCreate:
			d.Creates++
			creates[call.driver] = append(creates[call.driver], call)
		case methodDelete:
			d.Deletes++
		}
		if call.err != "" {
			d.Failed++
		}
		if call.throttled {
			d.Throttled++
		}
	}
	for name, calls := range creates {
		a.out.Drivers[name].PeakInFlight = peak(calls)
	}
}

// peak is the largest number of calls that overlapped. A call that ended when another began does not overlap it.
func peak(calls []driverCall) int {
	type step struct {
		at    time.Time
		delta int
	}
	var steps []step
	for _, call := range calls {
		steps = append(steps, step{call.start, 1})
		if !call.end.IsZero() {
			steps = append(steps, step{call.end, -1})
		}
	}
	slices.SortFunc(steps, func(x, y step) int { return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.delta, y.delta)) })
	now, most := 0, 0
	for _, s := range steps {
		now += s.delta
		most = max(most, now)
	}
	return most
}

func (a *analysis) server() {
	a.out.Server.Starts = a.rec.starts
	a.out.Server.Exits = []result.Exit{}
	for _, exit := range a.rec.exits {
		a.out.Server.Exits = append(a.out.Server.Exits, result.Exit{At: a.at(exit.at), Status: exit.status, Expected: exit.expected})
		if !exit.expected {
			a.out.Server.UnexpectedExits++
		}
	}
}

// timeline puts everything with a time in order.
func (a *analysis) timeline() {
	for _, n := range a.rec.notes {
		a.event(n.at, n.kind, n.object, n.message)
	}
	for name, record := range a.rec.backups {
		a.event(record.created, result.KindBackup, name, "created")
		for _, seen := range record.phases {
			a.event(seen.at, result.KindBackup, name, seen.phase)
		}
		a.event(record.gone, result.KindBackup, name, "gone")
	}
	for name, record := range a.rec.restores {
		for _, seen := range record.phases {
			a.event(seen.at, result.KindRestore, name, seen.phase)
		}
	}
	for _, s := range a.rec.snapshots {
		a.snapshotEvents(s)
	}
	for _, e := range a.rec.execs {
		kind := a.hooks.kind(e.command)
		a.event(e.start, result.KindHook, e.pod, fmt.Sprintf("%s %q starts", kind, strings.Join(e.command, " ")))
		a.event(e.end, result.KindHook, e.pod, fmt.Sprintf("%s %q ended with exit status %d", kind, strings.Join(e.command, " "), e.exit))
	}
	for _, call := range a.rec.calls {
		if call.method != methodCreate && call.method != methodDelete {
			continue // questions of the sidecar, which change nothing
		}
		object := cmp.Or(call.volume, call.snapshot)
		a.event(call.start, result.KindDriver, object, call.method+" starts")
		a.event(call.end, result.KindDriver, object, strings.TrimSpace(call.method+" ended "+call.err))
	}
	slices.SortStableFunc(a.out.Timeline, func(x, y result.Event) int {
		return cmp.Or(cmp.Compare(x.At, y.At), strings.Compare(x.Kind, y.Kind), strings.Compare(x.Object, y.Object))
	})
}

func (a *analysis) snapshotEvents(s *snapshotRecord) {
	if a.rec.notOfBackups(s.uid) {
		return
	}
	object := s.namespace + "/" + cmp.Or(s.pvc, s.name)
	a.event(s.created, result.KindSnapshot, object, "VolumeSnapshot "+s.name+" created")
	if content := a.rec.contentOf(s.uid); content != nil {
		a.event(content.cut, result.KindSnapshot, object, "cut")
	}
	a.event(s.ready, result.KindSnapshot, object, "ready to use")
	a.event(s.deleted, result.KindSnapshot, object, "VolumeSnapshot "+s.name+" gone")
}

func (a *analysis) event(t time.Time, kind, object, message string) {
	if !t.IsZero() {
		a.out.Timeline = append(a.out.Timeline, result.Event{At: a.at(t), Kind: kind, Object: object, Message: message})
	}
}

// nonNil makes JSON write an empty list instead of null.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
