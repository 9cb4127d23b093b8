// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// hookKind says what a command is for.
type hookKind string

const (
	hookNone hookKind = "command"
	hookPre  hookKind = "pre hook"
	hookPost hookKind = "post hook"
)

// hookCommands tells pre hooks from post hooks by their commands, which a scenario keeps apart.
type hookCommands map[string]hookKind

const wordSeparator = "\x00"

func (h hookCommands) kind(command []string) hookKind {
	return cmp.Or(h[strings.Join(command, wordSeparator)], hookNone)
}

func (h hookCommands) add(command []string, kind hookKind) {
	h[strings.Join(command, wordSeparator)] = kind
}

// commandsOf gathers the hooks of the pods and of the backups' specs.
func commandsOf(s *scenario.Scenario) hookCommands {
	h := hookCommands{}
	for _, namespace := range s.Workload {
		for _, pod := range namespace.Pods {
			if pod.Hooks.Pre != nil {
				h.add(pod.Hooks.Pre.Command, hookPre)
			}
			if pod.Hooks.Post != nil {
				h.add(pod.Hooks.Post.Command, hookPost)
			}
		}
	}
	backups := slices.Clone(s.Backups)
	for _, step := range s.Then {
		if step.Backup != nil {
			backups = append(backups, *step.Backup)
		}
	}
	for _, backup := range backups {
		for _, resource := range backup.Spec.Hooks.Resources {
			for _, hook := range resource.PreHooks {
				if hook.Exec != nil {
					h.add(hook.Exec.Command, hookPre)
				}
			}
			for _, hook := range resource.PostHooks {
				if hook.Exec != nil {
					h.add(hook.Exec.Command, hookPost)
				}
			}
		}
	}
	return h
}

// window is a freeze window in wall-clock time. Zero times have not come yet.
type window struct {
	start, frozen, thawing, end time.Time
}

// open says whether the pod is frozen still.
func (w window) open() bool { return w.end.IsZero() }

// windows cuts the commands that ran in one pod, in the order of their start, into freeze windows: a pre hook after a post hook
// begins a new one.
func windows(execs []execution, hooks hookCommands) []window {
	var out []window
	for _, e := range execs {
		switch hooks.kind(e.command) {
		case hookPre:
			if len(out) == 0 || !out[len(out)-1].thawing.IsZero() {
				out = append(out, window{start: e.start})
			}
			out[len(out)-1].frozen = e.end
		case hookPost:
			if len(out) == 0 {
				continue
			}
			last := &out[len(out)-1]
			first(&last.thawing, e.start)
			last.end = e.end
		}
	}
	return out
}

// byPod groups the commands by pod, each group in the order of start.
func byPod(execs []execution) map[string][]execution {
	groups := map[string][]execution{}
	for _, e := range execs {
		groups[e.pod] = append(groups[e.pod], e)
	}
	for _, group := range groups {
		slices.SortStableFunc(group, func(x, y execution) int { return x.start.Compare(y.start) })
	}
	return groups
}

func (a *analysis) pods() {
	execs := byPod(a.rec.execs)
	for _, pod := range a.workload.Pods {
		p := &result.Pod{
			Hooked: a.hooked[pod.Key()], PVCs: []string{}, Windows: []result.Window{}, Thawed: true,
			FileSystemBackups: a.fileSystemBackups(pod.Key()),
		}
		for _, claim := range pod.Claims {
			p.PVCs = append(p.PVCs, pod.Namespace+"/"+claim)
		}
		for _, e := range execs[pod.Key()] {
			switch a.hooks.kind(e.command) {
			case hookPre:
				p.PreHooks++
			case hookPost:
				p.PostHooks++
			}
		}
		all := windows(execs[pod.Key()], a.hooks)
		for _, w := range all {
			a.addWindow(p, w)
		}
		a.measure(p)
		if p.Hooked {
			p.CallsOutsideWindow = a.callsOutside(p, all)
		}
		a.out.Pods[pod.Key()] = p
	}
}

func (a *analysis) fileSystemBackups(pod string) []result.FileSystemBackup {
	found := []result.FileSystemBackup{}
	for _, r := range a.rec.podVolumes {
		if r.pod == pod {
			found = append(found, result.FileSystemBackup{
				Backup: r.backup, Volume: r.volume, CreatedAt: a.at(r.created), EndedAt: a.at(r.ended), Phase: r.phase,
			})
		}
	}
	return found
}

func (a *analysis) addWindow(p *result.Pod, w window) {
	out := result.Window{StartedAt: a.at(w.start), FrozenAt: a.at(w.frozen), ThawingAt: a.at(w.thawing), EndedAt: a.at(w.end)}
	if w.open() {
		p.Thawed = false
	} else {
		out.Seconds = w.end.Sub(w.start).Seconds()
	}
	p.FreezeSeconds = max(p.FreezeSeconds, out.Seconds)
	p.Windows = append(p.Windows, out)
}

// measure looks at the pod's claims in each backup.
func (a *analysis) measure(p *result.Pod) {
	for _, b := range a.out.Backups {
		var starts []float64
		for _, name := range p.PVCs {
			pvc := b.PVCs[name]
			if pvc == nil {
				continue
			}
			if !pvc.TooLate {
				p.SlowestCutSeconds = max(p.SlowestCutSeconds, pvc.CutSeconds)
			}
			p.SlowestDriverSeconds = max(p.SlowestDriverSeconds, pvc.DriverSeconds)
			if pvc.Calls > 0 {
				starts = append(starts, pvc.CallStartedAt)
			}
		}
		if len(starts) > 0 {
			p.CallSpreadSeconds = max(p.CallSpreadSeconds, slices.Max(starts)-slices.Min(starts))
		}
	}
}

// callsOutside counts the calls that cut a snapshot of one of the pod's claims outside all its freeze windows. Later
// calls for the same snapshot only ask whether it is ready, and may come at any time.
func (a *analysis) callsOutside(p *result.Pod, all []window) int {
	outside := 0
	for _, call := range a.cutting() {
		if !slices.Contains(p.PVCs, call.volume) {
			continue
		}
		inside := slices.ContainsFunc(all, func(w window) bool {
			return !call.start.Before(w.frozen) && (w.thawing.IsZero() || !call.end.After(w.thawing))
		})
		if !inside {
			outside++
		}
	}
	return outside
}

// cutting is the first successful CreateSnapshot call of each snapshot, the one that gave its point in time.
func (a *analysis) cutting() []driverCall {
	var out []driverCall
	seen := map[string]bool{}
	for _, call := range a.rec.calls {
		if call.method != methodCreate || call.err != "" || call.end.IsZero() || seen[call.name] {
			continue
		}
		seen[call.name] = true
		out = append(out, call)
	}
	return out
}

// order compares the calls for volumes without hooks with the freeze windows of the others.
func (a *analysis) order() {
	var all []window
	for _, execs := range byPod(a.rec.execs) {
		all = append(all, windows(execs, a.hooks)...)
	}
	a.out.Order.MostFrozenPods = mostOpen(all)
	for _, w := range all {
		a.out.Order.LastThawAt = max(a.out.Order.LastThawAt, a.at(w.end))
	}
	for _, call := range a.rec.calls {
		if call.method != methodCreate || a.isHooked(call.volume) {
			continue
		}
		start := a.at(call.start)
		if a.out.Order.FirstPlainCallAt == 0 || start < a.out.Order.FirstPlainCallAt {
			a.out.Order.FirstPlainCallAt = start
		}
		if start < a.out.Order.LastThawAt {
			a.out.Order.PlainCallsBeforeThaw++
		}
		if slices.ContainsFunc(all, func(w window) bool { return w.covers(call.start) }) {
			a.out.Order.PlainCallsWhileFrozen++
		}
	}
}

func (a *analysis) isHooked(claim string) bool {
	return slices.ContainsFunc(a.podsOf[claim], func(pod string) bool { return a.hooked[pod] })
}

func (w window) covers(t time.Time) bool {
	return !t.Before(w.start) && (w.open() || t.Before(w.end))
}

// mostOpen is the largest number of windows that overlapped.
func mostOpen(all []window) int {
	spans := make([]driverCall, 0, len(all))
	for _, w := range all {
		spans = append(spans, driverCall{start: w.start, end: w.end})
	}
	return peak(spans)
}

// frozenPods counts the pods that are frozen now.
func frozenPods(execs []execution, hooks hookCommands) int {
	count := 0
	for _, group := range byPod(execs) {
		if all := windows(group, hooks); len(all) > 0 && all[len(all)-1].open() {
			count++
		}
	}
	return count
}
