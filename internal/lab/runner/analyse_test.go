// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

var origin = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)

// at is a moment of a made-up recording, in seconds since the first backup.
func at(seconds float64) time.Time {
	return origin.Add(time.Duration(seconds * float64(time.Second)))
}

// storyboard is one hooked pod with two claims and one plain pod.
func storyboard(t *testing.T) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("story.yaml", []byte(`
name: story
workload:
- namespace: app
  pods:
  - {name: db, pvcs: 2, hooks: {pre: {command: freeze}, post: {command: thaw}}}
  - {name: web, pvcs: 1}
backups:
- {name: b1, spec: {includedNamespaces: [app]}}
`))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return s
}

// addVolume records a VolumeSnapshot with its content and the driver's one call.
func addVolume(rec *recording, pvc string, created, cut float64) {
	uid := types.UID("uid-" + pvc)
	rec.snapshots[uid] = &snapshotRecord{uid: uid, namespace: "app", name: "vs-" + pvc, pvc: pvc, backup: "b1", created: at(created), ready: at(cut)}
	rec.contents["c-"+uid] = &contentRecord{name: "vsc-" + pvc, snapshot: uid, driver: scenario.DefaultDriver, handle: "h", created: at(created), cut: at(cut)}
	rec.calls = append(rec.calls, driverCall{
		driver: scenario.DefaultDriver, method: methodCreate, name: "snapshot-uid-" + pvc, volume: "app/" + pvc,
		start: at(created + 0.1), end: at(cut - 0.1),
	})
}

func addExec(rec *recording, command string, start, end float64) {
	rec.execs = append(rec.execs, execution{pod: "app/db", container: "app", command: []string{command}, start: at(start), end: at(end)})
}

// goodRun is a backup as it should be.
func goodRun() *recording {
	rec := newRecording()
	rec.origin = origin
	rec.backups["b1"] = &backupRecord{name: "b1", created: at(0), phases: phases{
		{"New", at(0.1)}, {"InProgress", at(0.5)}, {"Finalizing", at(6)}, {"Completed", at(7)},
	}}
	addExec(rec, "freeze", 1, 1.1)
	addVolume(rec, "db-0", 1.2, 3.4)
	addVolume(rec, "db-1", 1.3, 3.3)
	addExec(rec, "thaw", 3.5, 3.6)
	addVolume(rec, "web-0", 3.7, 5.8)
	return rec
}

func TestAnalyseGoodRun(t *testing.T) {
	g := NewWithT(t)
	out := analyse(goodRun(), storyboard(t))

	b := out.Backups["b1"]
	g.Expect(b.Phase).To(Equal("Completed"))
	g.Expect(b.Terminal).To(BeTrue())
	g.Expect(b.SecondsInProgress).To(BeNumerically("~", 5.5, 1e-6))
	g.Expect(b.SecondsToTerminal).To(BeNumerically("~", 7, 1e-6))
	g.Expect(b.Cuts).To(Equal(3))
	g.Expect(b.Ready).To(Equal(3))
	g.Expect(out.Volumes).To(Equal(3))

	pvc := b.PVCs["app/db-0"]
	g.Expect(pvc.Hooked).To(BeTrue())
	g.Expect(pvc.Pods).To(ConsistOf("app/db"))
	g.Expect(pvc.CutSeconds).To(BeNumerically("~", 2.2, 1e-6))
	g.Expect(pvc.DriverSeconds).To(BeNumerically("~", 2.0, 1e-6))
	g.Expect(pvc.Verdict).To(Equal(result.VerdictReady))
	g.Expect(b.PVCs["app/web-0"].Hooked).To(BeFalse())

	pod := out.Pods["app/db"]
	g.Expect(pod.Thawed).To(BeTrue())
	g.Expect(pod.Windows).To(HaveLen(1))
	g.Expect(pod.FreezeSeconds).To(BeNumerically("~", 2.6, 1e-6))
	g.Expect(pod.SlowestCutSeconds).To(BeNumerically("~", 2.2, 1e-6))
	g.Expect(pod.CallSpreadSeconds).To(BeNumerically("~", 0.1, 1e-6))
	g.Expect(pod.CallsOutsideWindow).To(BeZero())
	g.Expect(out.Pods["app/web"].Windows).To(BeEmpty())

	g.Expect(out.Order.PlainCallsBeforeThaw).To(BeZero())
	g.Expect(out.Order.PlainCallsWhileFrozen).To(BeZero())
	g.Expect(out.Order.MostFrozenPods).To(Equal(1))
	g.Expect(out.Drivers[scenario.DefaultDriver].PeakInFlight).To(Equal(2))
	g.Expect(out.Drivers[scenario.DefaultDriver].Creates).To(Equal(3))

	for i := 1; i < len(out.Timeline); i++ {
		g.Expect(out.Timeline[i].At).To(BeNumerically(">=", out.Timeline[i-1].At))
	}
	g.Expect(out.Timeline).To(ContainElement(result.Event{At: 7, Kind: result.KindBackup, Object: "b1", Message: "Completed"}))
}

// TestAnalyseSeesWhatIsWrong spoils the good run in one way each time.
func TestAnalyseSeesWhatIsWrong(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*recording)
		check func(Gomega, *result.Result)
	}{
		{
			"a plain volume starts while a pod is frozen",
			func(rec *recording) { addVolume(rec, "web-0", 2, 4) },
			func(g Gomega, out *result.Result) {
				g.Expect(out.Order.PlainCallsWhileFrozen).To(Equal(1))
				g.Expect(out.Order.PlainCallsBeforeThaw).To(Equal(1))
			},
		},
		{
			"a hooked volume is snapshotted before the freeze",
			func(rec *recording) { rec.calls[0].start = at(0.9) },
			func(g Gomega, out *result.Result) { g.Expect(out.Pods["app/db"].CallsOutsideWindow).To(Equal(1)) },
		},
		{
			"the thaw comes before the cut",
			func(rec *recording) { rec.execs[1].start, rec.execs[1].end = at(3), at(3.1) },
			func(g Gomega, out *result.Result) { g.Expect(out.Pods["app/db"].CallsOutsideWindow).To(Equal(2)) },
		},
		{
			"a pod is never thawed",
			func(rec *recording) { rec.execs = rec.execs[:1] },
			func(g Gomega, out *result.Result) {
				g.Expect(out.Pods["app/db"].Thawed).To(BeFalse())
				g.Expect(out.Pods["app/db"].Windows[0].EndedAt).To(BeZero())
			},
		},
		{
			"a snapshot is cut after it was given up",
			func(rec *recording) { rec.snapshots["uid-db-0"].deleting = at(2) },
			func(g Gomega, out *result.Result) {
				pvc := out.Backups["b1"].PVCs["app/db-0"]
				g.Expect(pvc.TooLate).To(BeTrue())
				g.Expect(pvc.Verdict).To(Equal(result.VerdictFailed))
				g.Expect(out.Backups["b1"].Cuts).To(Equal(2))
				g.Expect(out.Pods["app/db"].SlowestCutSeconds).To(BeNumerically("~", 2.0, 1e-6))
			},
		},
		{
			"a snapshot is cut after the end of the backup",
			func(rec *recording) { rec.contents["c-uid-web-0"].cut = at(9) },
			func(g Gomega, out *result.Result) { g.Expect(out.Backups["b1"].Cuts).To(Equal(2)) },
		},
		{
			"a snapshot is never cut and reports an error",
			func(rec *recording) {
				rec.contents["c-uid-web-0"].cut, rec.snapshots["uid-web-0"].ready = time.Time{}, time.Time{}
				rec.contents["c-uid-web-0"].err = "no space"
			},
			func(g Gomega, out *result.Result) {
				g.Expect(out.Backups["b1"].PVCs["app/web-0"].Verdict).To(Equal(result.VerdictFailed))
				g.Expect(out.Backups["b1"].PVCs["app/web-0"].Error).To(Equal("no space"))
			},
		},
		{
			"a snapshot is still waited for",
			func(rec *recording) {
				delete(rec.contents, "c-uid-web-0")
				rec.snapshots["uid-web-0"].ready = time.Time{}
			},
			func(g Gomega, out *result.Result) {
				g.Expect(out.Backups["b1"].PVCs["app/web-0"].Verdict).To(Equal(result.VerdictPending))
			},
		},
		{
			"a snapshot is cut but not ready",
			func(rec *recording) { rec.snapshots["uid-web-0"].ready = time.Time{} },
			func(g Gomega, out *result.Result) {
				g.Expect(out.Backups["b1"].PVCs["app/web-0"].Verdict).To(Equal(result.VerdictCut))
				g.Expect(out.Backups["b1"].Ready).To(Equal(2))
			},
		},
		{
			"the server dies",
			func(rec *recording) {
				rec.exits = []serverExit{{at: at(2), status: "exit code 1"}, {at: at(3), expected: true}}
			},
			func(g Gomega, out *result.Result) {
				g.Expect(out.Server.UnexpectedExits).To(Equal(1))
				g.Expect(out.Server.Exits).To(HaveLen(2))
			},
		},
		{
			"the backup never ends",
			func(rec *recording) { rec.backups["b1"].phases = rec.backups["b1"].phases[:2] },
			func(g Gomega, out *result.Result) {
				g.Expect(out.Backups["b1"].Terminal).To(BeFalse())
				g.Expect(out.Backups["b1"].SecondsInProgress).To(BeZero())
				g.Expect(out.Backups["b1"].SecondsToTerminal).To(BeZero())
			},
		},
		{
			"the driver is asked again whether the snapshot is ready",
			func(rec *recording) {
				again := rec.calls[0]
				again.start, again.end = at(5), at(5.1)
				rec.calls = append(rec.calls, again)
			},
			func(g Gomega, out *result.Result) {
				g.Expect(out.Pods["app/db"].CallsOutsideWindow).To(BeZero())
				g.Expect(out.Backups["b1"].PVCs["app/db-0"].Calls).To(Equal(2))
				g.Expect(out.Backups["b1"].PVCs["app/db-0"].CallEndedAt).To(BeNumerically("~", 3.3, 1e-6))
			},
		},
		{
			"a second backup freezes the pod again",
			func(rec *recording) { addExec(rec, "freeze", 10, 10.1); addExec(rec, "thaw", 14, 14.1) },
			func(g Gomega, out *result.Result) {
				g.Expect(out.Pods["app/db"].Windows).To(HaveLen(2))
				g.Expect(out.Pods["app/db"].FreezeSeconds).To(BeNumerically("~", 4.1, 1e-6))
			},
		},
		{
			"snapshots of the floor and of restores don't count",
			func(rec *recording) {
				rec.snapshots["floor"] = &snapshotRecord{uid: "floor", namespace: "app", name: "floor-web-0", pvc: "web-0", created: at(-5)}
				rec.floorUIDs["floor"] = true
				rec.snapshots["restored"] = &snapshotRecord{uid: "restored", namespace: "app", name: "r", backup: "b1", restore: "r1", created: at(9)}
			},
			func(g Gomega, out *result.Result) {
				g.Expect(out.Backups["b1"].PVCs).To(HaveLen(3))
				g.Expect(out.Backups["b1"].PVCs["app/web-0"].VolumeSnapshot).To(Equal("vs-web-0"))
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rec := goodRun()
			test.spoil(rec)
			test.check(NewWithT(t), analyse(rec, storyboard(t)))
		})
	}
}

func TestAnalyseTakesTheLastOfSeveralSnapshots(t *testing.T) {
	g := NewWithT(t)
	rec := goodRun()
	rec.snapshots["old"] = &snapshotRecord{uid: "old", namespace: "app", name: "vs-old", pvc: "web-0", backup: "b1", created: at(0.7), deleted: at(1)}
	pvc := analyse(rec, storyboard(t)).Backups["b1"].PVCs["app/web-0"]
	g.Expect(pvc.VolumeSnapshot).To(Equal("vs-web-0"))
	g.Expect(pvc.Attempts).To(Equal(2))
}

func TestPeak(t *testing.T) {
	g := NewWithT(t)
	call := func(start, end float64) driverCall { return driverCall{start: at(start), end: at(end)} }
	g.Expect(peak(nil)).To(BeZero())
	g.Expect(peak([]driverCall{call(1, 2), call(2, 3)})).To(Equal(1), "one ends when the other begins")
	g.Expect(peak([]driverCall{call(1, 3), call(2, 4), call(2.5, 2.6)})).To(Equal(3))
	g.Expect(peak([]driverCall{{start: at(1)}, call(5, 6)})).To(Equal(2), "a call that never ended is still there")
}

func TestFrozenPods(t *testing.T) {
	g := NewWithT(t)
	hooks := commandsOf(storyboard(t))
	freeze := execution{pod: "app/db", command: []string{"freeze"}, start: at(1)}
	thaw := execution{pod: "app/db", command: []string{"thaw"}, start: at(2), end: at(3)}
	other := execution{pod: "app/other", command: []string{"ls"}, start: at(1), end: at(2)}
	g.Expect(frozenPods([]execution{other}, hooks)).To(BeZero())
	g.Expect(frozenPods([]execution{other, freeze}, hooks)).To(Equal(1))
	running := thaw
	running.end = time.Time{}
	g.Expect(frozenPods([]execution{freeze, running}, hooks)).To(Equal(1), "a thaw that runs has not thawed yet")
	g.Expect(frozenPods([]execution{freeze, thaw}, hooks)).To(BeZero())
}

func TestLeftovers(t *testing.T) {
	g := NewWithT(t)
	rec := goodRun()
	for _, s := range rec.snapshots {
		s.deleted = at(6)
	}
	rec.snapshots["uid-web-0"].deleted = time.Time{}
	for _, c := range rec.contents {
		c.deleted = at(6)
	}
	rec.contents["r"] = &contentRecord{name: "restored", restore: "r1"}
	vs, vsc := rec.leftovers()
	g.Expect(vs).To(ConsistOf("VolumeSnapshot app/vs-web-0"))
	g.Expect(vsc).To(BeEmpty(), "what a restore made is not left over")
}

func TestAnalyseFileSystemBackups(t *testing.T) {
	g := NewWithT(t)
	rec := goodRun()
	rec.podVolumes = []*podVolumeRecord{
		{uid: "1", backup: "b1", pod: "app/db", volume: "db-0", phase: "Completed", created: at(1.5), ended: at(3.2)},
		{uid: "2", backup: "b1", pod: "app/web", volume: "web-0", phase: "InProgress", created: at(4)},
	}
	out := analyse(rec, storyboard(t))
	g.Expect(out.Pods["app/db"].FileSystemBackups).To(Equal([]result.FileSystemBackup{
		{Backup: "b1", Volume: "db-0", CreatedAt: 1.5, EndedAt: 3.2, Phase: "Completed"},
	}))
	g.Expect(out.Pods["app/web"].FileSystemBackups).To(ConsistOf(HaveField("EndedAt", BeZero())))
}
