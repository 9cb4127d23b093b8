// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"io"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// cached stands for a manager's cache.
type cached struct {
	client.Client
	backups []velerov1.Backup
	lists   int
}

func (c *cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	c.lists++
	list.(*velerov1.BackupList).Items = c.backups
	return nil
}

func TestABackupIsLookedAtWhenItsSnapshotsAreThere(t *testing.T) {
	backup := func(name string, phase velerov1.BackupPhase) velerov1.Backup {
		return velerov1.Backup{
			ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID(name + "-uid")},
			Status:     velerov1.BackupStatus{Phase: phase},
		}
	}
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		cache := &cached{backups: []velerov1.Backup{
			backup("waiting", velerov1.BackupPhaseWaitingForPluginOperations),
			backup("partly", velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed),
			backup("running", velerov1.BackupPhaseInProgress),
			backup("other", velerov1.BackupPhaseWaitingForPluginOperations),
		}}
		log := logrus.New()
		log.SetOutput(io.Discard)
		c := NewOperationsController(nil, cache, 0, log)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		c.Settled("waiting-uid") // before the controller runs
		ctx, stop := context.WithCancel(t.Context())
		g.Expect(c.followSettled(ctx, queue)).To(Succeed())
		synctest.Wait()
		g.Expect(queue.Len()).To(Equal(1))

		for _, uid := range []types.UID{"partly-uid", "running-uid", "gone-uid", "partly-uid"} {
			c.Settled(uid)
		}
		synctest.Wait()
		g.Expect(queue.Len()).To(Equal(2), "those that wait, once each")
		stop()
		synctest.Wait()
	})
}
