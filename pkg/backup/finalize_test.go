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
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	velerotest "github.com/vmware-tanzu/velero/pkg/test"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// finalizing is a cluster with snapshots that are in backups, and the Finalizer.
type finalizing struct {
	*cluster
	snapshots map[string][]*snapshotv1.VolumeSnapshot
	finalizer *backup.Finalizer
	// during is called when a backup's volume information is read, and lookErr is why it can't be.
	during  func(backup string)
	lookErr error
	// refuse is the API's answer to a request, by verb and name of the object.
	refuse func(request string) error
	// uploadErr is why what was finalized can't be uploaded.
	uploadErr error
}

func newFinalizing(c *cluster, snapshots map[string][]*snapshotv1.VolumeSnapshot) *finalizing {
	f := &finalizing{cluster: c, snapshots: snapshots}
	var objects []client.Object
	for _, list := range snapshots {
		for _, vs := range list {
			objects = append(objects, vs)
			c.add(vs)
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
	f.finalizer = backup.NewFinalizer(backup.FinalizerDeps{Client: c.client, Groups: c.settler, Dynamic: c.dynamic, Discovery: c.helper})
	return f
}

// finalize does what the finalizer controller does for a backup.
func (f *finalizing) finalize(name string) error {
	f.t.Helper()
	b := builder.ForBackup("velero", name).ObjectMeta(builder.WithUID("uid-of-" + name)).Phase(velerov1.BackupPhaseFinalizing).Result()
	store := newStoredVolumes(f.cluster, `[]`)
	store.err, store.onRead = f.lookErr, func() {
		if f.during != nil {
			f.during(name)
		}
	}
	var items []velero.ResourceIdentifier
	for _, vs := range f.snapshots[name] {
		items = append(items, named("volumesnapshots.snapshot.storage.k8s.io", vs.Namespace, vs.Name))
	}
	err := f.finalizer.Look(f.ctx, backup.LookRequest{
		Backup: b, Actions: framework.NewBackupItemActionResolverV2(f.builtInActions()), Operations: operationsOn(items...), Store: store.BackupStore(), Log: f.logger,
	}, f.tarballOf(), io.Discard)
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
		f.during = func(string) { c.Expect(c.events.all()).To(BeEmpty(), "while items are looked at nothing is removed") }
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
		f.lookErr = gone
		c.Expect(f.finalize("nightly")).To(MatchError(gone))
		f.lookErr, f.uploadErr = nil, gone
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
		f.during = func(name string) {
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
