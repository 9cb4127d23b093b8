// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
	"github.com/velero-clipper/clipper/pkg/controller/recovery"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// runningNames is a tracker of running backups.
type runningNames map[string]bool

func (r runningNames) Contains(namespace, name string) bool { return r[namespace+"/"+name] }

func phased(namespace, name string, uid types.UID, phase velerov1.BackupPhase) *velerov1.Backup {
	return &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid},
		Status:     velerov1.BackupStatus{Phase: phase},
	}
}

func backupsIn(t *testing.T, funcs interceptor.Funcs, backups ...crclient.Object) crclient.WithWatch {
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(velerov1.AddToScheme(scheme)).To(Succeed())
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(backups...).WithInterceptorFuncs(funcs).Build()
}

func TestAPhaseSaysWhatBecomesOfTheSnapshots(t *testing.T) {
	want := map[velerov1.BackupPhase][2]snapshot.OwnerState{ // by itself, and while this server works on it
		"":                                     {snapshot.OwnerRunning, snapshot.OwnerRunning},
		velerov1.BackupPhaseNew:                {snapshot.OwnerRunning, snapshot.OwnerRunning},
		velerov1.BackupPhaseQueued:             {snapshot.OwnerRunning, snapshot.OwnerRunning},
		velerov1.BackupPhaseReadyToStart:       {snapshot.OwnerRunning, snapshot.OwnerRunning},
		velerov1.BackupPhaseInProgress:         {snapshot.OwnerRunning, snapshot.OwnerRunning},
		velerov1.BackupPhaseFinalizing:         {snapshot.OwnerRunning, snapshot.OwnerRunning},
		velerov1.BackupPhaseDeleting:           {snapshot.OwnerRunning, snapshot.OwnerRunning},
		velerov1.BackupPhaseFailedValidation:   {snapshot.OwnerUnknown, snapshot.OwnerUnknown},
		velerov1.BackupPhaseCompleted:          {snapshot.OwnerFinished, snapshot.OwnerRunning},
		velerov1.BackupPhasePartiallyFailed:    {snapshot.OwnerFinished, snapshot.OwnerRunning},
		velerov1.BackupPhaseFailed:             {snapshot.OwnerFailed, snapshot.OwnerEnding},
		velerov1.BackupPhase("OfALaterVelero"): {snapshot.OwnerUnknown, snapshot.OwnerUnknown},

		velerov1.BackupPhaseWaitingForPluginOperations:                {snapshot.OwnerRunning, snapshot.OwnerRunning},
		velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed: {snapshot.OwnerRunning, snapshot.OwnerRunning},
		velerov1.BackupPhaseFinalizingPartiallyFailed:                 {snapshot.OwnerRunning, snapshot.OwnerRunning},
	}
	for phase, states := range want {
		t.Run(string(phase), func(t *testing.T) {
			g := NewWithT(t)
			c := backupsIn(t, interceptor.Funcs{}, phased("velero", "b", "uid", phase))
			for i, names := range []runningNames{{}, {"velero/b": true}} {
				o := owners{cached: c, live: c, namespace: "velero", running: names}
				id := snapshot.OwnerID{Label: "b", UID: "uid"}
				g.Expect(o.Cached(t.Context(), id)).To(Equal(states[i]))
				g.Expect(o.Live(t.Context(), id)).To(Equal(states[i]))
			}
		})
	}
}

// states says how servers stand.
type states map[instance.ID]instance.State

func (s states) Look(_ context.Context, id instance.ID) (instance.State, error) {
	if state, known := s[id]; known {
		return state, nil
	}
	return instance.Unsure, errBoom
}

// The start of a second server marks those backups Failed that it finds in progress.
func TestABackupThatIsFailedAndStillRunByALivingServer(t *testing.T) {
	others := states{"alive-0_1": instance.Alive, "unsure-0_1": instance.Unsure, "dead-0_1": instance.Dead, "self-0_1": instance.Alive}
	for server, want := range map[string]snapshot.OwnerState{
		"": snapshot.OwnerFailed, "alive-0_1": snapshot.OwnerRunning, "unsure-0_1": snapshot.OwnerRunning, "dead-0_1": snapshot.OwnerFailed,
		"self-0_1": snapshot.OwnerFailed, "unknown-0_1": snapshot.OwnerUnknown,
	} {
		t.Run(server, func(t *testing.T) {
			g := NewWithT(t)
			b := phased("velero", "b", "uid", velerov1.BackupPhaseFailed)
			b.Annotations = map[string]string{recovery.AnnServer: server}
			c := backupsIn(t, interceptor.Funcs{}, b)
			o := owners{cached: c, live: c, namespace: "velero", running: runningNames{}, servers: others, self: "self-0_1"}
			for _, ask := range []func(context.Context, snapshot.OwnerID) (snapshot.OwnerState, error){o.Live, o.Cached} {
				state, err := ask(t.Context(), snapshot.OwnerID{Label: "b", UID: "uid"})
				g.Expect(state).To(Equal(want))
				g.Expect(err != nil).To(Equal(want == snapshot.OwnerUnknown))
			}
		})
	}
}

func TestOwnersAreFoundByUID(t *testing.T) {
	long := strings.Repeat("nightly-", 12) + "1"
	c := backupsIn(t, interceptor.Funcs{},
		phased("velero", "b", "later", velerov1.BackupPhaseCompleted),
		phased("elsewhere", "other", "uid-elsewhere", velerov1.BackupPhaseFailed),
		phased("velero", long, "long", velerov1.BackupPhaseFailed),
	)
	o := owners{cached: c, live: c, namespace: "velero", running: runningNames{}}
	for name, test := range map[string]struct {
		id   snapshot.OwnerID
		want snapshot.OwnerState
	}{
		"it":                                    {snapshot.OwnerID{Label: "b", UID: "later"}, snapshot.OwnerFinished},
		"an earlier one of that name":           {snapshot.OwnerID{Label: "b", UID: "earlier"}, snapshot.OwnerGone},
		"none":                                  {snapshot.OwnerID{Label: "c", UID: "c"}, snapshot.OwnerGone},
		"in another installation":               {snapshot.OwnerID{Label: "other", UID: "uid-elsewhere"}, snapshot.OwnerGone},
		"by a name too long for a label":        {snapshot.OwnerID{Label: label.GetValidName(long), UID: "long"}, snapshot.OwnerFailed},
		"an earlier one of a name that is long": {snapshot.OwnerID{Label: label.GetValidName(long), UID: "earlier"}, snapshot.OwnerUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(o.Cached(t.Context(), test.id)).To(Equal(test.want))
			g.Expect(o.Live(t.Context(), test.id)).To(Equal(test.want))
		})
	}
	t.Run("deleted while it runs", func(t *testing.T) {
		g := NewWithT(t)
		o := owners{cached: c, live: c, namespace: "velero", running: runningNames{"velero/c": true, "velero/b": true}}
		for _, id := range []snapshot.OwnerID{{Label: "c", UID: "c"}, {Label: "b", UID: "earlier"}} {
			g.Expect(o.Cached(t.Context(), id)).To(Equal(snapshot.OwnerRunning))
			g.Expect(o.Live(t.Context(), id)).To(Equal(snapshot.OwnerRunning))
		}
	})
	t.Run("by the label alone", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(o.Cached(t.Context(), snapshot.OwnerID{Label: label.GetValidName(long)})).To(Equal(snapshot.OwnerFailed))
	})
}

func TestAnOwnerThatCannotBeReadIsUnknown(t *testing.T) {
	g := NewWithT(t)
	c := backupsIn(t, interceptor.Funcs{
		Get: func(context.Context, crclient.WithWatch, crclient.ObjectKey, crclient.Object, ...crclient.GetOption) error {
			return errBoom
		},
		List: func(context.Context, crclient.WithWatch, crclient.ObjectList, ...crclient.ListOption) error {
			return errBoom
		},
	})
	o := owners{cached: c, live: c, namespace: "velero", running: runningNames{}}
	for _, ask := range []func(context.Context, snapshot.OwnerID) (snapshot.OwnerState, error){o.Cached, o.Live} {
		state, err := ask(t.Context(), snapshot.OwnerID{Label: "b", UID: "uid"})
		g.Expect(state).To(Equal(snapshot.OwnerUnknown))
		g.Expect(err).To(MatchError(errBoom))
	}
}

func TestTheSweepIsWokenByFailures(t *testing.T) {
	g := NewWithT(t)
	woken := 0
	handler := onFailure(func() { woken++ })
	running, failed := phased("velero", "b", "uid", velerov1.BackupPhaseInProgress), phased("velero", "b", "uid", velerov1.BackupPhaseFailed)
	handler.OnAdd(failed, false)
	handler.OnUpdate(running, running)
	handler.OnUpdate(failed, failed)
	handler.OnUpdate(&corev1.Pod{}, &corev1.Pod{})
	handler.OnDelete(failed)
	g.Expect(woken).To(BeZero())
	handler.OnUpdate(running, failed)
	g.Expect(woken).To(Equal(1))
	stillRun := failed.DeepCopy()
	stillRun.Annotations = map[string]string{recovery.AnnServer: "other-0_1"}
	handler.OnUpdate(running, stillRun)
	g.Expect(woken).To(Equal(1), "another server has it in hand")
	handler.OnUpdate(stillRun, failed)
	g.Expect(woken).To(Equal(2))
}

func TestSweepIntervalFlag(t *testing.T) {
	g := NewWithT(t)
	s := newStock()
	Extend(s.server)
	g.Expect(s.server.Flag(SweepIntervalFlag).DefValue).To(Equal("10m0s"))
	g.Expect(s.server.ParseFlags([]string{"--" + SweepIntervalFlag, "0"})).To(Succeed())
	g.Expect(s.server.Flags().GetDuration(SweepIntervalFlag)).To(Equal(time.Duration(0)))
	g.Expect(s.server.ParseFlags([]string{"--" + SweepIntervalFlag, "soon"})).NotTo(Succeed())
}

func TestSweepInterval(t *testing.T) {
	g := NewWithT(t)
	for _, good := range []time.Duration{0, shortestSweep, time.Hour} {
		g.Expect(checkSweepInterval(good)).To(Succeed())
	}
	for _, bad := range []time.Duration{-5 * time.Second, 1, shortestSweep - 1} {
		g.Expect(checkSweepInterval(bad)).To(MatchError(And(ContainSubstring(SweepIntervalFlag), ContainSubstring("such as 10m"))))
	}
}

func TestSuspects(t *testing.T) {
	claim := func(namespace, name string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}}
	}
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(velerov1.AddToScheme(scheme)).To(Succeed())
	NewWithT(t).Expect(corev1.AddToScheme(scheme)).To(Succeed())
	build := func(objects ...crclient.Object) *owners {
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
		return &owners{cached: c, live: c, namespace: "velero", running: runningNames{}}
	}
	t.Run("failed backups and the claims of the namespace", func(t *testing.T) {
		g := NewWithT(t)
		failed, claims, err := build(
			phased("velero", "a", "uid-a", velerov1.BackupPhaseFailed), phased("velero", "b", "uid-b", velerov1.BackupPhaseCompleted),
			phased("elsewhere", "c", "uid-c", velerov1.BackupPhaseFailed), claim("app", "data"), claim("other", "more"),
		).Suspects(t.Context(), "app")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(failed).To(HaveExactElements(snapshot.OwnerID{Label: "a", UID: "uid-a"}))
		g.Expect(claims).To(HaveExactElements(types.UID("uid-of-data")))
	})
	t.Run("no claims are read when no backup has failed", func(t *testing.T) {
		g := NewWithT(t)
		failed, claims, err := build(phased("velero", "b", "uid-b", velerov1.BackupPhaseCompleted), claim("app", "data")).Suspects(t.Context(), "app")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(failed).To(BeEmpty())
		g.Expect(claims).To(BeEmpty())
	})
}
