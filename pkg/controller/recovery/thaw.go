// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/velero-clipper/clipper/pkg/hook"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
)

// thawsAtOnce is how many pods are thawed at the same time. Each is an exec request that is held open.
const thawsAtOnce = 30

// thawAll thaws the pods of a record. It heeds ctx but not its end: a server that is told to stop thaws what it can, within the limits
// of the executor.
func (r *Recovery) thawAll(ctx context.Context, c *aCase, o *outcome) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), thawLimit, fmt.Errorf("it was tried for %s", thawLimit))
	defer cancel()
	o.unreadable = c.record.Unreadable
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(thawsAtOnce)
	for _, pod := range c.record.Pods {
		group.Go(func() error {
			kind, note := r.thawUnlessFrozen(ctx, c, pod)
			mu.Lock()
			defer mu.Unlock()
			o.add(pod.String(), kind, note)
			return nil
		})
	}
	_ = group.Wait() // none of them returns an error
}

// thawKind is how a thaw ended.
type thawKind int

const (
	thawed thawKind = iota
	needless
	failed
	owed
	deferred // until a later backup, which has it frozen, is over
)

// add notes the end of a thaw.
func (o *outcome) add(pod string, kind thawKind, note string) {
	list := map[thawKind]*[]podResult{thawed: &o.thawed, needless: &o.needless, failed: &o.failed, owed: &o.owed, deferred: &o.deferred}[kind]
	*list = append(*list, podResult{pod: pod, note: note})
}

// goneNote is what the record has about a pod that needed no thaw.
const goneNote = "the pod is gone"

// thaw runs the hooks that thaw a pod, and notes in the record what has run.
func (r *Recovery) thaw(ctx context.Context, c *aCase, pod *freezerecord.Pod) (thawKind, string) {
	log := c.log.WithField("namespace", pod.Namespace).WithField("pod", pod.Pod)
	var note string
	var owing []error
	var places []int
	for place, command := range pod.Commands() {
		err := r.run(ctx, c, command)
		var notRun *hook.NotRunError
		switch {
		case errors.As(err, &notRun) && notRun.PodGone:
			note = goneNote
		case hook.Owed(err): // the next may be the one that matters
			owing, places = append(owing, err), append(places, place)
		case err != nil:
			log.WithError(err).Error("A hook that thaws the pod failed")
			note = err.Error()
		}
	}
	if len(owing) > 0 && note != goneNote {
		if err := c.record.Reduce(ctx, pod, places); err != nil {
			log.WithError(err).Warn("A part of the thaw will be done twice")
		}
		return owed, errors.Join(owing...).Error()
	}
	r.settle(ctx, c, pod, note)
	return kindOf(note), note
}

// settle notes in the record that nothing is left to be done for a pod.
func (r *Recovery) settle(ctx context.Context, c *aCase, pod *freezerecord.Pod, note string) {
	if err := c.record.Settle(ctx, pod, r.deps.Clock.Now(), note); err != nil {
		c.log.WithField("namespace", pod.Namespace).WithField("pod", pod.Pod).WithError(err).
			Warn("The pod is thawed, but that couldn't be noted; it may be thawed twice")
	}
}

func kindOf(note string) thawKind {
	switch note {
	case "":
		return thawed
	case goneNote:
		return needless
	default:
		return failed
	}
}

// run runs one command. A panic must not keep the other pods frozen.
func (r *Recovery) run(ctx context.Context, c *aCase, command hook.Command) (err error) {
	log := c.log.WithField("namespace", command.Namespace).WithField("pod", command.Pod)
	defer func() {
		if cause := recover(); cause != nil {
			log.WithField("stack", string(debug.Stack())).Errorf("Panic while thawing a pod: %v", cause)
			err = fmt.Errorf("running its command panicked: %v", cause)
		}
	}()
	return r.deps.Executor.Run(ctx, log, command)
}
