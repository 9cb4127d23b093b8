// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	veleroutil "github.com/vmware-tanzu/velero/pkg/util/csi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	internal "github.com/velero-clipper/clipper/internal/velero"
	"github.com/velero-clipper/clipper/pkg/backup/archive"
	"github.com/velero-clipper/clipper/pkg/backup/collect"
)

// LookRequest is one backup to be looked at again. All fields are required unless they say otherwise.
type LookRequest struct {
	// Backup as plugins see it: its phase tells them that it is being finalized (330).
	Backup *velerov1.Backup
	// Actions of the plugins.
	Actions framework.BackupItemActionResolverV2
	// Operations of the backup, which have ended.
	Operations []*itemoperation.BackupOperation
	// Store has the volume information, which is told how the operations have ended.
	Store persistence.BackupStore
	// StopPlugins ends the plugins' processes, so that calls which hang return. Default: they are waited for.
	StopPlugins func()
	// Log is the server's: what goes wrong here is no part of the backup's own log (335).
	Log logrus.FieldLogger
}

// Look reads the tarball before, and writes it to after with those items as they are now that the operations name, and with those
// that plugins bring in then (329, 331). An item that fails stays as it was before, and the backup goes on. An error means that
// the whole look is to be repeated: object storage failed, the plugins can't be asked what they apply to, or ctx has ended.
//
// Nothing that happens here protects volumes or runs hooks: an item is only written.
func (f *Finalizer) Look(ctx context.Context, request LookRequest, before io.Reader, after io.Writer) error {
	f.take(request.Backup.UID) // of a look before, of which nothing came
	err := f.look(ctx, request, before, after)
	if err != nil {
		f.take(request.Backup.UID) // the controller tries again
	}
	return err
}

func (f *Finalizer) look(ctx context.Context, request LookRequest, before io.Reader, after io.Writer) error {
	deps := Deps{Client: f.client, Dynamic: f.deps.Dynamic, Discovery: f.deps.Discovery, Clock: f.deps.Clock}
	r := &run{deps: deps, request: Request{StopPlugins: request.StopPlugins}, backup: request.Backup, log: request.Log}
	l := &secondLook{
		walker: &walker{run: r}, finalizer: f, met: map[itemKey]bool{},
		fetcher: collect.Fetcher{Discovery: deps.Discovery, Dynamic: deps.Dynamic},
	}
	var err error
	stopped := r.call(ctx, r.callLimit(), "that is asked what it applies to", func() { err = l.resolve(request.Actions) })
	if err := errors.Join(stopped, err); err != nil {
		return err
	}
	var ids []velero.ResourceIdentifier
	for _, operation := range request.Operations {
		ids = append(ids, operation.Spec.PostOperationItems...)
	}
	for _, id := range collect.InDiscoveryOrder(deps.Discovery, ids) {
		l.top(ctx, id)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := internal.EndOfVolumes(request.Store, request.Backup.Name, l.uploads, request.Operations); err != nil {
		return err
	}
	r.log.Infof("Looked again at %d items", len(l.met))
	return archive.Renew(after, before, l.files, deps.Clock)
}

// secondLook is one Look. It belongs to one goroutine.
type secondLook struct {
	*walker
	finalizer *Finalizer
	fetcher   collect.Fetcher
	met       map[itemKey]bool
	// files of the items that were met, and uploads among the items that the operations name.
	files   []archive.File
	uploads []velerov2alpha1.DataUpload
}

// resolve asks the plugins what they apply to. Velero's actions on claims and contents do nothing in this phase (271, 299);
// the one on snapshots is replaced.
func (l *secondLook) resolve(actions framework.BackupItemActionResolverV2) error {
	resolved, err := actions.ResolveActions(l.deps.Discovery, l.log)
	if err != nil {
		return fmt.Errorf("asking the backup item actions what they apply to: %w", err)
	}
	for _, plugin := range resolved {
		name := plugin.Name()
		switch {
		case veleroutil.ShouldSkipAction(name), name == claimActionName, name == contentActionName:
		case name == snapshotActionName:
			l.actions = append(l.actions, ownAction{scope: newScope(plugin, plugin.Selector), execute: l.noteSnapshot})
		default:
			made, err := l.itemAction(plugin)
			if err != nil {
				return err
			}
			l.actions = append(l.actions, made)
		}
	}
	return nil
}

// noteSnapshot has a snapshot released when the finalized backup is in object storage.
func (l *secondLook) noteSnapshot(_ context.Context, _ *walker, object *unstructured.Unstructured) (actionResult, error) {
	l.finalizer.note(l.backup.UID, object.DeepCopy())
	return actionResult{object: object}, nil
}

// top looks at an item that an operation names, and logs what goes wrong.
func (l *secondLook) top(ctx context.Context, id velero.ResourceIdentifier) {
	log := l.log.WithFields(logrus.Fields{"resource": id.GroupResource.String(), "namespace": id.Namespace, "name": id.Name})
	item, err := l.fetch(ctx, id)
	if err != nil {
		log.WithError(err).Error("An item with an operation can't be read, and stays in the backup as it was")
		return
	}
	if id.GroupResource == kuberesource.DataUploads {
		var upload velerov2alpha1.DataUpload
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object().Object, &upload); err != nil {
			log.WithError(err).Error("A DataUpload can't be read, and the volume information doesn't tell its end")
		} else {
			l.uploads = append(l.uploads, upload)
		}
	}
	if err := l.item(ctx, *item); err != nil {
		log.WithError(err).Error("An item with an operation stays in the backup as it was")
	}
}

// fetch reads an item, and again while the API server is busy or away.
func (l *secondLook) fetch(ctx context.Context, id velero.ResourceIdentifier) (item *collect.Item, err error) {
	err = untilAnswered(ctx, func() error { item, err = l.fetcher.Fetch(ctx, id); return err })
	return item, err
}

// item runs an item through the actions, once. A panic fails the item, not the backup.
func (l *secondLook) item(ctx context.Context, item collect.Item) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic while looking again at %s: %v\n%s", item, cause, debug.Stack())
		}
	}()
	collected := item.Object()
	if collected.GetDeletionTimestamp() != nil {
		l.itemLog(item).Info("Left as it was: it is being deleted")
		return nil
	}
	if l.met[keyOf(item)] {
		return nil
	}
	l.met[keyOf(item)] = true
	object, err := l.act(ctx, item, collected, l)
	if err != nil {
		return err
	}
	if object == nil { // a plugin takes it out of the second look
		delete(l.met, keyOf(item))
		return nil
	}
	files, err := archive.ItemFiles(object, item.GroupResource, item.PreferredGVR, collected.GroupVersionKind().Version)
	l.files = append(l.files, files...)
	return err
}

// began implements outcomes: nobody would wait for the operation (192).
func (l *secondLook) began(action string, item collect.Item, result actionResult) error {
	return fmt.Errorf("action %s on %s began operation %s while the backup was being finalized", action, item, result.operationID)
}

// additional implements outcomes: all that is brought in is wanted here (191). What isn't there is a warning; any other failure is one of the item that
// needs it (195, 196).
func (l *secondLook) additional(ctx context.Context, related additional, _ bool) error {
	id := related.id
	item, err := l.fetch(ctx, id)
	if apierrors.IsNotFound(err) {
		l.log.WithFields(logrus.Fields{"resource": id.GroupResource.String(), "namespace": id.Namespace, "name": id.Name}).
			Warn("A plugin asked for an item that isn't in the cluster")
		return nil
	}
	if err != nil {
		return err
	}
	return l.item(ctx, *item)
}
