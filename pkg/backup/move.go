// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/backup/volume"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// moveClaim asks the data mover to move what a cut snapshot holds, and puts on the claim how to find it again. The
// VolumeSnapshot and its content are the data mover's from here on: it removes them, and they are no part of the backup (285).
//
// When it can't be asked the snapshot is of no use and is removed. The claim is in the backup without its data, and the error
// line makes the backup PartiallyFailed (286).
func (w *walker) moveClaim(ctx context.Context, object *unstructured.Unstructured, claim *claim, outcome snapshot.Outcome) (actionResult, error) {
	err := w.freeOfGroup(ctx, claim)
	var upload *velerov2alpha1.DataUpload
	if err == nil {
		upload, err = w.submitUpload(ctx, object, outcome)
	}
	if err != nil {
		log := w.log.WithField("namespace", object.GetNamespace()).WithField("name", object.GetName())
		log.WithError(err).Error("The claim's data can't be moved, so it is in the backup without it")
		w.claims.discard(claim)
		if err := w.deps.Settler.Remove(context.WithoutCancel(ctx), refTo(outcome)); err != nil {
			log.WithError(err).Warn("The claim's snapshot, which is of no use, can't be removed")
		}
		return actionResult{object: object}, nil
	}
	described, err := volume.DescribeMovedClaim(object, w.backup.Name, upload)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{
		object:      described,
		mustInclude: true,
		operationID: w.mover.OperationID(object),
		postItems:   []velero.ResourceIdentifier{w.mover.Identifier(upload)},
	}, nil
}

// freeOfGroup takes a claim's snapshot out of its group: a data mover deletes each snapshot by itself, which a member doesn't let
// happen. That has to wait until it is ready.
func (w *walker) freeOfGroup(ctx context.Context, claim *claim) error {
	if claim.plan.Request.Group == nil {
		return nil
	}
	limit := w.deps.Clock.NewTimer(claim.plan.Request.Timeout)
	defer limit.Stop()
	select {
	case <-claim.snapshot.Ready():
	case <-limit.C():
		return fmt.Errorf("its snapshot, one of a volume group, was not ready for use within %s", claim.plan.Request.Timeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	vs := claim.snapshot.Outcome().VolumeSnapshot
	return w.deps.Settler.LeaveGroup(ctx, vs.Namespace, vs.Name)
}

// submitUpload creates the DataUpload. Its name is made by the API server, so before a second try it is looked for: the first one
// may have succeeded with its answer lost, and an operation that has two DataUploads fails (288).
func (w *walker) submitUpload(ctx context.Context, object *unstructured.Unstructured, outcome snapshot.Outcome) (*velerov2alpha1.DataUpload, error) {
	wanted, err := w.mover.Upload(object, outcome.VolumeSnapshot, outcome.Content)
	if err != nil {
		return nil, err
	}
	var upload *velerov2alpha1.DataUpload
	again := false
	err = untilAnswered(ctx, func() (err error) {
		if again {
			if upload, err = w.findUpload(ctx, wanted); err != nil || upload != nil {
				return err
			}
		}
		again = true
		upload = wanted.DeepCopy()
		return w.deps.Client.Create(ctx, upload)
	})
	if err != nil {
		return nil, fmt.Errorf("creating a DataUpload: %w", err)
	}
	w.log.WithField("namespace", object.GetNamespace()).WithField("name", object.GetName()).
		Infof("DataUpload %s was created for VolumeSnapshot %s", upload.Name, outcome.VolumeSnapshot.Name)
	return upload, nil
}

// findUpload returns the DataUpload of the same operation, or nil.
func (w *walker) findUpload(ctx context.Context, wanted *velerov2alpha1.DataUpload) (*velerov2alpha1.DataUpload, error) {
	var found velerov2alpha1.DataUploadList
	err := w.deps.Client.List(ctx, &found, client.InNamespace(wanted.Namespace),
		client.MatchingLabels{velerov1.AsyncOperationIDLabel: wanted.Labels[velerov1.AsyncOperationIDLabel]})
	if err != nil || len(found.Items) == 0 {
		return nil, err
	}
	return &found.Items[0], nil
}

// discard notes that a claim's snapshot is removed although it was cut.
func (c *claims) discard(claim *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim.discarded = true
}

// cancelUploads tells the data mover to stop: the backup has failed, so its snapshots are removed and nothing will be restored.
func (r *run) cancelUploads(ctx context.Context) {
	if r.mover == nil {
		return
	}
	cancel := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"cancel":true}}`))
	for _, operation := range r.operations.all() {
		if operation.Spec.BackupItemAction != claimActionName {
			continue
		}
		for _, id := range operation.Spec.PostOperationItems {
			upload := &velerov2alpha1.DataUpload{}
			upload.Namespace, upload.Name = id.Namespace, id.Name
			err := untilAnswered(ctx, func() error { return client.IgnoreNotFound(r.deps.Client.Patch(ctx, upload, cancel)) })
			if err != nil {
				r.log.WithError(err).WithField("name", id.Name).Warn("The DataUpload of the failed backup can't be cancelled")
			}
		}
	}
}
