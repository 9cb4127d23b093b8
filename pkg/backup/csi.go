// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/label"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/volume"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// Names of Velero's CSI actions. Operation records carry them, so that a server rolled back to Velero's own engine can
// finish what this one began (366).
const (
	claimActionName    = "velero.io/csi-pvc-backupper"
	snapshotActionName = "velero.io/csi-volumesnapshot-backupper"
	contentActionName  = "velero.io/csi-volumesnapshotcontent-backupper"
	classActionName    = "velero.io/csi-volumesnapshotclass-backupper"
)

// ownActions are run by the engine in the place of the plugins of these names.
var ownActions = map[string]func(ctx context.Context, w *walker, object *unstructured.Unstructured) (actionResult, error){
	claimActionName:    backUpClaim,
	snapshotActionName: backUpSnapshot,
	contentActionName:  backUpContent,
	classActionName:    backUpClass,
}

// backUpClaim brings in the claim's snapshot. It has been taken before the block is walked; only a claim that a plugin
// brought in late is planned, taken and waited for here.
func backUpClaim(ctx context.Context, w *walker, object *unstructured.Unstructured) (actionResult, error) {
	claim := w.claims.plan(ctx, object)
	if claim.err != nil {
		return actionResult{}, claim.err
	}
	if claim.plan.Warning != "" {
		w.log.WithField("namespace", object.GetNamespace()).WithField("name", object.GetName()).Warn(claim.plan.Warning)
	}
	if claim.plan.Method != volume.CSISnapshot {
		w.volumes.Skip(claim.plan.Volume, claim.plan.Approach, claim.plan.Reason)
		if claim.plan.Approach == volume.ApproachCSI { // as Velero's action says it to the plugins after it, and to whoever reads the backup (190)
			object = withAnnotation(object, velerov1.SkippedNoCSIPVAnnotation, "true")
		}
		return actionResult{object: object}, nil
	}
	taken := w.claims.take(ctx, snapshot.Batch, claim)
	_ = snapshot.Wait(context.WithoutCancel(ctx), taken...) // every future is decided, also when ctx ends
	outcome := taken[0].Outcome()
	if err := outcome.Err(); err != nil {
		return actionResult{}, err
	}
	if err := w.claims.unfit(claim); err != nil {
		return actionResult{}, err
	}
	if outcome.Lost != "" {
		return actionResult{}, errors.New(outcome.Lost)
	}
	w.volumes.Taken(claim.plan.Volume)
	w.claims.named(outcome.VolumeSnapshot, claim)
	if w.mover != nil {
		return w.moveClaim(ctx, object, claim, outcome)
	}
	described, err := volume.DescribeClaim(object, w.backup.Name, outcome.VolumeSnapshot, outcome.Content)
	if err != nil {
		return actionResult{}, err
	}
	vs := outcome.VolumeSnapshot
	if vs.DeletionTimestamp != nil {
		// Somebody deletes it, and its content is kept with the snapshot: that is as good. What is being deleted would be left out.
		vs = vs.DeepCopy()
		vs.DeletionTimestamp, vs.DeletionGracePeriodSeconds = nil, nil
	}
	item, err := w.typedItem(kuberesource.VolumeSnapshots, vs)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{object: described, mustInclude: true, additional: []additional{{id: item.ID(), item: item}}}, nil
}

// backUpSnapshot writes into a VolumeSnapshot and its content what restore and deletion look for, and brings in the
// content and the class (291 to 294).
func backUpSnapshot(ctx context.Context, w *walker, object *unstructured.Unstructured) (actionResult, error) {
	name := nameOf(object)
	contentName, _, _ := unstructured.NestedString(object.Object, "status", "boundVolumeSnapshotContentName")
	if known := w.claims.contentOf(name); known != "" {
		contentName = known // the content knows its handle before the VolumeSnapshot knows its content
	}
	if contentName == "" {
		return actionResult{}, fmt.Errorf("VolumeSnapshot %s has no content yet, so there is nothing to back up; back it up again when it is bound", name)
	}
	content, err := w.labelContent(ctx, contentName)
	if err != nil {
		return actionResult{}, err
	}
	vs, gone, err := w.annotateSnapshot(ctx, object, content)
	if err != nil {
		return actionResult{}, err
	}
	w.claims.described(name, vs, content)

	vsItem, err := w.typedItem(kuberesource.VolumeSnapshots, vs)
	if err != nil {
		return actionResult{}, err
	}
	contentItem, err := w.typedItem(kuberesource.VolumeSnapshotContents, content)
	if err != nil {
		return actionResult{}, err
	}
	related := []additional{{id: contentItem.ID(), item: contentItem}}
	if vs.Spec.VolumeSnapshotClassName != nil {
		related = append([]additional{w.snapshotClass(ctx, *vs.Spec.VolumeSnapshotClassName)}, related...)
	}
	if gone { // nothing can be asked about it later
		return actionResult{object: vsItem.Object(), additional: related, mustInclude: true}, nil
	}
	return actionResult{
		object:      vsItem.Object(),
		additional:  related,
		mustInclude: true,
		operationID: fmt.Sprintf("%s/%s/%s", name.Namespace, name.Name, w.deps.Clock.Now().Format(time.RFC3339)),
		postItems:   []velero.ResourceIdentifier{vsItem.ID(), contentItem.ID()},
	}, nil
}

// annotateSnapshot writes into a VolumeSnapshot what restore and deletion look for. One that somebody has deleted meanwhile, while
// its content keeps the physical snapshot, is only annotated in the backup; gone is true then (field case F14).
func (w *walker) annotateSnapshot(ctx context.Context, object *unstructured.Unstructured, content *snapshotv1.VolumeSnapshotContent) (
	vs *snapshotv1.VolumeSnapshot, gone bool, err error,
) {
	annotations := volume.SnapshotAnnotations(content)
	vs = &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}}
	err = w.patchMetadata(ctx, vs, map[string]any{"annotations": annotations})
	if err == nil {
		return vs, false, nil
	}
	kept := content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentRetain && content.DeletionTimestamp == nil
	if !apierrors.IsNotFound(err) || !kept {
		return nil, false, fmt.Errorf("annotating VolumeSnapshot %s: %w", nameOf(object), err)
	}
	vs = new(snapshotv1.VolumeSnapshot)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, vs); err != nil {
		return nil, false, fmt.Errorf("reading VolumeSnapshot %s: %w", nameOf(object), err)
	}
	for key, value := range annotations {
		metav1.SetMetaDataAnnotation(&vs.ObjectMeta, key, value)
	}
	w.log.WithField("namespace", vs.Namespace).WithField("name", vs.Name).
		Warnf("The VolumeSnapshot was deleted by somebody else; its content %s is kept, and with it the snapshot, which is in the backup", content.Name)
	return vs, true, nil
}

// backUpContent brings in the secret that the driver needs for deleting the snapshot.
func backUpContent(_ context.Context, _ *walker, object *unstructured.Unstructured) (actionResult, error) {
	content := new(snapshotv1.VolumeSnapshotContent)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, content); err != nil {
		return actionResult{}, fmt.Errorf("reading VolumeSnapshotContent %s: %w", object.GetName(), err)
	}
	return withSecrets(object, volume.DeletionSecret(content)), nil
}

// backUpClass brings in the secret that the driver needs for listing snapshots.
func backUpClass(_ context.Context, _ *walker, object *unstructured.Unstructured) (actionResult, error) {
	class := new(snapshotv1.VolumeSnapshotClass)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, class); err != nil {
		return actionResult{}, fmt.Errorf("reading VolumeSnapshotClass %s: %w", object.GetName(), err)
	}
	return withSecrets(object, volume.ListSecret(class)), nil
}

// withSecrets lets secrets pass the filters: without them the snapshot can't be used after a restore (301).
func withSecrets(object *unstructured.Unstructured, secrets []velero.ResourceIdentifier) actionResult {
	result := actionResult{object: object, mustInclude: len(secrets) > 0}
	for _, id := range secrets {
		result.additional = append(result.additional, additional{id: id})
	}
	return result
}

// labelContent puts the backup's name on the content, by which it is found when the VolumeSnapshot is gone. Not being able
// to is a warning (292); the content is then only read.
func (w *walker) labelContent(ctx context.Context, name string) (*snapshotv1.VolumeSnapshotContent, error) {
	content := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := w.patchMetadata(ctx, content, map[string]any{
		"labels": map[string]string{velerov1.BackupNameLabel: label.GetValidName(w.backup.Name)},
	})
	if err == nil {
		return content, nil
	}
	w.log.WithError(err).WithField("name", name).Warn("The VolumeSnapshotContent can't be labelled with the backup's name")
	content = new(snapshotv1.VolumeSnapshotContent)
	err = untilAnswered(ctx, func() error { return w.deps.Client.Get(ctx, client.ObjectKey{Name: name}, content) })
	if err != nil {
		return nil, fmt.Errorf("reading VolumeSnapshotContent %s: %w", name, err)
	}
	return content, nil
}

// snapshotClass names a class, and has it at hand when it was read for planning.
func (w *walker) snapshotClass(ctx context.Context, name string) additional {
	related := additional{id: resourceID(kuberesource.VolumeSnapshotClasses, "", name)}
	classes, err := w.objects.SnapshotClasses(ctx)
	if err != nil {
		return related // the walk reads the class itself, and reports what is wrong
	}
	for i := range classes.Items {
		if classes.Items[i].Name != name {
			continue
		}
		if item, err := w.typedItem(kuberesource.VolumeSnapshotClasses, &classes.Items[i]); err == nil {
			related.item = item
		}
	}
	return related
}

// typedItem makes an item of an object of the snapshot API.
func (w *walker) typedItem(gr schema.GroupResource, object client.Object) (*collect.Item, error) {
	preferred, resource, err := w.deps.Discovery.ResourceFor(gr.WithVersion(""))
	if err != nil {
		return nil, fmt.Errorf("finding the resource type %s in discovery: %w", gr, err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", gr, object.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(snapshotv1.SchemeGroupVersion.WithKind(resource.Kind))
	kind := &collect.Type{GroupResource: gr, PreferredGVR: preferred, APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: resource.Kind}
	item, err := collect.NewItem(kind, u)
	return &item, err
}
