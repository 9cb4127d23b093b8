// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	clocktesting "k8s.io/utils/clock/testing"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const (
	modeFail     = velerov1.HookErrorModeFail
	modeContinue = velerov1.HookErrorModeContinue
)

func hooksOf(hooks ...velerov1.BackupResourceHook) []velerov1.BackupResourceHook { return hooks }

// twoAndTwo has two pre hooks of a mode and two post hooks.
func twoAndTwo(mode velerov1.HookErrorMode) *Set {
	return mustResolve(
		specOf("one", hooksOf(exec("pre1", mode), exec("pre2", mode)), hooksOf(exec("post1", mode))),
		specOf("two", hooksOf(exec("pre3", mode)), hooksOf(exec("post2", mode))))
}

func TestFreezeAndThaw(t *testing.T) {
	panics := func() error { panic("nil map") }
	all := []string{"pre1", "pre2", "pre3", "post1", "post2"}
	tests := []struct {
		name      string
		set       *Set
		behaviour map[string]func() error
		pod       podOption
		// want: what runs, whether the pod is left out, error lines, counts and whether there was a freeze window.
		commands          []string
		freezeErr         string
		errorLines        int
		attempted, failed int
		noWindow          bool
	}{
		{name: "all well", set: twoAndTwo(""), commands: all, attempted: 5},
		{name: "unset on-error: the failure is a line, the rest runs", set: twoAndTwo(""),
			behaviour: map[string]func() error{"pre1": fails}, commands: all, errorLines: 1, attempted: 5, failed: 1},
		{name: "Continue: the same", set: twoAndTwo(modeContinue),
			behaviour: map[string]func() error{"pre1": fails, "pre3": fails}, commands: all, errorLines: 2, attempted: 5, failed: 2},
		{name: "Fail in the second: the rest is left out, and the pod is thawed", set: twoAndTwo(modeFail),
			behaviour: map[string]func() error{"pre2": fails},
			commands:  []string{"pre1", "pre2", "post1", "post2"},
			freezeErr: `pre hook "one" (number 1) of pod app/a: command terminated with exit code 1`, errorLines: 2, attempted: 5, failed: 1},
		{name: "Fail in the first, which may have frozen before it failed", set: twoAndTwo(modeFail),
			behaviour: map[string]func() error{"pre1": fails},
			commands:  []string{"pre1", "post1", "post2"}, freezeErr: "exit code 1", errorLines: 2, attempted: 5, failed: 1},
		{name: "a panic is the hook's error", set: twoAndTwo(modeFail),
			behaviour: map[string]func() error{"pre2": panics},
			commands:  []string{"pre1", "pre2", "post1", "post2"}, freezeErr: "panicked: nil map", errorLines: 2, attempted: 5, failed: 1},
		{name: "a panic with Continue", set: twoAndTwo(modeContinue),
			behaviour: map[string]func() error{"pre1": panics}, commands: all, errorLines: 1, attempted: 5, failed: 1},
		{name: "post hooks go on after one that failed, even with Fail", set: twoAndTwo(modeFail),
			behaviour: map[string]func() error{"post1": fails, "post2": panics}, commands: all, errorLines: 4, attempted: 5, failed: 2},
		{name: "post hooks only", set: mustResolve(specOf("s", nil, hooksOf(exec("post", "")))),
			commands: []string{"post"}, attempted: 1, noWindow: true},
		{name: "pre hooks only", set: mustResolve(specOf("s", hooksOf(exec("pre", "")), nil)),
			commands: []string{"pre"}, attempted: 1},
		{name: "no hooks", set: mustResolve(), commands: []string{}, noWindow: true},
		{name: "a pod that has ended: due, not run, not failed", set: twoAndTwo(modeFail), pod: inPhase("Succeeded"),
			commands: []string{}, attempted: 5, noWindow: true},
		{name: "a pending pod is not skipped", set: twoAndTwo(""), pod: inPhase("Pending"), commands: all, attempted: 5},
		{name: "no containers: nothing started, so with Fail nothing to thaw", set: twoAndTwo(modeFail), pod: withoutContainers,
			commands: []string{}, freezeErr: "the pod has no containers", errorLines: 2, attempted: 3, failed: 1, noWindow: true},
		{name: "annotation hooks",
			pod: annotated("pre.hook.backup.velero.io/command", "freeze", "post.hook.backup.velero.io/command", "thaw",
				"pre.hook.backup.velero.io/on-error", "Fail"),
			set: twoAndTwo(""), behaviour: map[string]func() error{"freeze": fails},
			commands: []string{"freeze", "thaw"}, freezeErr: "pre hook from the pod's annotation of pod app/a",
			errorLines: 2, attempted: 2, failed: 1},
		{name: "a container that doesn't exist, named with those that do",
			pod: annotated("pre.hook.backup.velero.io/command", "freeze", "pre.hook.backup.velero.io/container", "nginx",
				"pre.hook.backup.velero.io/on-error", "Fail", "post.hook.backup.velero.io/command", "thaw"),
			commands: []string{}, freezeErr: `no container "nginx"; name one of: main, side`, errorLines: 2, attempted: 1, failed: 1, noWindow: true},
		{name: "a container that doesn't exist, on-error unset: backed up, post hooks run",
			pod: annotated("pre.hook.backup.velero.io/command", "freeze", "pre.hook.backup.velero.io/container", "nginx",
				"post.hook.backup.velero.io/command", "thaw"),
			commands: []string{"thaw"}, errorLines: 1, attempted: 2, failed: 1, noWindow: true},
		{name: "an empty command",
			pod:      annotated("pre.hook.backup.velero.io/command", "[]", "pre.hook.backup.velero.io/on-error", "Fail"),
			commands: []string{}, freezeErr: "command is empty", errorLines: 2, attempted: 1, failed: 1, noWindow: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			log, written := newLog()
			executor := &fakeExecutor{behaviour: tt.behaviour}
			runner := NewRunner(Deps{Executor: executor, Set: tt.set})
			pod := newPod("a")
			if tt.pod != nil {
				tt.pod(pod)
			}

			err := runner.Freeze(t.Context(), log, pod)
			if tt.freezeErr == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tt.freezeErr)))
			}
			_ = runner.Thaw(t.Context(), log, pod)
			_ = runner.Thaw(t.Context(), log, pod)

			g.Expect(executor.ran()).To(Equal(tt.commands))
			g.Expect(lines(written, logrus.ErrorLevel)).To(HaveLen(tt.errorLines), "one of a hook, and one of the pod when its mode is Fail (215)")
			for _, entry := range written.AllEntries() {
				g.Expect(entry.Data).NotTo(HaveKey("namespace"), "the results file groups by that field, and stock's lines have none (56)")
			}
			attempted, failed := runner.Stats()
			g.Expect([]int{attempted, failed}).To(Equal([]int{tt.attempted, tt.failed}))
			if tt.noWindow {
				g.Expect(runner.Windows()).To(BeEmpty())
			} else {
				g.Expect(runner.Windows()).To(ConsistOf(HaveField("End.IsZero()", false)))
			}
		})
	}
}

func TestThawReturnsEveryFailureEachTime(t *testing.T) {
	g := NewWithT(t)
	log, written := newLog()
	executor := &fakeExecutor{behaviour: map[string]func() error{"post1": fails, "post2": fails}}
	runner := NewRunner(Deps{Executor: executor, Set: twoAndTwo("")})
	pod := newPod("a")
	g.Expect(runner.Freeze(t.Context(), log, pod)).To(Succeed())
	for range 2 {
		err := runner.Thaw(t.Context(), log, pod)
		g.Expect(err).To(MatchError(SatisfyAll(ContainSubstring(`post hook "one"`), ContainSubstring(`post hook "two"`))))
	}
	g.Expect(lines(written, logrus.ErrorLevel)).To(HaveLen(2))
}

func TestThawNeedsAFreeze(t *testing.T) {
	g := NewWithT(t)
	log, _ := newLog()
	executor := &fakeExecutor{}
	runner := NewRunner(Deps{Executor: executor, Set: twoAndTwo("")})
	g.Expect(runner.Thaw(t.Context(), log, newPod("a"))).To(Succeed())
	g.Expect(executor.ran()).To(BeEmpty())
}

func TestFreezeTwice(t *testing.T) {
	g := NewWithT(t)
	log, written := newLog()
	executor := &fakeExecutor{}
	runner := NewRunner(Deps{Executor: executor, Set: twoAndTwo("")})
	pod := newPod("a")
	g.Expect(runner.Freeze(t.Context(), log, pod)).To(Succeed())
	g.Expect(runner.Freeze(t.Context(), log, pod)).To(MatchError("pod app/a is frozen already"))
	g.Expect(lines(written, logrus.ErrorLevel)).To(HaveLen(1))
	g.Expect(runner.Thaw(t.Context(), log, pod)).To(Succeed())
	g.Expect(executor.ran()).To(Equal([]string{"pre1", "pre2", "pre3", "post1", "post2"}))

	g.Expect(runner.Freeze(t.Context(), log, pod)).To(Succeed(), "a second cycle after the thaw")
	g.Expect(runner.Thaw(t.Context(), log, pod)).To(Succeed())
	g.Expect(executor.ran()).To(HaveLen(10))
	g.Expect(runner.Windows()).To(HaveLen(2))
	attempted, _ := runner.Stats()
	g.Expect(attempted).To(Equal(5), "the same hooks are not counted again")
}

func TestTheEndOfTheContext(t *testing.T) {
	t.Run("before the freeze: nothing runs", func(t *testing.T) {
		g := NewWithT(t)
		log, written := newLog()
		executor := &fakeExecutor{}
		runner := NewRunner(Deps{Executor: executor, Set: twoAndTwo("")})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("backup is being deleted"))
		g.Expect(runner.Freeze(ctx, log, newPod("a"))).To(MatchError(ContainSubstring("backup is being deleted")))
		g.Expect(runner.Thaw(ctx, log, newPod("a"))).To(Succeed())
		g.Expect(executor.ran()).To(BeEmpty())
		g.Expect(lines(written, logrus.ErrorLevel)).To(HaveLen(1))
	})
	t.Run("between two pre hooks: thawed, with a live context", func(t *testing.T) {
		g := NewWithT(t)
		log, _ := newLog()
		ctx, cancel := context.WithCancel(t.Context())
		executor := &fakeExecutor{behaviour: map[string]func() error{"pre1": func() error { cancel(); return nil }}}
		recorder := &fakeRecorder{executor: executor}
		runner := NewRunner(Deps{Executor: executor, Set: twoAndTwo(""), Recorder: recorder})
		g.Expect(runner.Freeze(ctx, log, newPod("a"))).To(MatchError(context.Canceled))
		g.Expect(runner.Thaw(ctx, log, newPod("a"))).To(Succeed())
		g.Expect(executor.ran()).To(Equal([]string{"record", "pre1", "post1", "post2", "clear"}))
		g.Expect(recorder.ctxErr).NotTo(HaveOccurred())
	})
}

func TestRecorder(t *testing.T) {
	setup := func(set *Set) (*Runner, *fakeRecorder) {
		executor := &fakeExecutor{}
		recorder := &fakeRecorder{executor: executor}
		return NewRunner(Deps{Executor: executor, Set: set, Recorder: recorder}), recorder
	}
	t.Run("once, before the first command, cleared after the last", func(t *testing.T) {
		g := NewWithT(t)
		log, _ := newLog()
		runner, recorder := setup(twoAndTwo(""))
		g.Expect(runner.Freeze(t.Context(), log, newPod("a"))).To(Succeed())
		g.Expect(runner.Thaw(t.Context(), log, newPod("a"))).To(Succeed())
		g.Expect(recorder.executor.ran()).To(Equal([]string{"record", "pre1", "pre2", "pre3", "post1", "post2", "clear"}))
		g.Expect(recorder.thaw).To(HaveExactElements(
			HaveField("Exec.Command", []string{"post1"}), HaveField("Exec.Command", []string{"post2"})))
	})
	t.Run("what can't be recorded isn't frozen: each pre hook fails, and its mode says what follows", func(t *testing.T) {
		for mode, want := range map[velerov1.HookErrorMode]struct {
			freezes bool
			ran     []string
			failed  int
			lines   int
		}{
			modeFail:     {ran: []string{"record"}, failed: 1, lines: 2},
			modeContinue: {freezes: true, ran: []string{"record", "post1", "post2"}, failed: 3, lines: 3},
			"":           {freezes: true, ran: []string{"record", "post1", "post2"}, failed: 3, lines: 3},
		} {
			g := NewWithT(t)
			log, written := newLog()
			runner, recorder := setup(twoAndTwo(mode))
			recorder.frozenErr = errors.New("etcd is read-only")
			err := runner.Freeze(t.Context(), log, newPod("a"))
			if want.freezes {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(recorder.frozenErr))
			}
			g.Expect(runner.Thaw(t.Context(), log, newPod("a"))).To(Succeed())
			g.Expect(recorder.executor.ran()).To(Equal(want.ran), "mode %q", mode)
			g.Expect(lines(written, logrus.ErrorLevel)).To(HaveLen(want.lines))
			g.Expect(lines(written, logrus.ErrorLevel)).To(HaveEach(ContainSubstring("couldn't be recorded that the pod is frozen: etcd is read-only")))
			g.Expect(runner.Windows()).To(BeEmpty())
			_, failed := runner.Stats()
			g.Expect(failed).To(Equal(want.failed))
		}
	})
	t.Run("a freeze that couldn't be recorded is tried anew the next time", func(t *testing.T) {
		g := NewWithT(t)
		log, _ := newLog()
		runner, recorder := setup(twoAndTwo(modeFail))
		recorder.frozenErr = errors.New("etcd is read-only")
		g.Expect(runner.Freeze(t.Context(), log, newPod("a"))).NotTo(Succeed())
		recorder.frozenErr = nil
		g.Expect(runner.Freeze(t.Context(), log, newPod("a"))).To(Succeed())
		g.Expect(recorder.executor.ran()).To(Equal([]string{"record", "record", "pre1", "pre2", "pre3"}))
	})
	t.Run("a post hook that didn't reach its container is still owed, unless its pod is gone", func(t *testing.T) {
		g := NewWithT(t)
		log, _ := newLog()
		runner, recorder := setup(mustResolve(specOf("s", hooksOf(exec("pre", "")),
			hooksOf(exec("post1", ""), exec("post2", ""), exec("post3", "")))))
		refused := errors.New("503 from the API server")
		recorder.executor.behaviour = map[string]func() error{
			"post1": fails,
			"post2": func() error { return &NotRunError{Err: refused} },
			"post3": func() error { return &NotRunError{Err: refused, PodGone: true} },
		}
		g.Expect(runner.Freeze(t.Context(), log, newPod("a"))).To(Succeed())
		g.Expect(runner.Thaw(t.Context(), log, newPod("a"))).To(MatchError(refused))
		g.Expect(recorder.owed).To(HaveExactElements(HaveField("Exec.Command", []string{"post2"})))
	})
	t.Run("a record that stays is a warning", func(t *testing.T) {
		g := NewWithT(t)
		log, written := newLog()
		runner, recorder := setup(twoAndTwo(""))
		recorder.thawedErr = errors.New("conflict")
		g.Expect(runner.Freeze(t.Context(), log, newPod("a"))).To(Succeed())
		g.Expect(runner.Thaw(t.Context(), log, newPod("a"))).To(Succeed())
		g.Expect(lines(written, logrus.WarnLevel)).To(ConsistOf(ContainSubstring("conflict")))
		g.Expect(lines(written, logrus.ErrorLevel)).To(BeEmpty())
	})
	t.Run("no record without something to thaw, or without a freeze", func(t *testing.T) {
		for _, set := range []*Set{
			mustResolve(specOf("s", hooksOf(exec("pre", "")), nil)), mustResolve(specOf("s", nil, hooksOf(exec("post", "")))),
		} {
			g := NewWithT(t)
			log, _ := newLog()
			runner, recorder := setup(set)
			g.Expect(runner.Freeze(t.Context(), log, newPod("a"))).To(Succeed())
			g.Expect(runner.Thaw(t.Context(), log, newPod("a"))).To(Succeed())
			g.Expect(recorder.executor.ran()).To(HaveLen(1))
			g.Expect(recorder.executor.ran()).NotTo(ContainElement("record"))
		}
	})
}

func TestWindows(t *testing.T) {
	g := NewWithT(t)
	log, _ := newLog()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := clocktesting.NewFakePassiveClock(start)
	takes := func(d time.Duration) func() error {
		return func() error { clock.SetTime(clock.Now().Add(d)); return nil }
	}
	executor := &fakeExecutor{behaviour: map[string]func() error{
		"pre1": takes(time.Second), "pre2": takes(2 * time.Second), "post2": takes(4 * time.Second),
	}}
	var seconds observed
	runner := NewRunner(Deps{Executor: executor, Clock: clock, Set: twoAndTwo(""), FreezeSeconds: &seconds})
	g.Expect(runner.Freeze(t.Context(), log, newPod("a"))).To(Succeed())
	g.Expect(runner.Windows()).To(Equal([]Window{{Namespace: "app", Pod: "a", Start: start}}), "open while frozen")
	g.Expect(seconds).To(BeEmpty())
	clock.SetTime(clock.Now().Add(10 * time.Second))
	g.Expect(runner.Thaw(t.Context(), log, newPod("a"))).To(Succeed())
	g.Expect(runner.Windows()).To(Equal([]Window{{Namespace: "app", Pod: "a", Start: start, End: start.Add(17 * time.Second)}}))
	g.Expect(runner.Thaw(t.Context(), log, newPod("a"))).To(Succeed(), "a second time does nothing")
	g.Expect(seconds).To(Equal(observed{17}))
}

// observed keeps what it is told.
type observed []float64

func (o *observed) Observe(value float64) { *o = append(*o, value) }

func TestWhatTheExecutorIsGiven(t *testing.T) {
	g := NewWithT(t)
	log, _ := newLog()
	executor := &fakeExecutor{}
	set := mustResolve(specOf("", hooksOf(exec("pre", "")), nil), specOf("named", hooksOf(exec("pre", modeContinue)), nil))
	runner := NewRunner(Deps{Executor: executor, Set: set})
	pod := newPod("a", annotated("post.hook.backup.velero.io/command", "thaw", "post.hook.backup.velero.io/container", "side",
		"post.hook.backup.velero.io/timeout", "1m"))
	g.Expect(runner.Freeze(t.Context(), log, pod)).To(Succeed())
	g.Expect(runner.Thaw(t.Context(), log, pod)).To(Succeed())
	g.Expect(executor.commands).To(HaveExactElements(
		Command{Namespace: "app", Pod: "a", UID: "uid-a", Container: "main", Argv: []string{"pre"}, Timeout: DefaultTimeout},
		Command{Namespace: "app", Pod: "a", UID: "uid-a", Container: "main", Argv: []string{"pre"}, Timeout: DefaultTimeout},
		Command{Namespace: "app", Pod: "a", UID: "uid-a", Container: "side", Argv: []string{"thaw"}, Timeout: time.Minute, Insist: true},
	))
}

func TestSameNamedHooksCountOnce(t *testing.T) {
	g := NewWithT(t)
	log, _ := newLog()
	twice := specOf("same", hooksOf(exec("pre", "")), nil)
	runner := NewRunner(Deps{
		Executor: &fakeExecutor{behaviour: map[string]func() error{"pre": fails}},
		Set:      mustResolve(twice, twice),
	})
	g.Expect(runner.Freeze(t.Context(), log, newPod("a"))).To(Succeed())
	attempted, failed := runner.Stats()
	g.Expect([]int{attempted, failed}).To(Equal([]int{1, 1}))
}

func TestTheLogOfTheDepsIsUsedWhenACallHasNone(t *testing.T) {
	g := NewWithT(t)
	log, written := newLog()
	runner := NewRunner(Deps{
		Executor: &fakeExecutor{behaviour: map[string]func() error{"pre1": fails}}, Set: twoAndTwo(""), Log: log,
	})
	g.Expect(runner.Freeze(t.Context(), nil, newPod("a"))).To(Succeed())
	g.Expect(lines(written, logrus.ErrorLevel)).To(HaveLen(1))
}

func TestPodsDoNotWaitForEachOther(t *testing.T) {
	g := NewWithT(t)
	log, _ := newLog()
	// Each pod's pre hook ends only when both have started.
	var both sync.WaitGroup
	both.Add(2)
	executor := &fakeExecutor{behaviour: map[string]func() error{
		"pre": func() error { both.Done(); both.Wait(); return nil },
	}}
	runner := NewRunner(Deps{Executor: executor, Set: mustResolve(specOf("s", hooksOf(exec("pre", "")), nil))})
	var group errgroup.Group
	for _, name := range []string{"a", "b"} {
		group.Go(func() error { return runner.Freeze(t.Context(), log, newPod(name)) })
	}
	g.Expect(group.Wait()).To(Succeed())
	g.Expect(runner.Windows()).To(HaveLen(2))
}

func TestThawWaitsForTheFreezeUnderWay(t *testing.T) {
	g := NewWithT(t)
	log, _ := newLog()
	started, release := make(chan struct{}), make(chan struct{})
	executor := &fakeExecutor{behaviour: map[string]func() error{
		"pre1": func() error { close(started); <-release; return nil },
	}}
	runner := NewRunner(Deps{Executor: executor, Set: twoAndTwo("")})
	var group errgroup.Group
	group.Go(func() error { return runner.Freeze(t.Context(), log, newPod("a")) })
	<-started
	group.Go(func() error { return runner.Thaw(t.Context(), log, newPod("a")) })
	close(release)
	g.Expect(group.Wait()).To(Succeed())
	g.Expect(executor.ran()).To(Equal([]string{"pre1", "pre2", "pre3", "post1", "post2"}))
}

func TestManyPodsAndManyThawsAtOnce(t *testing.T) {
	g := NewWithT(t)
	log, _ := newLog()
	executor := &fakeExecutor{behaviour: map[string]func() error{"pre2": fails, "post1": fails}}
	runner := NewRunner(Deps{Executor: executor, Set: twoAndTwo(modeFail)})
	var group errgroup.Group
	const pods = 30
	for i := range pods {
		group.Go(func() error {
			pod := newPod(fmt.Sprintf("p%d", i))
			if runner.Freeze(t.Context(), log, pod) == nil {
				return errors.New("the second pre hook was to fail")
			}
			var thaws errgroup.Group
			for range 4 {
				thaws.Go(func() error { return runner.Thaw(t.Context(), log, pod) })
			}
			runner.Windows()
			runner.Stats()
			if thaws.Wait() == nil {
				return errors.New("the first post hook was to fail")
			}
			return nil
		})
	}
	g.Expect(group.Wait()).To(Succeed())
	g.Expect(executor.ran()).To(HaveLen(4*pods), "pre1, pre2, post1, post2, once for each pod")
	attempted, failed := runner.Stats()
	g.Expect([]int{attempted, failed}).To(Equal([]int{5 * pods, 2 * pods}))
}
