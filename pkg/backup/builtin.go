// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v1"
	ibav1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/itemblockaction/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
)

// BuiltIn has plugins that are part of this binary, by the names under which they are registered. Velero runs them in a
// process of their own, like any plugin, which costs a few milliseconds for each item while nothing is snapshotted yet; the
// engine calls them directly. Each is made once per backup, as a plugin process is.
type BuiltIn struct {
	ItemActions  map[string]func(logrus.FieldLogger) (biav1.BackupItemAction, error)
	BlockActions map[string]func(logrus.FieldLogger) (ibav1.ItemBlockAction, error)
}

// itemAction returns the action to call for a plugin: the built-in one of that name, or the plugin.
func (r *run) itemAction(plugin framework.BackupItemResolvedActionV2) (action, error) {
	scope := newScope(plugin, plugin.Selector)
	make, ok := r.deps.BuiltIn.ItemActions[plugin.Name()]
	if !ok {
		return pluginAction{scope: scope, plugin: plugin, backup: r.backup}, nil
	}
	made, err := make(r.log)
	if err != nil {
		return nil, fmt.Errorf("making the built-in backup item action %s: %w", plugin.Name(), err)
	}
	return builtInAction{scope: scope, action: made}, nil
}

// builtInAction is a built-in BackupItemAction, which is of the first version of that interface.
type builtInAction struct {
	*scope
	action biav1.BackupItemAction
}

// Execute implements action.
func (b builtInAction) Execute(_ context.Context, w *walker, object *unstructured.Unstructured) (actionResult, error) {
	// In a process of its own it would get a copy, too: what was collected is shared.
	updated, ids, err := b.action.Execute(object.DeepCopy(), w.backup)
	if err != nil {
		return actionResult{}, err
	}
	return resultOf(object, updated, ids), nil
}

// itemBlockActions returns the actions to call for the plugins: built-in ones where there are any of their names.
func (r *run) itemBlockActions(ctx context.Context, resolved []framework.ItemBlockResolvedAction) ([]itemblock.Action, error) {
	actions := make([]itemblock.Action, 0, len(resolved))
	for _, plugin := range resolved {
		scope := newScope(plugin, plugin.Selector)
		make, ok := r.deps.BuiltIn.BlockActions[plugin.Name()]
		if !ok {
			actions = append(actions, boundedBlockAction{scope: scope, plugin: plugin, run: r, ctx: ctx})
			continue
		}
		made, err := make(r.log)
		if err != nil {
			return nil, fmt.Errorf("making the built-in item block action %s: %w", plugin.Name(), err)
		}
		actions = append(actions, builtInBlockAction{scope: scope, action: made})
	}
	return actions, nil
}

type builtInBlockAction struct {
	*scope
	action ibav1.ItemBlockAction
}

// GetRelatedItems implements itemblock.Action. A panic is an error of this item, as it would be in a process of its own.
func (b builtInBlockAction) GetRelatedItems(item runtime.Unstructured, backup *velerov1.Backup) (ids []velero.ResourceIdentifier, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic in %s: %v", b.Name(), cause)
		}
	}()
	return b.action.GetRelatedItems(item, backup)
}
