// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
)

// freeze is the time in which the pods of one block are frozen. It ends with thaw, or at the freeze limit of any of its pods:
// they are frozen together, since a volume that two of them use is consistent only as long as both stand still.
type freeze struct {
	run  *run
	log  logrus.FieldLogger
	pods []collect.Item
	// ctx is for what is done while the pods are frozen. It ends with the backup, and with the freeze.
	ctx context.Context //nolint:containedctx // it is the freeze's own life
	end context.CancelCauseFunc
	// begun is closed when no more pods will be frozen.
	begun chan struct{}
	// limits are the goroutines that watch the pods' limits.
	limits errgroup.Group
}

// errThawed is why a freeze ends that nothing has ended before.
var errThawed = errors.New("the pods are thawed")

func (r *run) newFreeze(ctx context.Context, log logrus.FieldLogger, pods []collect.Item) *freeze {
	f := &freeze{run: r, log: log, pods: pods, begun: make(chan struct{})}
	f.ctx, f.end = context.WithCancelCause(ctx)
	return f
}

// begin freezes the pods, one after the other.
func (f *freeze) begin(block *itemblock.Block) {
	defer close(f.begun)
	for _, pod := range f.pods {
		f.watchLimit(pod)
		if err := f.run.runner.Freeze(f.ctx, f.log, pod.Object()); err != nil {
			f.run.visits.refuse(pod, block)
		}
	}
}

// watchLimit ends the freeze when a pod, which is about to be frozen, has been so for as long as it may.
func (f *freeze) watchLimit(pod collect.Item) {
	if f.ctx.Err() != nil || !f.run.hooks.HasHooks(pod.Object()) {
		return
	}
	limit, from := f.run.maxFreeze(pod, f.log)
	if limit == 0 {
		return
	}
	timer := f.run.deps.Clock.NewTimer(limit)
	f.limits.Go(func() error {
		defer timer.Stop()
		select {
		case <-timer.C():
			f.expire(&freezeLimitError{pod: pod.Namespace + "/" + pod.Name, limit: limit, from: from})
		case <-f.ctx.Done():
		}
		return nil
	})
}

// expire thaws the pods at once, whatever is still going on for them: a call to a plugin may take long, or never return. Only a hook
// that is running is waited for.
func (f *freeze) expire(reason *freezeLimitError) {
	f.end(reason)
	f.log.WithField("pod", reason.pod).Warnf("The freeze limit of pod %s is over (%s, %s); the pods of its item block are thawed, and what isn't snapshotted by now fails",
		reason.pod, reason.limit, reason.from)
	<-f.begun
	f.thawPods()
}

// expired returns the reason when the freeze was ended by a limit.
func (f *freeze) expired() error {
	var reason *freezeLimitError
	if errors.As(context.Cause(f.ctx), &reason) {
		return reason
	}
	return nil
}

// thaw ends the freeze. When it returns the pods are thawed, whoever has done it.
func (f *freeze) thaw() {
	f.end(errThawed)
	_ = f.limits.Wait() // they return no errors
	f.thawPods()
}

// headStart is how long a pod's thaw may take before that of the next one is begun beside it.
const headStart = time.Second

// thawPods thaws in order. A pod that can't be reached, whose thaw is tried for minutes, doesn't keep the others frozen.
func (f *freeze) thawPods() {
	var group errgroup.Group
	for _, pod := range f.pods {
		done := make(chan struct{})
		group.Go(func() error {
			defer close(done)
			// What went wrong has been logged; the pod's item is backed up all the same (219).
			_ = f.run.runner.Thaw(f.ctx, f.log, pod.Object())
			return nil
		})
		timer := f.run.deps.Clock.NewTimer(headStart)
		select {
		case <-done:
		case <-timer.C():
		}
		timer.Stop()
	}
	_ = group.Wait() // none of them returns an error
}
