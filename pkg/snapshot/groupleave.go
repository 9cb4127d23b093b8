// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// This file is how groups end: as a whole when they fail, and member by member when they don't.

// abandon removes a group that failed, with all its snapshots, the physical ones too. One of which members were adopted, by
// this try or an earlier one, is left: each of them is removed by itself.
func (g *groups) abandon(ctx context.Context, ref groupRef) error {
	if ref.uid == "" {
		return g.remove(ctx, ref, snapshotv1.VolumeSnapshotContentDelete)
	}
	found, err := g.members(ctx, ref)
	if err != nil {
		return err
	}
	for _, vs := range found {
		if vs.Annotations[AnnGroup] != "" {
			return nil
		}
	}
	return g.remove(ctx, ref, snapshotv1.VolumeSnapshotContentDelete)
}

// leave takes a VolumeSnapshot out of its group, so that it can live and be deleted by itself, and removes the
// VolumeGroupSnapshot when it was the last that anybody asked for. A VolumeSnapshot that isn't deleted must be ready: one that
// isn't would be taken a second time, alone.
//
// csi-snapshotter doesn't delete the physical snapshot of a content that names a group; so that name goes first of all.
// The snapshot-controller deletes the members of a VolumeGroupSnapshot with it, and makes members again of those whose status
// names it. So that name goes next, then the ownership, and the group only after that.
func (g *groups) leave(ctx context.Context, key types.NamespacedName) error {
	var owner *metav1.OwnerReference
	err := g.retry(ctx, func(ctx context.Context) error {
		vs, err := g.client.VolumeSnapshots(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if owned := groupOf(vs); owned != nil {
			owner = owned
			return g.detach(ctx, vs)
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking VolumeSnapshot %s out of its group: %w", key, err)
	}
	if owner == nil || g.api == nil {
		return nil
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return fmt.Errorf("reading the owner of VolumeSnapshot %s: %w", key, err)
	}
	ref := groupRef{version: gv.Version, namespace: key.Namespace, name: owner.Name, uid: owner.UID}
	left, err := g.members(ctx, ref)
	if err != nil {
		return err
	}
	for _, vs := range left {
		if vs.Annotations[AnnGroup] != "" {
			return nil
		}
	}
	return g.remove(ctx, ref, snapshotv1.VolumeSnapshotContentRetain)
}

// detach makes a member a VolumeSnapshot of its own. A conflict is for the caller, who reads it again.
func (g *groups) detach(ctx context.Context, vs *snapshotv1.VolumeSnapshot) error {
	if content := boundContent(vs); content != "" {
		if err := g.ungroup(ctx, content); err != nil {
			return err
		}
	}
	if vs.Status != nil && vs.Status.VolumeGroupSnapshotName != nil {
		_, err := g.client.VolumeSnapshots(vs.Namespace).Patch(ctx, vs.Name, types.MergePatchType,
			[]byte(`{"status":{"volumeGroupSnapshotName":null}}`), metav1.PatchOptions{}, "status")
		if err != nil {
			return err
		}
		if vs, err = g.client.VolumeSnapshots(vs.Namespace).Get(ctx, vs.Name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	owners, finalizers := []metav1.OwnerReference{}, []string{}
	group := groupOf(vs)
	for _, owner := range vs.OwnerReferences {
		if group == nil || owner.UID != group.UID {
			owners = append(owners, owner)
		}
	}
	for _, finalizer := range vs.Finalizers {
		if finalizer != inGroupFinalizer {
			finalizers = append(finalizers, finalizer)
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": vs.ResourceVersion, "ownerReferences": owners, "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("writing the patch of VolumeSnapshot %s/%s: %w", vs.Namespace, vs.Name, err)
	}
	_, err = g.client.VolumeSnapshots(vs.Namespace).Patch(ctx, vs.Name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// ungroup takes the group's name off a content, without which csi-snapshotter would leave its physical snapshot (as of v8.7.0).
func (g *groups) ungroup(ctx context.Context, content string) error {
	_, err := g.client.VolumeSnapshotContents().Patch(ctx, content, types.MergePatchType,
		[]byte(`{"status":{"volumeGroupSnapshotHandle":null}}`), metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// remove deletes a VolumeGroupSnapshot and its content. The policy says what becomes of the storage's group.
func (g *groups) remove(ctx context.Context, ref groupRef, policy snapshotv1.DeletionPolicy) error {
	api, contents := g.resource(ref.version, GroupResource).Namespace(ref.namespace), g.resource(ref.version, groupContentsResource)
	var vgs *unstructured.Unstructured
	err := g.retry(ctx, func(ctx context.Context) (err error) {
		vgs, err = api.Get(ctx, ref.name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) || err == nil && ref.uid != "" && vgs.GetUID() != ref.uid {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading VolumeGroupSnapshot %s/%s: %w", ref.namespace, ref.name, err)
	}
	content, _, _ := unstructured.NestedString(vgs.Object, "status", "boundVolumeGroupSnapshotContentName")
	if content != "" {
		body := fmt.Appendf(nil, `{"spec":{"deletionPolicy":%q}}`, policy)
		err := g.retry(ctx, func(ctx context.Context) error {
			_, err := contents.Patch(ctx, content, types.MergePatchType, body, metav1.PatchOptions{})
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("setting the deletion policy of VolumeGroupSnapshotContent %s to %s: %w", content, policy, err)
		}
	}
	removals := []func(context.Context) error{
		func(ctx context.Context) error { return api.Delete(ctx, ref.name, deleteOptions(vgs.GetUID())) },
	}
	if content != "" && policy == snapshotv1.VolumeSnapshotContentRetain { // else it goes with the VolumeGroupSnapshot
		removals = append(removals, func(ctx context.Context) error { return contents.Delete(ctx, content, metav1.DeleteOptions{}) })
	}
	var errs []error
	for _, removal := range removals {
		err := g.retry(ctx, func(ctx context.Context) error {
			if err := removal(ctx); !isGone(err) {
				return err
			}
			return nil
		})
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("deleting VolumeGroupSnapshot %s/%s and its content: %w", ref.namespace, ref.name, err)
	}
	return nil
}
