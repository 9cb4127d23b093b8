// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/constant"
	"github.com/vmware-tanzu/velero/pkg/util/kube"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// defaultOperationsFrequency is Velero's own.
const defaultOperationsFrequency = 10 * time.Second

// OperationsController looks after backups that wait for operations. The look is Velero's own reconciler; what is ours is
// when it happens: besides every so often, at once when a backup begins to wait and when its snapshots are there.
type OperationsController struct {
	reconcile.Reconciler
	client    client.Client
	frequency time.Duration
	log       logrus.FieldLogger

	mu      sync.Mutex
	settled map[types.UID]struct{}
	signal  chan struct{}
}

// NewOperationsController makes an OperationsController of Velero's reconciler. The client reads from the manager's cache;
// a frequency of zero means every ten seconds.
func NewOperationsController(looks reconcile.Reconciler, c client.Client, frequency time.Duration, log logrus.FieldLogger) *OperationsController {
	if frequency <= 0 {
		frequency = defaultOperationsFrequency
	}
	return &OperationsController{
		Reconciler: looks, client: c, frequency: frequency, log: log.WithField("controller", constant.ControllerBackupOperations),
		settled: map[types.UID]struct{}{}, signal: make(chan struct{}, 1),
	}
}

// Settled says that nothing is waited for any more of the snapshots of a backup. It never blocks and may be called from any
// goroutine, before the controller runs and after.
func (c *OperationsController) Settled(backup types.UID) {
	c.mu.Lock()
	c.settled[backup] = struct{}{}
	c.mu.Unlock()
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// SetupWithManager registers the controller.
func (c *OperationsController) SetupWithManager(mgr ctrl.Manager) error {
	waits := predicate.NewPredicateFuncs(isWaiting)
	begins := predicate.Funcs{
		// A backup that waits already when the server starts is found by the first round of the periodical source.
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return !isWaiting(e.ObjectOld) && isWaiting(e.ObjectNew) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(constant.ControllerBackupOperations).
		For(&velerov1.Backup{}, builder.WithPredicates(begins)).
		WatchesRawSource(kube.NewPeriodicalEnqueueSource(c.log, mgr.GetClient(), &velerov1.BackupList{}, c.frequency,
			kube.PeriodicalEnqueueSourceOption{Predicates: []predicate.Predicate{waits}})).
		WatchesRawSource(source.Func(c.followSettled)).
		Complete(c.Reconciler)
	if err != nil {
		return fmt.Errorf("registering the controller %s: %w", constant.ControllerBackupOperations, err)
	}
	return nil
}

// followSettled is the source of those backups whose snapshots have settled; its goroutine ends with ctx.
func (c *OperationsController) followSettled(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		for {
			select {
			case <-c.signal:
				c.enqueue(ctx, queue)
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// enqueue finds the backups by their UIDs: a snapshot's label has the backup's name shortened.
func (c *OperationsController) enqueue(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	c.mu.Lock()
	settled := c.settled
	c.settled = map[types.UID]struct{}{}
	c.mu.Unlock()
	list := new(velerov1.BackupList)
	if err := c.client.List(ctx, list); err != nil {
		c.log.WithError(err).Debug("The backups whose snapshots are there can't be listed; the next round finds them")
		return
	}
	for i := range list.Items {
		backup := &list.Items[i]
		if _, found := settled[backup.UID]; found && isWaiting(backup) {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(backup)})
		}
	}
}

func isWaiting(o client.Object) bool {
	backup, ok := o.(*velerov1.Backup)
	if !ok {
		return false
	}
	switch backup.Status.Phase {
	case velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed:
		return true
	default:
		return false
	}
}
