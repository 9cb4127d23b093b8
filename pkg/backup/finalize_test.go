// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerobackup "github.com/vmware-tanzu/velero/pkg/backup"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
	velerotest "github.com/vmware-tanzu/velero/pkg/test"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// look stands in for Velero's backupper: it hands each snapshot of a backup to the actions.
type look struct {
	velerobackup.Backupper
	c *cluster
	// snapshots of each backup.
	snapshots map[string][]*snapshotv1.VolumeSnapshot
	// during is called before the look returns err.
	during func(backup string)
	err    error
}

func (l *look) FinalizeBackup(
	log logrus.FieldLogger, request *velerobackup.Request, _ io.Reader, _ io.Writer,
	actions framework.BackupItemActionResolverV2, _ []*itemoperation.BackupOperation, _ persistence.BackupStore,
) error {
	resolved, err := actions.ResolveActions(l.c.helper, log)
	if err != nil {
		return err
	}
	for _, vs := range l.snapshots[request.Name] {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(vs)
		if err != nil {
			return err
		}
		item := &unstructured.Unstructured{Object: content}
		for _, action := range resolved {
			if !action.ShouldUse(kuberesource.VolumeSnapshots, vs.Namespace, item, log) {
				continue
			}
			updated, additional, operation, post, err := action.Execute(item, request.Backup)
			if err != nil {
				return err
			}
			l.c.Expect(updated).To(Equal(item), "the item is as it was")
			l.c.Expect(additional).To(BeEmpty())
			l.c.Expect(operation).To(BeEmpty())
			l.c.Expect(post).To(BeEmpty())
		}
	}
	if l.during != nil {
		l.during(request.Name)
	}
	return l.err
}

// actionManager has the actions of plugins.
type actionManager struct {
	clientmgmt.Manager
	actions []biav2.BackupItemAction
	err     error
}

func (m actionManager) GetBackupItemActionsV2() ([]biav2.BackupItemAction, error) {
	return m.actions, m.err
}

// finalizing is a cluster with snapshots that are in backups, and the Finalizer.
type finalizing struct {
	*cluster
	look      *look
	finalizer *backup.Finalizer
	// refuse is the API's answer to a request, by verb and name of the object.
	refuse func(request string) error
	// uploadErr is why what was finalized can't be uploaded.
	uploadErr error
}

func newFinalizing(c *cluster, snapshots map[string][]*snapshotv1.VolumeSnapshot) *finalizing {
	f := &finalizing{cluster: c, look: &look{c: c, snapshots: snapshots}}
	var objects []client.Object
	for _, list := range snapshots {
		for _, vs := range list {
			objects = append(objects, vs)
			if vs.Status != nil && vs.Status.BoundVolumeSnapshotContentName != nil {
				objects = append(objects, builder.ForVolumeSnapshotContent(*vs.Status.BoundVolumeSnapshotContentName).
					DeletionPolicy(snapshotv1.VolumeSnapshotContentDelete).Result())
			}
		}
	}
	ask := func(request string) error {
		c.events.add(request)
		if f.refuse == nil {
			return nil
		}
		return f.refuse(request)
	}
	c.client = velerotest.NewFakeControllerRuntimeClientBuilder(c.t).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			data, err := patch.Data(object)
			c.Expect(err).NotTo(HaveOccurred())
			c.Expect(data).To(MatchJSON(`{"spec":{"deletionPolicy":"Retain"}}`))
			if err := ask("retain " + object.GetName()); err != nil {
				return err
			}
			return w.Patch(ctx, object, patch, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			if err := ask("delete " + object.GetName()); err != nil {
				return err
			}
			return w.Delete(ctx, object, opts...)
		},
	}).Build()
	f.finalizer = backup.NewFinalizer(f.look, c.client, c.settler)
	return f
}

// finalize does what the finalizer controller does for a backup.
func (f *finalizing) finalize(name string) error {
	f.t.Helper()
	plugins := f.finalizer.WithNotes(func(logrus.FieldLogger) clientmgmt.Manager {
		return actionManager{actions: f.builtInActions()}
	})(f.logger)
	actions, err := plugins.GetBackupItemActionsV2()
	f.Expect(err).NotTo(HaveOccurred())
	b := builder.ForBackup("velero", name).ObjectMeta(builder.WithUID("uid-of-" + name)).Phase(velerov1.BackupPhaseFinalizing).Result()
	err = f.finalizer.FinalizeBackup(f.logger, &velerobackup.Request{Backup: b}, nil, nil, framework.NewBackupItemActionResolverV2(actions), nil, nil)
	if err == nil && f.uploadErr == nil {
		f.finalizer.Release(b.UID, f.logger)
	}
	return errors.Join(err, f.uploadErr)
}

// left returns the names of the snapshot objects in the cluster.
func (f *finalizing) left() []string {
	f.t.Helper()
	var names []string
	snapshots, contents := new(snapshotv1.VolumeSnapshotList), new(snapshotv1.VolumeSnapshotContentList)
	f.Expect(f.client.List(f.ctx, snapshots)).To(Succeed())
	f.Expect(f.client.List(f.ctx, contents)).To(Succeed())
	for _, vs := range snapshots.Items {
		names = append(names, vs.Name)
	}
	for _, content := range contents.Items {
		names = append(names, content.Name)
	}
	return names
}

func bound(name string) *snapshotv1.VolumeSnapshot {
	return builder.ForVolumeSnapshot("app", name).Status().BoundVolumeSnapshotContentName(contentOf(name)).Result()
}

func several(prefix string, count int) (list []*snapshotv1.VolumeSnapshot) {
	for i := range count {
		list = append(list, bound(fmt.Sprintf("%s-%d", prefix, i)))
	}
	return list
}

func TestSnapshotsAreReleasedWhenTheirBackupIsFinalized(t *testing.T) {
	inCluster(t, func(c *cluster) {
		f := newFinalizing(c, map[string][]*snapshotv1.VolumeSnapshot{"nightly": {bound("a")}, "other": {bound("b")}})
		f.look.during = func(string) { c.Expect(c.events.all()).To(BeEmpty(), "while Velero looks nothing is removed") }
		c.Expect(f.finalize("nightly")).To(Succeed())
		c.Expect(c.events.all()).To(Equal([]string{"retain content-of-a", "delete content-of-a", "delete a"}), "the physical snapshot stays")
		c.Expect(f.left()).To(ConsistOf("b", "content-of-b"))
		c.Expect(c.warnings()).To(BeEmpty())
	})
}

func TestAMemberOfAGroupLeavesItWhenItIsReleased(t *testing.T) { // 310
	inCluster(t, func(c *cluster) {
		member := bound("member")
		member.Annotations = map[string]string{snapshot.AnnGroup: "group"}
		f := newFinalizing(c, map[string][]*snapshotv1.VolumeSnapshot{"nightly": {member, bound("alone")}})
		c.Expect(f.finalize("nightly")).To(Succeed())
		c.Expect(c.settler.leftGroup).To(Equal([]string{"app/member"}))
		c.Expect(f.left()).To(BeEmpty())
	})
}

func TestNothingIsReleasedWhenFinalizingFails(t *testing.T) {
	inCluster(t, func(c *cluster) {
		f := newFinalizing(c, map[string][]*snapshotv1.VolumeSnapshot{"nightly": {bound("a")}})
		gone := errors.New("the bucket is gone")
		f.look.err = gone
		c.Expect(f.finalize("nightly")).To(MatchError(gone))
		f.look.err, f.uploadErr = nil, gone
		c.Expect(f.finalize("nightly")).To(MatchError(gone))
		c.Expect(c.events.all()).To(BeEmpty())

		f.uploadErr = nil // the controller tries again
		c.Expect(f.finalize("nightly")).To(Succeed())
		c.Expect(c.events.all("delete")).To(ConsistOf("delete content-of-a", "delete a"), "once, not for each try")
	})
}

func TestSnapshotsThatCannotBeReleased(t *testing.T) {
	forbidden := apierrors.NewForbidden(snapshotv1.Resource("volumesnapshotcontents"), "content-of-a", errors.New("no"))
	gone := apierrors.NewNotFound(snapshotv1.Resource("volumesnapshotcontents"), "content-of-a")
	unbound := builder.ForVolumeSnapshot("app", "a").Result()
	cases := map[string]struct {
		snapshot *snapshotv1.VolumeSnapshot
		refused  map[string]error
		left     []string
		warning  string
	}{
		"the policy can't be changed": {
			refused: map[string]error{"retain content-of-a": forbidden}, left: []string{"a", "content-of-a"}, warning: "to Retain",
		},
		"the content can't be deleted": {
			refused: map[string]error{"delete content-of-a": forbidden}, left: []string{"a", "content-of-a"}, warning: "deleting VolumeSnapshotContent content-of-a",
		},
		"the snapshot can't be deleted": {
			refused: map[string]error{"delete a": forbidden}, left: []string{"a"}, warning: "deleting VolumeSnapshot app/a",
		},
		"the content has gone meanwhile": {refused: map[string]error{"delete content-of-a": gone}, left: []string{"content-of-a"}},
		"it is bound to no content":      {snapshot: unbound, left: []string{"a"}, warning: "bound to no content"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				first := test.snapshot
				if first == nil {
					first = bound("a")
				}
				f := newFinalizing(c, map[string][]*snapshotv1.VolumeSnapshot{"nightly": {first, bound("b")}})
				f.refuse = func(request string) error { return test.refused[request] }
				c.Expect(f.finalize("nightly")).To(Succeed(), "the backup has all it needs")
				c.Expect(f.left()).To(ConsistOf(test.left), "the other snapshot is released all the same")
				if test.warning == "" {
					c.Expect(c.warnings()).To(BeEmpty())
					return
				}
				c.Expect(c.warnings()).To(ConsistOf(And(HavePrefix("a: "), ContainSubstring(test.warning))))
			})
		})
	}
}

func TestReleasingOutlastsABusyAPIServer(t *testing.T) {
	inCluster(t, func(c *cluster) {
		f := newFinalizing(c, map[string][]*snapshotv1.VolumeSnapshot{"nightly": {bound("a")}})
		tries := map[string]int{}
		f.refuse = func(request string) error {
			if tries[request]++; tries[request] < 4 {
				return apierrors.NewTooManyRequests("busy", 1)
			}
			return nil
		}
		c.Expect(f.finalize("nightly")).To(Succeed())
		c.Expect(f.left()).To(BeEmpty())
		c.Expect(c.warnings()).To(BeEmpty())
	})
}

func TestSnapshotsAreReleasedTogetherAndNotTooManyAtOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		f := newFinalizing(c, map[string][]*snapshotv1.VolumeSnapshot{"nightly": several("a", 40)})
		asked := &crowd{gate: make(chan struct{})}
		f.refuse = func(string) error { _, err := asked.pass(nil); return err }
		var group errgroup.Group
		group.Go(func() error { return f.finalize("nightly") })
		synctest.Wait()
		inside, _, _ := asked.count()
		c.Expect(inside).To(Equal(16))
		close(asked.gate)
		c.Expect(group.Wait()).To(Succeed())
		_, most, passed := asked.count()
		c.Expect(most).To(Equal(16))
		c.Expect(passed).To(Equal(3 * 40))
		c.Expect(f.left()).To(BeEmpty())
	})
}

func TestTwoBackupsThatAreFinalizedAtOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		f := newFinalizing(c, map[string][]*snapshotv1.VolumeSnapshot{"first": several("a", 3), "second": several("b", 2)})
		gate := make(chan struct{})
		f.look.during = func(name string) {
			if name == "first" {
				<-gate
			}
		}
		var group errgroup.Group
		group.Go(func() error { return f.finalize("first") })
		synctest.Wait() // the first has noted its snapshots
		c.Expect(f.finalize("second")).To(Succeed())
		c.Expect(f.left()).To(HaveLen(2*3), "those of the first are still looked at")
		c.Expect(f.left()).To(ContainElements("a-0", "a-1", "a-2"))
		close(gate)
		c.Expect(group.Wait()).To(Succeed())
		c.Expect(f.left()).To(BeEmpty())
	})
}

func TestOnlyTheSnapshotActionIsReplaced(t *testing.T) {
	inCluster(t, func(c *cluster) {
		broken := errors.New("the plugin process has died")
		for _, err := range []error{nil, broken} {
			plugins := backup.NewFinalizer(nil, nil, nil).WithNotes(func(logrus.FieldLogger) clientmgmt.Manager {
				return actionManager{actions: c.builtInActions(), err: err}
			})(c.logger)
			actions, got := plugins.GetBackupItemActionsV2()
			if err != nil {
				c.Expect(got).To(MatchError(broken))
				continue
			}
			c.Expect(got).NotTo(HaveOccurred())
			stock := c.builtInActions()
			c.Expect(actions).To(HaveLen(len(stock)))
			for i, action := range actions {
				c.Expect(action.Name()).To(Equal(stock[i].Name()))
				want, err := stock[i].AppliesTo()
				c.Expect(err).NotTo(HaveOccurred())
				c.Expect(action.AppliesTo()).To(Equal(want))
				if action.Name() != snapshotAction {
					c.Expect(action).To(BeAssignableToTypeOf(stock[i]))
				}
			}
		}
	})
}
