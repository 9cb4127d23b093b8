// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/pkg/backup/archive"
	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
)

// walker takes the items of one block into the backup. It belongs to one goroutine.
type walker struct {
	*run
	block *itemblock.Block
}

// walk writes the items of a block, one after the other. What befalls an item is an error line and doesn't stop the others.
func (r *run) walk(ctx context.Context, block *itemblock.Block) {
	r.countEnded(ctx, block)
	w := &walker{run: r, block: block}
	for _, item := range block.Items {
		if ctx.Err() != nil {
			return
		}
		w.top(ctx, item)
	}
	r.progress.blockDone()
	finished, known := r.visits.counts()
	r.log.WithField("block", block.String()).Infof("Backed up %d of an estimated %d items", finished, known)
}

// top backs up an item of the block itself and logs what went wrong, each cause in a line of its own (175).
func (w *walker) top(ctx context.Context, item collect.Item) {
	if w.visits.isKnown(keyOf(item)) {
		// It came in with another item, whose error line tells what happened to it.
		w.visits.sawType(item.GroupResource)
		return
	}
	what, err := w.item(ctx, item, false)
	if what == leftOut {
		return
	}
	if what == metBefore { // between the two lines above, by another block
		err = nil
	}
	for _, cause := range causes(err) {
		w.failedLog(item).WithError(cause).Errorf("The item is not in the backup: %s", item)
	}
	if err == nil {
		w.visits.sawType(item.GroupResource)
	}
}

// arrival is how an item came to be where it is.
type arrival int

const (
	// leftOut: the filters or a plugin keep it out of the backup.
	leftOut arrival = iota
	// metBefore: it was visited before, and has the result of that time.
	metBefore
	// visited: this was its visit.
	visited
)

func (r *run) itemLog(item collect.Item) logrus.FieldLogger {
	return r.log.WithFields(logrus.Fields{"resource": item.GroupResource.String(), "namespace": item.Namespace, "name": item.Name})
}

// failedLog is the log for the error line of an item that fails. It has no field for the namespace: by that field the results file
// groups lines, and those of items have none in stock (56).
func (r *run) failedLog(item collect.Item) logrus.FieldLogger {
	return r.log.WithFields(logrus.Fields{"resource": item.GroupResource.String(), "name": item.Name})
}

// item backs up one item, together with the items that its actions bring in. An item that was met before isn't written
// again; it has the result of the first time.
func (w *walker) item(ctx context.Context, item collect.Item, mustInclude bool) (arrival, error) {
	object := item.Object()
	if decision := w.filter.Includes(object, item.GroupResource, mustInclude); !decision.In {
		w.itemLog(item).Infof("Left out: %s", decision.Message)
		w.excluded(item, decision)
		return leftOut, nil
	}
	made, first := w.visits.enter(keyOf(item), item.ID(), w.block)
	if !first {
		return metBefore, w.visits.await(ctx, made, w.block)
	}
	files, err := w.convert(ctx, item, object)
	if err == nil && files == nil {
		w.visits.forget(made)
		return leftOut, nil
	}
	if err == nil {
		if err = w.archive.Add(files...); err != nil {
			w.giveUp(err) // the tarball is damaged
		}
	}
	w.visits.leave(made, err)
	return visited, err
}

// convert runs the item through its actions and returns its files; none when an action takes it out of the backup. A panic
// fails the item, not the server (369).
func (w *walker) convert(ctx context.Context, item collect.Item, collected *unstructured.Unstructured) (files []archive.File, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic while backing up %s: %v\n%s", item, cause, debug.Stack())
		}
	}()
	var errs []error
	var pod *podBackup
	w.noteOptOut(item)
	if item.GroupResource == kuberesource.Pods {
		pod = w.podVolumes.of(ctx, item)
		w.podVolumes.visit(pod)
		errs = append(errs, pod.errs...)
	}
	object, err := w.act(ctx, item, collected, w)
	if err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	if object == nil {
		return nil, errors.Join(errs...)
	}
	if item.GroupResource == kuberesource.PersistentVolumes {
		errs = append(errs, w.volume(ctx, object))
	}
	if pod != nil { // after the actions, and so after the snapshots of its claims (174)
		errs = append(errs, w.podVolumes.backUp(pod, w.itemLog(item))...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	version := collected.GroupVersionKind().Version
	if object == collected { // no action has changed it
		return archive.Files(item.ID(), item.PreferredGVR, version, item.JSON()), nil
	}
	return archive.ItemFiles(object, item.GroupResource, item.PreferredGVR, version)
}

// outcomes is what becomes of what actions return beside the object; the walk and the second look differ in that.
type outcomes interface {
	// began is told of an operation that goes on after the action. An error fails the item.
	began(action string, item collect.Item, result actionResult) error
	// additional takes in an item that an action brings in. An error fails the item that needs it (196).
	additional(ctx context.Context, related additional, mustInclude bool) error
}

// act hands the object from action to action, each with the items that it brings in and in between (194). It returns nil when an
// action takes the item out of the backup (171).
func (w *walker) act(ctx context.Context, item collect.Item, collected *unstructured.Unstructured, to outcomes) (*unstructured.Unstructured, error) {
	object := collected
	for _, action := range w.actions {
		if !action.ShouldUse(item.GroupResource, item.Namespace, collected, w.log) {
			continue
		}
		result, err := action.Execute(ctx, w, object)
		if err != nil {
			return nil, fmt.Errorf("action %s on %s: %w", action.Name(), item, err)
		}
		object = result.object
		if _, skip := object.GetAnnotations()[velerov1.SkipFromBackupAnnotation]; skip {
			w.itemLog(item).Infof("Left out by action %s", action.Name())
			return nil, nil
		}
		if result.operationID != "" {
			if err := to.began(action.Name(), item, result); err != nil {
				return nil, err
			}
		}
		for _, related := range result.additional {
			if err := to.additional(ctx, related, result.mustInclude); err != nil {
				return nil, err
			}
		}
	}
	return object, nil
}

// began implements outcomes.
func (w *walker) began(action string, item collect.Item, result actionResult) error {
	w.operations.add(w.backup, action, item.ID(), result, w.deps.Clock.Now())
	return nil
}

// additional backs up an item that an action brings in: from the block, from the action itself, or from the cluster. What
// isn't there is a warning; any other failure is one of the item that needs it (195, 196).
func (w *walker) additional(ctx context.Context, related additional, mustInclude bool) error {
	items := w.block.Find(related.id.GroupResource, related.id.Namespace, related.id.Name)
	if len(items) == 0 && related.item != nil {
		items = []collect.Item{*related.item}
	}
	if len(items) == 0 {
		if known := w.visits.find(related.id); known != nil {
			return w.visits.await(ctx, known, w.block)
		}
		item, err := collect.Fetcher{Discovery: w.deps.Discovery, Dynamic: w.deps.Dynamic}.Fetch(ctx, related.id)
		if apierrors.IsNotFound(err) {
			w.log.WithFields(logrus.Fields{"resource": related.id.GroupResource.String(), "namespace": related.id.Namespace, "name": related.id.Name}).
				Warn("A plugin asked for an item that isn't in the cluster")
			return nil
		}
		if err != nil {
			return err
		}
		items = []collect.Item{*item}
	}
	for _, item := range items {
		if _, err := w.item(ctx, item, mustInclude); err != nil {
			return err
		}
	}
	return nil
}

// volume enters a PersistentVolume that is going into the backup into the volume information, and takes its native snapshot
// unless that was done while its pods were frozen (173).
func (w *walker) volume(ctx context.Context, object *unstructured.Unstructured) error {
	pv := new(corev1.PersistentVolume)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pv); err != nil {
		return fmt.Errorf("reading PersistentVolume %s: %w", object.GetName(), err)
	}
	w.volumes.Volume(pv)
	return w.protectNatively(ctx, w.callLimit(), object, pv)
}

// causes takes joined errors apart.
func causes(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // only a join at the top is taken apart
		return joined.Unwrap()
	}
	return []error{err}
}

// volumeName returns the PersistentVolume that a claim or a volume object is about; empty for anything else.
func volumeName(gr schema.GroupResource, object *unstructured.Unstructured) string {
	switch gr {
	case kuberesource.PersistentVolumes:
		return object.GetName()
	case kuberesource.PersistentVolumeClaims:
		name, _, _ := unstructured.NestedString(object.Object, "spec", "volumeName")
		return name
	default:
		return ""
	}
}

// resourceID is short for naming an object to additional.
func resourceID(gr schema.GroupResource, namespace, name string) velero.ResourceIdentifier {
	return velero.ResourceIdentifier{GroupResource: gr, Namespace: namespace, Name: name}
}
