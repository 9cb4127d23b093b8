// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

// Recorder keeps, beyond the life of the process, which pods are frozen and how to thaw them. Its methods are called from
// many goroutines at once, for one pod one after the other.
type Recorder interface {
	// Frozen is called before the first pre hook of a pod runs, with the hooks that will thaw it. When it returns an
	// error the pod is not frozen.
	Frozen(ctx context.Context, pod *unstructured.Unstructured, thaw []Hook) error
	// Thawed is called when the pod's post hooks are over. owed are those that have not run, because their container could
	// not be reached; whatever the result of the others, they have run.
	Thawed(ctx context.Context, pod *unstructured.Unstructured, owed []Hook) error
}

// Deps is what a Runner needs.
type Deps struct {
	// Executor runs the commands. Required.
	Executor Executor
	// Pods is asked before each pre hook whether the pod is still the one that the backup has listed, which may be long ago. Default:
	// nobody is.
	Pods Pods
	// Clock dates the freeze windows. Default: the real clock.
	Clock clock.PassiveClock
	// Set has the hooks of the backup's spec. Default: none, only annotations count.
	Set *Set
	// Log is used where a call is given none. Default: logrus's standard logger.
	Log logrus.FieldLogger
	// Recorder keeps the record of frozen pods. Default: none is kept.
	Recorder Recorder
	// FreezeSeconds is told the length of each freeze window when it ends. Default: nobody is.
	FreezeSeconds Observer
}

// Observer takes in a measured value; a prometheus.Histogram is one.
type Observer interface{ Observe(value float64) }

type noObserver struct{}

func (noObserver) Observe(float64) {}

// Runner runs the hooks of the pods of one backup. It may be used by many goroutines at once.
type Runner struct {
	deps   Deps
	ledger ledger

	mu   sync.Mutex
	pods map[podKey]*podState
}

// podState is one pod's freeze. Its lock is held while hooks of the pod run, so that a Thaw waits for the Freeze, or for
// the other Thaw, that is under way.
type podState struct {
	mu     sync.Mutex
	stage  stage
	thaw   []Hook
	window int
	// hasWindow is true once a pre hook has started.
	hasWindow bool
	recorded  bool
	// recordErr is why the freeze couldn't be recorded. It is tried once for a freeze, not once for a hook.
	recordErr error
	// lookErr is why it isn't known that the pod is still the one that was listed. A freeze ends at the first such look, too: a pod that is
	// frozen already must not wait for the patience of each hook.
	lookErr error
	// thawErr is the result of the thaw, for those who ask again.
	thawErr error
}

type stage int

const (
	// untouched: no hook of the pod is owed.
	untouched stage = iota
	// owed: Freeze was here and the post hooks have still to run.
	owed
	// thawed: the post hooks have run.
	thawed
)

// NewRunner makes the Runner of one backup.
func NewRunner(deps Deps) *Runner {
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	if deps.Log == nil {
		deps.Log = logrus.StandardLogger()
	}
	if deps.FreezeSeconds == nil {
		deps.FreezeSeconds = noObserver{}
	}
	return &Runner{
		deps:   deps,
		ledger: ledger{hooks: map[hookKey]outcome{}},
		pods:   map[podKey]*podState{},
	}
}

// Freeze runs the pod's pre hooks in order. It is to be called for every pod of a block that isn't in the backup yet,
// also for one that has post hooks only, or no hooks: Thaw runs the post hooks of pods that Freeze has seen.
//
// An error means that the pod must not be backed up: a hook whose onError is explicitly Fail has failed (the hooks after
// it don't run), or ctx has ended. A failure of any other hook is only an error line, and the next hook runs. When the freeze
// can't be recorded, each of the pod's pre hooks fails, without having been run; so does one whose pod is gone or was replaced by
// another of its name, or can't be looked at, and those after it. Every error has been logged as an error line
// before Freeze returns; one of a hook whose onError is Fail as two, of the hook and of the pod.
//
// ctx is looked at between hooks. A hook that is running is waited for, at most for its timeout.
func (r *Runner) Freeze(ctx context.Context, log logrus.FieldLogger, pod *unstructured.Unstructured) error {
	log = r.logger(log)
	state := r.state(keyOf(pod))
	state.mu.Lock()
	defer state.mu.Unlock()
	if state.stage == owed {
		err := fmt.Errorf("pod %s/%s is frozen already", pod.GetNamespace(), pod.GetName())
		log.WithError(err).Error("Pre hooks not run")
		return err
	}
	state.reset(r.deps.Set.Hooks(pod, PhasePost, log))

	var stop error
	for _, h := range r.deps.Set.Hooks(pod, PhasePre, log) {
		c := call{pod: pod, phase: PhasePre, hook: h, log: log}
		r.ledger.attempt(c.key())
		if stop == nil {
			stop = r.preHook(ctx, state, c)
		}
	}
	if stop == nil || state.hasWindow {
		state.stage = owed
	}
	return stop
}

// preHook runs one pre hook, and returns an error if the pod must not be backed up because of it.
func (r *Runner) preHook(ctx context.Context, state *podState, c call) error {
	if finished(c.pod) {
		r.ledger.settle(c.key(), nil)
		return nil
	}
	if err := ctx.Err(); err != nil {
		err = c.wrap(fmt.Errorf("not run: %w", context.Cause(ctx)))
		c.logger().WithError(err).Error("Hook not run")
		return err
	}
	err := c.check()
	if err == nil {
		err = r.look(ctx, state, c)
	}
	if err == nil {
		err = r.record(ctx, state, c.pod)
	}
	if err == nil {
		if !state.hasWindow {
			state.window, state.hasWindow = r.ledger.open(keyOf(c.pod), r.deps.Clock.Now()), true
		}
		err = execute(ctx, r.deps.Executor, c)
	}
	err = r.settle(c, err)
	if c.hook.Exec.OnError == velerov1.HookErrorModeFail {
		return err
	}
	return nil
}

// look asks whether the hook's pod is still there. After a look that failed none is made for the rest of the freeze.
func (r *Runner) look(ctx context.Context, state *podState, c call) error {
	if r.deps.Pods != nil && state.lookErr == nil {
		state.lookErr = r.deps.Pods.Check(ctx, CommandOf(c.pod, c.phase, c.hook))
	}
	return state.lookErr
}

// record makes the durable record, once for a freeze, before its first command is sent. A pod without post hooks needs none:
// nothing could thaw it.
func (r *Runner) record(ctx context.Context, state *podState, pod *unstructured.Unstructured) error {
	if r.deps.Recorder == nil || state.recorded || state.recordErr != nil || len(state.thaw) == 0 {
		return state.recordErr
	}
	if err := r.deps.Recorder.Frozen(ctx, pod, state.thaw); err != nil {
		state.recordErr = fmt.Errorf("not run, because it couldn't be recorded that the pod is frozen: %w", err)
		return state.recordErr
	}
	state.recorded = true
	return nil
}

// Thaw runs the post hooks of a pod that Freeze has seen: always if any pre hook of it has started, and otherwise if
// Freeze returned no error. Without a Freeze before it, and when the pod is thawed already, it runs nothing. A second
// caller waits until the first has finished and gets the same result.
//
// It doesn't heed the end of ctx: an application must not stay frozen because its backup was cancelled. The Executor bounds
// it. A failing hook doesn't keep the next one from running. The error tells of all that failed, and each has been logged as an
// error line; the pod stays in the backup. Hooks that have not reached their container stay in the record, for whoever recovers.
func (r *Runner) Thaw(ctx context.Context, log logrus.FieldLogger, pod *unstructured.Unstructured) error {
	log = r.logger(log)
	state := r.state(keyOf(pod))
	state.mu.Lock()
	defer state.mu.Unlock()
	if state.stage != owed {
		return state.thawErr
	}
	var errs []error
	var owed []Hook
	for _, h := range state.thaw {
		err := r.postHook(ctx, call{pod: pod, phase: PhasePost, hook: h, log: log})
		errs = append(errs, err)
		if Owed(err) {
			owed = append(owed, h)
		}
	}
	if state.hasWindow {
		r.deps.FreezeSeconds.Observe(r.ledger.close(state.window, r.deps.Clock.Now()).Seconds())
	}
	state.stage, state.thawErr = thawed, errors.Join(errs...)
	r.unrecord(context.WithoutCancel(ctx), state, call{pod: pod, log: log}, owed)
	return state.thawErr
}

func (r *Runner) postHook(ctx context.Context, c call) error {
	r.ledger.attempt(c.key())
	if finished(c.pod) {
		r.ledger.settle(c.key(), nil)
		return nil
	}
	err := c.check()
	if err == nil {
		err = execute(ctx, r.deps.Executor, c)
	}
	return r.settle(c, err)
}

// unrecord clears the durable record. Failing at it is a warning: the worst that follows is a second thaw after the next
// start of the server.
func (r *Runner) unrecord(ctx context.Context, state *podState, c call, owed []Hook) {
	if !state.recorded {
		return
	}
	state.recorded = false
	log := c.log.WithFields(logrus.Fields{"namespace": c.pod.GetNamespace(), "pod": c.pod.GetName()})
	if err := r.deps.Recorder.Thawed(ctx, c.pod, owed); err != nil {
		log.WithError(err).Warn("The post hooks of the pod are over, but the record of its freeze couldn't be changed")
	}
}

// settle counts and logs the end of a hook, and returns its error with the hook's name.
func (r *Runner) settle(c call, err error) error {
	r.ledger.settle(c.key(), err)
	if err == nil {
		return nil
	}
	err = c.wrap(err)
	c.logger().WithError(err).Error("Hook failed")
	if c.hook.Exec.OnError == velerov1.HookErrorModeFail { // as in stock it is a failure of the pod, too, with a line of its own (215)
		c.log.WithError(err).WithField("name", c.pod.GetName()).Errorf("The %s hooks of pod %s/%s failed", c.phase, c.pod.GetNamespace(), c.pod.GetName())
	}
	return err
}

// Stats returns how many distinct hooks were due and how many of those failed, for the backup's status.hookStatus.
// Hooks that were left out after a failure, and hooks of pods that had ended, were due.
func (r *Runner) Stats() (attempted, failed int) {
	return r.ledger.stats()
}

// Windows returns the freeze windows in the order in which they began, including those that are still open.
func (r *Runner) Windows() []Window {
	return r.ledger.list()
}

func (r *Runner) logger(log logrus.FieldLogger) logrus.FieldLogger {
	if log == nil {
		return r.deps.Log
	}
	return log
}

func (r *Runner) state(key podKey) *podState {
	r.mu.Lock()
	defer r.mu.Unlock()
	state, ok := r.pods[key]
	if !ok {
		state = &podState{}
		r.pods[key] = state
	}
	return state
}

// reset begins a new freeze.
func (s *podState) reset(thaw []Hook) {
	s.stage, s.thaw, s.thawErr = untouched, thaw, nil
	s.window, s.hasWindow, s.recorded, s.recordErr, s.lookErr = 0, false, false, nil, nil
}

func keyOf(pod *unstructured.Unstructured) podKey {
	return podKey{namespace: pod.GetNamespace(), name: pod.GetName()}
}
