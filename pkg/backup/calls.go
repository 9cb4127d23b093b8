// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// callGrace is how long calls of plugins may still take when nobody can use their answers any more: the backup was given up, or
// the pod that a snapshot was for is thawed.
const callGrace = 5 * time.Second

// call makes calls of a plugin. Nothing can end such a call but the end of the plugin's process: when it takes longer than
// limit (0 is for ever), or callGrace longer than ctx, the processes are stopped. Velero starts them again for the next call. The
// error says so; what the plugin answered is then worth nothing.
//
// Velero's own engine waits for ever, and leaves a pod frozen for as long.
func (r *run) call(ctx context.Context, limit time.Duration, plugin string, do func()) error {
	var stopped error
	done := make(chan struct{})
	var watch errgroup.Group
	watch.Go(func() error {
		if stopped = r.outlasted(ctx, limit, done); stopped == nil {
			return nil
		}
		stopped = fmt.Errorf("plugin %s: %w; the plugin processes are stopped", plugin, stopped)
		r.log.Warn(stopped.Error())
		if r.request.StopPlugins != nil {
			r.request.StopPlugins()
		}
		return nil
	})
	defer func() { _ = watch.Wait() }() // it returns no error; do may panic
	func() {
		defer close(done)
		do()
	}()
	_ = watch.Wait()
	return stopped
}

// outlasted returns when a call is done, nil, or when it has taken too long.
func (r *run) outlasted(ctx context.Context, limit time.Duration, done <-chan struct{}) error {
	var late <-chan time.Time
	if limit > 0 {
		timer := r.deps.Clock.NewTimer(limit)
		defer timer.Stop()
		late = timer.C()
	}
	select {
	case <-done:
		return nil
	case <-late:
		return fmt.Errorf("no answer for %s", limit)
	case <-ctx.Done():
	}
	timer := r.deps.Clock.NewTimer(callGrace)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C():
		return fmt.Errorf("no answer when it wasn't needed any more: %w", context.Cause(ctx))
	}
}

// callLimit bounds a call of a plugin while no pod is frozen for it. It is the time that operations may take that go on without
// such a call, which is hours.
func (r *run) callLimit() time.Duration { return r.backup.Spec.ItemOperationTimeout.Duration }

// frozenCallLimit bounds the calls for the native snapshot of a volume whose pods are frozen. It is the time that a CSI snapshot
// may take.
func (r *run) frozenCallLimit() time.Duration { return r.backup.Spec.CSISnapshotTimeout.Duration }

// protectNatively takes the native snapshot of a volume, if it is to have one. limit is for all calls that this takes.
func (r *run) protectNatively(ctx context.Context, limit time.Duration, object *unstructured.Unstructured, pv *corev1.PersistentVolume) error {
	var err error
	stopped := r.call(ctx, limit, "for native snapshots", func() { err = r.native.Protect(ctx, object, pv) })
	return errors.Join(stopped, err)
}

// boundedBlockAction is the ItemBlockAction of a plugin.
type boundedBlockAction struct {
	*scope
	plugin framework.ItemBlockResolvedAction
	run    *run
	ctx    context.Context //nolint:containedctx // GetRelatedItems has none, and the action lives for one run
}

// GetRelatedItems implements itemblock.Action.
func (b boundedBlockAction) GetRelatedItems(item runtime.Unstructured, backup *velerov1.Backup) (ids []velero.ResourceIdentifier, err error) {
	stopped := b.run.call(b.ctx, b.run.callLimit(), b.Name(), func() {
		err = b.run.deliver(b.ctx, func() error {
			ids, err = b.plugin.GetRelatedItems(item, backup)
			return err
		})
	})
	if stopped != nil {
		return nil, stopped
	}
	return ids, err
}
