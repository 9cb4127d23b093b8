// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	veleroutil "github.com/vmware-tanzu/velero/pkg/util/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/volume"
)

// action is a step on an item's way into the backup: a plugin's BackupItemAction, or one of the engine's own.
type action interface {
	// Name as plugins are registered; it goes into operation records.
	Name() string
	// ShouldUse says whether the action applies to an item.
	ShouldUse(gr schema.GroupResource, namespace string, metadata metav1.Object, log logrus.FieldLogger) bool
	// Execute does the step. It doesn't change object, but may return it.
	Execute(ctx context.Context, w *walker, object *unstructured.Unstructured) (actionResult, error)
}

// actionResult is what an action returns.
type actionResult struct {
	// object is what goes on to the next action, and in the end into the tarball. Never nil.
	object *unstructured.Unstructured
	// additional items are backed up before the next action runs, in this order (194).
	additional []additional
	// mustInclude lets the additional items pass the filters (191).
	mustInclude bool
	// operationID, if not empty, names something that goes on after the walk; postItems are then read again.
	operationID string
	postItems   []velero.ResourceIdentifier
}

// additional is an item that an action brings in. item may be nil; then it is looked for in the block and the cluster.
type additional struct {
	id   velero.ResourceIdentifier
	item *collect.Item
}

// actionsOf returns the backup's actions in the order in which Velero runs them (181), with the engine's own in the
// places of those CSI actions that would wait for a snapshot or read again what the engine knows.
func (r *run) actionsOf(resolved []framework.BackupItemResolvedActionV2) ([]action, error) {
	var actions []action
	for _, plugin := range resolved {
		name := plugin.Name()
		if veleroutil.ShouldSkipAction(name) { // a CSI action, and Velero's CSI feature is off (185)
			continue
		}
		if execute, ok := ownActions[name]; ok {
			actions = append(actions, ownAction{scope: newScope(plugin, plugin.Selector), execute: execute})
			continue
		}
		made, err := r.itemAction(plugin)
		if err != nil {
			return nil, err
		}
		if name == vSphereClaimActionName && r.request.Policies != nil {
			made = unlessSkipped{made}
		}
		actions = append(actions, made)
	}
	return actions, nil
}

// usesAction says whether the action of that name is called for an item.
func (r *run) usesAction(name string, item collect.Item, object *unstructured.Unstructured) bool {
	for _, action := range r.actions {
		if action.Name() == name && action.ShouldUse(item.GroupResource, item.Namespace, object, r.log) {
			return true
		}
	}
	return false
}

// pluginAction calls a plugin.
type pluginAction struct {
	*scope
	plugin framework.BackupItemResolvedActionV2
	backup *velerov1.Backup
}

// Execute implements action.
func (p pluginAction) Execute(ctx context.Context, w *walker, object *unstructured.Unstructured) (actionResult, error) {
	var updated runtime.Unstructured
	var ids, postItems []velero.ResourceIdentifier
	var operationID string
	var err error
	stopped := w.call(ctx, w.callLimit(), p.Name(), func() {
		err = w.deliver(ctx, func() error {
			updated, ids, operationID, postItems, err = p.plugin.Execute(object, p.backup)
			return err
		})
	})
	if stopped != nil {
		return actionResult{}, stopped
	}
	if err != nil {
		return actionResult{}, err
	}
	result := resultOf(object, updated, ids)
	result.operationID, result.postItems = operationID, postItems
	return result, nil
}

// resultOf reads what an action of Velero's interfaces returned.
func resultOf(object *unstructured.Unstructured, updated runtime.Unstructured, ids []velero.ResourceIdentifier) actionResult {
	result := actionResult{object: object}
	if updated != nil { // nil means unchanged (188)
		result.object = &unstructured.Unstructured{Object: updated.UnstructuredContent()}
	}
	// As with Velero's own engine the annotation stays on the object, for the next plugins and in the tarball (191).
	result.mustInclude = result.object.GetAnnotations()[velerov1.MustIncludeAdditionalItemAnnotation] == "true"
	for _, id := range ids {
		result.additional = append(result.additional, additional{id: id})
	}
	return result
}

// resolvedPlugin is a plugin's action of any kind, when it is known what it applies to.
type resolvedPlugin interface {
	Name() string
	ShouldUse(gr schema.GroupResource, namespace string, metadata metav1.Object, log logrus.FieldLogger) bool
}

// ownAction is an action of the engine under the name of the plugin that it replaces.
type ownAction struct {
	*scope
	execute func(ctx context.Context, w *walker, object *unstructured.Unstructured) (actionResult, error)
}

// Execute implements action.
func (o ownAction) Execute(ctx context.Context, w *walker, object *unstructured.Unstructured) (actionResult, error) {
	result, err := o.execute(ctx, w, object)
	if err == nil && result.mustInclude {
		result.object = withAnnotation(result.object, velerov1.MustIncludeAdditionalItemAnnotation, "true") // like a plugin (191)
	}
	return result, err
}

// withAnnotation returns a copy of an object with an annotation more.
func withAnnotation(object *unstructured.Unstructured, key, value string) *unstructured.Unstructured {
	object = object.DeepCopy()
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	object.SetAnnotations(annotations)
	return object
}

// vSphereClaimActionName is the action of another plugin that snapshots claims, as it is known to Velero.
const vSphereClaimActionName = "velero.io/vsphere-pvc-backupper"

// unlessSkipped is an action on claims that isn't called for those which a volume policy skips (184). The engine's own action
// on claims goes by its plan.
type unlessSkipped struct{ action }

// Execute implements action.
func (u unlessSkipped) Execute(ctx context.Context, w *walker, object *unstructured.Unstructured) (actionResult, error) {
	if object.GetKind() != "PersistentVolumeClaim" {
		return u.action.Execute(ctx, w, object)
	}
	skipped, err := w.planner.SkippedByPolicy(ctx, object)
	if err != nil {
		return actionResult{}, err
	}
	if !skipped {
		return u.action.Execute(ctx, w, object)
	}
	w.volumes.Skip(volumeName(kuberesource.PersistentVolumeClaims, object), volume.ApproachAny, volume.ReasonSkippedByPolicy)
	return actionResult{object: object}, nil
}
