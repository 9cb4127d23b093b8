// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/util/boolptr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/internal/velero"
	"github.com/velero-clipper/clipper/pkg/backup/filter"
	"github.com/velero-clipper/clipper/pkg/backup/volume"
	"github.com/velero-clipper/clipper/pkg/hook"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// resolve turns what the spec says in words into what it means in this cluster.
func (r *run) resolve(ctx context.Context) (err error) {
	r.filter, err = filter.Resolve(ctx, r.log, filter.Deps{
		Client: r.deps.Client, Discovery: r.deps.Discovery, Policies: r.request.Policies,
	}, r.backup.Spec)
	if err != nil {
		return err
	}
	r.hooks, err = hook.Resolve(r.backup.Spec.Hooks.Resources, r.deps.Discovery)
	if err != nil {
		return err
	}
	r.runner = hook.NewRunner(hook.Deps{
		Executor: r.deps.Executor, Pods: r.deps.Pods, Clock: r.deps.Clock, Set: r.hooks, Log: r.log, Recorder: r.openRecord(), FreezeSeconds: r.deps.FreezeSeconds,
	})

	stopped := r.call(ctx, r.callLimit(), "that is asked what it applies to", func() { err = r.resolveActions(ctx) })
	if err := errors.Join(stopped, err); err != nil {
		return err
	}
	if err := r.resolveVolumes(ctx); err != nil {
		return err
	}
	return r.beginPodVolumes(ctx)
}

// resolveActions asks the plugins what they apply to.
func (r *run) resolveActions(ctx context.Context) error {
	itemActions, err := r.request.ItemActions.ResolveActions(r.deps.Discovery, r.log)
	if err != nil {
		return fmt.Errorf("asking the backup item actions what they apply to: %w", err)
	}
	if r.actions, err = r.actionsOf(itemActions); err != nil {
		return err
	}
	blockActions, err := r.request.BlockActions.ResolveActions(r.deps.Discovery, r.log)
	if err != nil {
		return fmt.Errorf("asking the item block actions what they apply to: %w", err)
	}
	r.blockActions, err = r.itemBlockActions(ctx, blockActions)
	return err
}

// resolveVolumes sets up the planner. Velero's volume helper, which it asks, knows the volume policies, global ones too
// (367), and reads each namespace's pods once (234).
func (r *run) resolveVolumes(ctx context.Context) error {
	namespaces, err := r.filter.NamespaceList()
	if err != nil {
		return fmt.Errorf("resolving the backup's namespaces: %w", err)
	}
	r.helper, err = r.request.Policies.VolumeHelper(velero.VolumeHelperOptions{
		SnapshotVolumes:          r.backup.Spec.SnapshotVolumes,
		DefaultVolumesToFsBackup: boolptr.IsSetToTrue(r.backup.Spec.DefaultVolumesToFsBackup),
		ExcludesClaims:           !r.filter.IncludesResource(kuberesource.PersistentVolumeClaims),
		Namespaces:               namespaces,
		Client:                   r.objects,
		Log:                      quietly(r.log),
	})
	if err != nil {
		return fmt.Errorf("finding out which pods use which volumes: %w", err)
	}
	r.planner = &volume.Planner{
		Backup:  r.backup,
		Owner:   snapshot.Owner{Name: r.backup.Name, Namespace: r.backup.Namespace, UID: r.backup.UID},
		Objects: r.objects,
		Decider: r.helper,
		Mover:   r.mover,
		GroupVersion: func() (string, error) {
			gvr, _, err := r.deps.Discovery.ResourceFor(schema.GroupVersionResource{Group: snapshot.GroupAPI, Resource: snapshot.GroupResource})
			return gvr.Version, err
		},
	}
	snapshotters := deliveringSnapshotters{VolumeSnapshotters: r.request.Snapshotters, run: r, ctx: ctx}
	r.native = volume.NewNative(r.backup, r.request.SnapshotLocations, snapshotters, r.volumes)
	r.native.Log, r.native.Decider = r.log, r.helper
	if r.request.Policies != nil {
		r.native.Claims = r.objects
	}
	r.claims = newClaims(r.planner, r.deps.Taker)
	return nil
}
