// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
	"github.com/velero-clipper/clipper/pkg/hook"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	dead  = "old-0_1"
	alive = "other-0_1"
	self  = "new-0_1"
)

// instances says how servers stand; unknown ones are dead.
type instances struct {
	mu    sync.Mutex
	state map[instance.ID]instance.State
	err   error
}

func (i *instances) Look(_ context.Context, id instance.ID) (instance.State, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		return instance.Unsure, i.err
	}
	if state, known := i.state[id]; known {
		return state, nil
	}
	return instance.Dead, nil
}

func (i *instances) set(id instance.ID, state instance.State) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.state[id] = state
}

// executor notes what runs in which pod. answer says how a command ends.
type executor struct {
	mu     sync.Mutex
	ran    []string
	answer func(hook.Command) error
	events *[]string
}

func (e *executor) Run(_ context.Context, _ logrus.FieldLogger, c hook.Command) error {
	var err error
	if e.answer != nil {
		err = e.answer(c)
	}
	var notRun *hook.NotRunError
	if errors.As(err, &notRun) {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ran = append(e.ran, c.Pod+" "+c.Argv[0])
	*e.events = append(*e.events, "thaw "+c.Pod)
	return err
}

// note adds to the list of events of a harness.
func (e *executor) note(event string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*e.events = append(*e.events, event)
}

func (e *executor) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := slices.Clone(e.ran)
	slices.Sort(all)
	return all
}

// snapshots notes whose are removed.
type snapshots struct {
	found   int
	left    []snapshot.Leftover
	err     error
	removed []types.UID
	note    func(string)
}

func (s *snapshots) RemoveOwned(_ context.Context, uid types.UID) (int, []snapshot.Leftover, error) {
	s.removed = append(s.removed, uid)
	s.note("remove " + string(uid))
	return s.found, s.left, s.err
}

type harness struct {
	*WithT
	t         *testing.T
	client    client.Client
	onPatch   func(client.Object) error
	store     *freezerecord.Store
	executor  *executor
	snapshots *snapshots
	instances *instances
	recorder  *record.FakeRecorder
	log       *logrustest.Hook
	deps      Deps
	events    []string
}

func setup(t *testing.T) *harness {
	scheme := runtime.NewScheme()
	h := &harness{WithT: NewWithT(t), t: t, onPatch: func(client.Object) error { return nil }}
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, velerov1.AddToScheme, velerov2alpha1.AddToScheme} {
		h.Expect(add(scheme)).To(Succeed())
	}
	h.client = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := h.onPatch(o); err != nil {
				return err
			}
			if b, ok := o.(*velerov1.Backup); ok {
				what := "mark "
				if b.Annotations[AnnRecoverer] != "" {
					what = "claim "
				}
				h.executor.note(what + b.Name)
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	h.store = freezerecord.NewStore(freezerecord.Options{Client: h.client, Namespace: "velero", Server: dead})
	h.executor = &executor{events: &h.events}
	h.snapshots = &snapshots{note: h.executor.note}
	h.instances = &instances{state: map[instance.ID]instance.State{}}
	h.recorder = record.NewFakeRecorder(100)
	logger, hook := logrustest.NewNullLogger()
	h.log = hook
	h.deps = Deps{
		Client: h.client, Backups: h.client, Records: freezerecord.NewStore(freezerecord.Options{Client: h.client, Namespace: "velero", Server: self}),
		Executor: h.executor, Snapshots: h.snapshots, Instances: h.instances, Self: self, Events: h.recorder, Namespace: "velero", Log: logger,
	}
	return h
}

// backup makes one in progress, of a server.
func (h *harness) backup(name, server string, phase velerov1.BackupPhase) *velerov1.Backup {
	b := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID(name + "-uid"), Annotations: map[string]string{}},
		Status:     velerov1.BackupStatus{Phase: phase, Version: 1},
	}
	if server != "" {
		b.Annotations[AnnServer] = server
	}
	h.Expect(h.client.Create(h.t.Context(), b)).To(Succeed())
	return b
}

// frozen records pods as frozen by a backup; the server was killed then. Each pod has the commands thaw and then resume.
func (h *harness) frozen(b *velerov1.Backup, pods ...string) {
	r := h.store.Open(b)
	for _, name := range pods {
		pod := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "app", "name": name, "uid": "uid-" + name},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "main"}}},
		}}
		h.Expect(r.Frozen(h.t.Context(), pod, []hook.Hook{
			{Exec: velerov1.ExecHook{Command: []string{"thaw"}}}, {Exec: velerov1.ExecHook{Command: []string{"resume"}}},
		})).To(Succeed())
	}
}

func (h *harness) atStart() { New(h.deps).AtStart(h.t.Context()) }

func (h *harness) get(name string) *velerov1.Backup {
	b := new(velerov1.Backup)
	h.Expect(h.client.Get(context.Background(), client.ObjectKey{Namespace: "velero", Name: name}, b)).To(Succeed())
	return b
}

func (h *harness) records() []corev1.ConfigMap {
	var list corev1.ConfigMapList
	h.Expect(h.client.List(context.Background(), &list)).To(Succeed())
	return list.Items
}

func TestNothingToRecover(t *testing.T) {
	h := setup(t)
	h.backup("done", "", velerov1.BackupPhaseCompleted)
	h.backup("waits", "", velerov1.BackupPhaseReadyToStart)
	h.atStart()
	h.Expect(h.events).To(BeEmpty())
	h.Expect(h.log.AllEntries()).To(BeEmpty())
}

func TestADeadBackupIsThawedRemovedAndMarked(t *testing.T) {
	h := setup(t)
	b := h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
	h.frozen(b, "a", "b")
	h.snapshots.found = 3
	h.atStart()
	h.Expect(h.executor.all()).To(Equal([]string{"a resume", "a thaw", "b resume", "b thaw"}))
	h.Expect(h.events[4:]).To(Equal([]string{"claim nightly", "remove nightly-uid", "mark nightly"}), "in this order, after the thaws")
	got := h.get("nightly")
	h.Expect(got.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
	h.Expect(got.Status.CompletionTimestamp).NotTo(BeNil())
	h.Expect(got.Status.FailureReason).To(Equal("the server stopped while the backup was in progress; it was recovered at the next start; " +
		"pods thawed: app/a, app/b; CSI snapshots removed: 3"))
	h.Expect(got.Annotations).To(BeEmpty())
	h.Expect(h.records()).To(BeEmpty())
	h.Expect(h.recorder.Events).To(Receive(ContainSubstring("BackupRecovered")))
}

func TestABackupWithoutHooksIsMarked(t *testing.T) {
	h := setup(t)
	h.backup("nightly", "", velerov1.BackupPhaseInProgress)
	h.atStart()
	h.Expect(h.get("nightly").Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
	h.Expect(h.snapshots.removed).To(Equal([]types.UID{"nightly-uid"}))
}

func TestWhatBecomesOfPods(t *testing.T) {
	down := errors.New("503 from the API server")
	h := setup(t)
	h.executor.answer = func(c hook.Command) error {
		switch c.Pod + " " + c.Argv[0] {
		case "gone thaw", "gone resume":
			return &hook.NotRunError{Err: down, PodGone: true}
		case "fails thaw":
			return errors.New("exit code 1")
		case "away resume":
			return &hook.NotRunError{Err: down}
		case "panics thaw":
			panic("nil map")
		}
		return nil
	}
	b := h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
	h.frozen(b, "gone", "fails", "away", "panics", "well")
	h.atStart()
	reason := h.get("nightly").Status.FailureReason
	h.Expect(reason).To(ContainSubstring("pods thawed: app/well;"))
	h.Expect(reason).To(ContainSubstring("pods whose thaw ran and failed: app/fails (exit code 1), app/panics (running its command panicked: nil map);"))
	h.Expect(reason).To(ContainSubstring("pods that need no thaw: app/gone (the pod is gone);"))
	h.Expect(reason).To(ContainSubstring("pods still frozen: app/away (503 from the API server)"))
	h.Expect(h.executor.all()).To(ContainElements("fails resume", "away thaw", "panics resume"))
	h.Expect(h.records()).To(HaveLen(1), "one pod is owed its thaw")

	h.executor.answer, h.executor.ran = nil, nil
	h.atStart()
	h.Expect(h.executor.all()).To(Equal([]string{"away resume"}), "what has run isn't repeated")
	h.Expect(h.records()).To(BeEmpty())
	h.Expect(h.get("nightly").Status.FailureReason).To(Equal(reason), "what is written stays")
}

func TestARecoveryThatWasKilledIsTakenUp(t *testing.T) {
	h := setup(t)
	b := h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
	h.frozen(b, "a")
	h.onPatch = func(o client.Object) error {
		if b, ok := o.(*velerov1.Backup); ok && b.Annotations[AnnRecoverer] == "" {
			return apierrors.NewForbidden(velerov1.Resource("backups"), "nightly", errors.New("no right"))
		}
		return nil
	}
	h.atStart()
	h.Expect(h.get("nightly").Status.Phase).To(Equal(velerov1.BackupPhaseInProgress))
	h.Expect(h.records()).To(HaveLen(1), "until the Backup says what was done")

	h.onPatch = func(client.Object) error { return nil }
	h.atStart()
	h.Expect(h.executor.all()).To(Equal([]string{"a resume", "a thaw"}), "once")
	h.Expect(h.get("nightly").Status.FailureReason).To(ContainSubstring("pods thawed: app/a"))
	h.Expect(h.records()).To(BeEmpty())
}

func TestARecordWithoutItsBackup(t *testing.T) {
	for name, prepare := range map[string]func(*harness, *velerov1.Backup){
		"it was deleted":            func(h *harness, b *velerov1.Backup) { h.Expect(h.client.Delete(h.t.Context(), b)).To(Succeed()) },
		"it was marked by somebody": func(h *harness, b *velerov1.Backup) { h.end(b, velerov1.BackupPhaseFailed) },
		"it ended with a thaw owed": func(h *harness, b *velerov1.Backup) { h.end(b, velerov1.BackupPhaseCompleted) },
		"there is another of its name": func(h *harness, b *velerov1.Backup) {
			h.Expect(h.client.Delete(h.t.Context(), b)).To(Succeed())
			b.UID, b.ResourceVersion = "another", ""
			b.Status.Phase = velerov1.BackupPhaseCompleted
			h.Expect(h.client.Create(h.t.Context(), b)).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := setup(t)
			b := h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
			h.frozen(b, "a")
			prepare(h, b)
			h.atStart()
			h.Expect(h.executor.all()).To(Equal([]string{"a resume", "a thaw"}))
			h.Expect(h.records()).To(BeEmpty())
			h.Expect(h.snapshots.removed).To(BeEmpty(), "they may be in a backup; the sweep decides")
			h.Expect(h.events).NotTo(ContainElement("mark nightly"))
		})
	}
}

func (h *harness) end(b *velerov1.Backup, phase velerov1.BackupPhase) {
	b.Status.Phase = phase
	delete(b.Annotations, AnnServer)
	h.Expect(h.client.Update(h.t.Context(), b)).To(Succeed())
}

func TestWhatAnotherServerRunsIsNotTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.instances.set(alive, instance.Alive)
		h.store.Server = alive
		b := h.backup("theirs", alive, velerov1.BackupPhaseInProgress)
		h.frozen(b, "a")
		h.backup("ours", dead, velerov1.BackupPhaseInProgress)
		started := make(chan struct{})
		go func() { defer close(started); h.atStart() }()
		<-time.After(time.Hour)
		h.Expect(started).NotTo(BeClosed(), "Velero's own start would mark it")
		h.Expect(h.executor.all()).To(BeEmpty())
		h.Expect(h.snapshots.removed).To(Equal([]types.UID{"ours-uid"}))
		h.Expect(h.get("theirs").Status.Phase).To(Equal(velerov1.BackupPhaseInProgress))
		h.Expect(h.get("ours").Status.Phase).To(Equal(velerov1.BackupPhaseFailed))

		h.instances.set(alive, instance.Dead)
		<-started
		h.Expect(h.executor.all()).To(HaveLen(2))
		h.Expect(h.get("theirs").Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
	})
}

func TestTheWaitForAnotherServerEndsWithItsBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.instances.set(alive, instance.Alive)
		b := h.backup("theirs", alive, velerov1.BackupPhaseInProgress)
		started := make(chan struct{})
		go func() { defer close(started); h.atStart() }()
		<-time.After(time.Minute)
		h.end(b, velerov1.BackupPhaseCompleted)
		<-started
		h.Expect(h.events).To(BeEmpty())
	})
}

func TestAServerThatIsToldToStopThawsAndLeavesTheRest(t *testing.T) {
	h := setup(t)
	b := h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
	h.frozen(b, "a", "b")
	ctx, stop := context.WithCancel(t.Context())
	h.executor.answer = func(hook.Command) error { stop(); return nil }
	New(h.deps).AtStart(ctx)
	h.Expect(h.executor.all()).To(HaveLen(4))
	h.Expect(h.snapshots.removed).To(BeEmpty())
	h.Expect(h.get("nightly").Status.Phase).To(Equal(velerov1.BackupPhaseInProgress))

	h.atStart()
	h.Expect(h.executor.all()).To(HaveLen(4), "not twice")
	h.Expect(h.get("nightly").Status.FailureReason).To(ContainSubstring("pods thawed: app/a, app/b"))
}

// silent is an API server that doesn't answer.
type silent struct{ client.Reader }

func (silent) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("connection refused")
}

func TestAnAPIServerThatIsAwayKeepsTheServerFromStartingForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.deps.Backups = silent{}
		begun := time.Now()
		h.atStart()
		h.Expect(time.Since(begun)).To(BeNumerically("~", findLimit, 5*time.Second))
		h.Expect(h.log.LastEntry().Level).To(Equal(logrus.ErrorLevel))
	})
}

func TestSnapshotsThatAreLeftAreNamed(t *testing.T) {
	h := setup(t)
	h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
	h.snapshots.found = 30
	for i := range 25 {
		h.snapshots.left = append(h.snapshots.left, snapshot.Leftover{
			Ref: snapshot.Ref{Namespace: "app", Name: fmt.Sprintf("vs-%02d", i)}, Reason: "the driver hasn't answered",
		})
	}
	h.atStart()
	h.Expect(h.get("nightly").Status.FailureReason).To(And(
		ContainSubstring("CSI snapshots removed: 5"),
		ContainSubstring("not removed yet: app/vs-00 (the driver hasn't answered), "),
		HaveSuffix(" and 5 more")))
}

func TestTransfersAreCancelled(t *testing.T) {
	h := setup(t)
	h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
	labels := map[string]string{velerov1.BackupUIDLabel: "nightly-uid"}
	objects := []client.Object{
		&velerov2alpha1.DataUpload{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "runs", Labels: labels},
			Status: velerov2alpha1.DataUploadStatus{Phase: velerov2alpha1.DataUploadPhaseInProgress}},
		&velerov2alpha1.DataUpload{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "done", Labels: labels},
			Status: velerov2alpha1.DataUploadStatus{Phase: velerov2alpha1.DataUploadPhaseCompleted}},
		&velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "runs", Labels: labels}},
		&velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "another's"}},
	}
	for _, o := range objects {
		h.Expect(h.client.Create(t.Context(), o)).To(Succeed())
	}
	h.deps.Retry = true
	h.atStart()
	for _, o := range objects {
		h.Expect(h.client.Get(t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
	}
	h.Expect(objects[0].(*velerov2alpha1.DataUpload).Spec.Cancel).To(BeTrue())
	h.Expect(objects[1].(*velerov2alpha1.DataUpload).Spec.Cancel).To(BeFalse())
	h.Expect(objects[2].(*velerov1.PodVolumeBackup).Spec.Cancel).To(BeTrue())
	h.Expect(objects[3].(*velerov1.PodVolumeBackup).Spec.Cancel).To(BeFalse())
	h.Expect(h.get("nightly").Status.Phase).To(Equal(velerov1.BackupPhaseFailed), "what moves data can't be begun again under the same name")
}

func TestABackupIsRetriedOnce(t *testing.T) {
	h := setup(t)
	h.deps.Retry = true
	b := h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
	h.frozen(b, "a")
	h.atStart()
	got := h.get("nightly")
	h.Expect(got.Status).To(Equal(velerov1.BackupStatus{Phase: velerov1.BackupPhaseNew}))
	h.Expect(got.Annotations).To(And(HaveKey(AnnRetried), Not(HaveKey(AnnServer))))
	h.Expect(h.executor.all()).To(HaveLen(2))
	h.Expect(h.records()).To(BeEmpty())

	got.Status.Phase = velerov1.BackupPhaseInProgress
	h.Expect(h.client.Update(t.Context(), got)).To(Succeed())
	h.atStart()
	h.Expect(h.get("nightly").Status.Phase).To(Equal(velerov1.BackupPhaseFailed), "not twice")
}

func TestABackupThatLeavesSomethingIsNotRetried(t *testing.T) {
	h := setup(t)
	h.deps.Retry = true
	h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
	h.snapshots.found, h.snapshots.left = 1, []snapshot.Leftover{{Ref: snapshot.Ref{Namespace: "app", Name: "vs"}, Reason: "hangs"}}
	h.atStart()
	h.Expect(h.get("nightly").Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
}

func TestRunLooksFromTimeToTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.instances.set(self, instance.Alive)
		h.instances.set(alive, instance.Alive)
		// Ours: one that runs, and one that is over and owes a thaw.
		h.store.Server = self
		running := h.backup("running", self, velerov1.BackupPhaseInProgress)
		h.frozen(running, "busy")
		over := h.backup("over", "", velerov1.BackupPhaseCompleted)
		h.frozen(over, "owed")
		h.backup("theirs", alive, velerov1.BackupPhaseInProgress)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- New(h.deps).Run(ctx) }()
		<-time.After(2 * DefaultInterval)
		h.Expect(h.executor.all()).To(Equal([]string{"owed resume", "owed thaw"}))
		h.Expect(h.get("running").Status.Phase).To(Equal(velerov1.BackupPhaseInProgress))
		h.Expect(h.get("theirs").Status.Phase).To(Equal(velerov1.BackupPhaseInProgress))
		h.Expect(h.records()).To(HaveLen(1))

		h.instances.set(alive, instance.Dead)
		<-time.After(2 * DefaultInterval)
		h.Expect(h.get("theirs").Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
		stop()
		h.Expect(<-done).To(Succeed())
	})
}

func TestAnEntryThatCannotBeReadIsTold(t *testing.T) {
	h := setup(t)
	b := h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
	h.frozen(b, "a")
	m := h.records()[0]
	m.Data["app_b"] = "by hand"
	h.Expect(h.client.Update(t.Context(), &m)).To(Succeed())
	h.atStart()
	h.Expect(h.executor.all()).To(HaveLen(2))
	h.Expect(h.records()).To(HaveLen(1))
	h.Expect(h.get("nightly").Status.FailureReason).To(ContainSubstring("entries of frozen pods that can't be read: 1"))
}

func TestAHookThatCannotBeReachedDoesNotKeepTheNextFromRunning(t *testing.T) {
	h := setup(t)
	h.executor.answer = func(c hook.Command) error {
		if c.Argv[0] == "thaw" {
			return &hook.NotRunError{Err: errors.New("container sidecar isn't running")}
		}
		return nil
	}
	h.frozen(h.backup("nightly", dead, velerov1.BackupPhaseInProgress), "a")
	h.atStart()
	h.Expect(h.executor.all()).To(Equal([]string{"a resume"}))

	h.executor.answer = nil
	h.atStart()
	h.Expect(h.executor.all()).To(Equal([]string{"a resume", "a thaw"}), "what has run isn't run again")
	h.Expect(h.records()).To(BeEmpty())
}
