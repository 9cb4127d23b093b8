// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"slices"
	"sync"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// operations collects what goes on after the walk. It is safe for concurrent use.
type operations struct {
	mu   sync.Mutex
	list []*itemoperation.BackupOperation
}

// add records an operation that an action started for an item (192).
func (o *operations) add(backup *velerov1.Backup, action string, item velero.ResourceIdentifier, result actionResult, now time.Time) {
	created := metav1.NewTime(now)
	operation := &itemoperation.BackupOperation{
		Spec: itemoperation.BackupOperationSpec{
			BackupName:         backup.Name,
			BackupUID:          string(backup.UID),
			BackupItemAction:   action,
			ResourceIdentifier: item,
			OperationID:        result.operationID,
			PostOperationItems: result.postItems,
		},
		Status: itemoperation.OperationStatus{Phase: itemoperation.OperationPhaseNew, Created: &created},
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, operation)
}

func (o *operations) all() []*itemoperation.BackupOperation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.list)
}
