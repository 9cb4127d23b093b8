// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
)

func TestAPodIsLookedAtBeforeItIsRecordedAndFrozen(t *testing.T) {
	g := NewWithT(t)
	executor := &fakeExecutor{}
	runner := NewRunner(Deps{
		Executor: executor, Pods: fakePods{executor: executor}, Recorder: &fakeRecorder{executor: executor}, Set: twoAndTwo(""),
	})
	g.Expect(runner.Freeze(t.Context(), nil, newPod("a"))).To(Succeed())
	g.Expect(executor.ran()).To(Equal([]string{
		"look at uid-a", "record", "pre1", "look at uid-a", "pre2", "look at uid-a", "pre3",
	}))
}

func TestAPodThatWasReplacedIsNotFrozen(t *testing.T) {
	for name, test := range map[string]struct {
		mode string
		err  bool
	}{"and is out of the backup with Fail": {string(modeFail), true}, "and is in it with Continue": {string(modeContinue), false}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			executor, recorder := &fakeExecutor{}, &fakeRecorder{}
			recorder.executor = executor
			pods := fakePods{executor: executor, err: errors.New("pod app/a was replaced")}
			pod := newPod("a", annotated("pre.hook.backup.velero.io/command", "freeze", "pre.hook.backup.velero.io/on-error", test.mode))
			runner := NewRunner(Deps{Executor: executor, Pods: pods, Recorder: recorder})
			err := runner.Freeze(t.Context(), nil, pod)
			g.Expect(err != nil).To(Equal(test.err))
			if err != nil {
				g.Expect(err).To(MatchError(ContainSubstring("pod app/a was replaced")))
			}
			g.Expect(executor.ran()).To(Equal([]string{"look at uid-a"}), "neither recorded nor frozen")
			g.Expect(runner.Windows()).To(BeEmpty())
			_, failed := runner.Stats()
			g.Expect(failed).To(Equal(1))
		})
	}
}

// A look is patient, and the pod may be frozen by the hook before.
func TestAPodThatCanNotBeLookedAtIsWaitedForOnce(t *testing.T) {
	g := NewWithT(t)
	executor := &fakeExecutor{}
	pods := fakePods{executor: executor, err: errors.New("no API server")}
	runner := NewRunner(Deps{Executor: executor, Pods: pods, Set: twoAndTwo("")})
	g.Expect(runner.Freeze(t.Context(), nil, newPod("a"))).To(Succeed())
	g.Expect(executor.ran()).To(Equal([]string{"look at uid-a"}))
	_, failed := runner.Stats()
	g.Expect(failed).To(Equal(3))
	g.Expect(runner.Thaw(t.Context(), nil, newPod("a"))).To(Succeed())
	g.Expect(runner.Freeze(t.Context(), nil, newPod("a"))).To(Succeed())
	g.Expect(executor.ran()).To(ContainElements("look at uid-a", "look at uid-a"), "another freeze looks again")
}
