// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// refuse makes the API answer requests of a kind with an error, such as "list volumesnapshots".
func refuse(a *api, err error, kinds ...string) {
	a.setAnswer(func(verb, resource, _ string) error {
		for _, kind := range kinds {
			if kind == verb+" "+resource || kind == verb {
				return err
			}
		}
		return nil
	})
}

func TestReadinessAnswersFromTheCache(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) {
		old := desired(request(1)) // made in an earlier life of the server
		_, _ = a.create(snapshotsResource, old)
		foreign := desired(request(2))
		foreign.Labels = nil
		_, _ = a.create(snapshotsResource, foreign)
	}, func(h *harness) {
		key := keyOf(request(1))
		_, known := h.tracker.Readiness(key.Namespace, keyOf(request(2)).Name)
		h.Expect(known).To(BeFalse(), "not Velero's")
		r, known := h.tracker.Readiness(key.Namespace, key.Name)
		h.Expect(known).To(BeTrue())
		h.Expect(r.Ready).To(BeFalse())
		h.Expect(r.Updated).To(Equal(time.Now()))

		h.pass(time.Minute)
		h.api.report(key, ptr.To("no space"))
		synctest.Wait()
		r, _ = h.tracker.Readiness(key.Namespace, key.Name)
		h.Expect(r.Fault.Text).To(Equal("no space"))
		h.Expect(r.Updated).To(Equal(time.Now()))
		h.Expect(r.ContentName).To(Equal(contentName(h.api.snapshot(key))))

		h.api.cut(key)
		h.api.contentReady(key)
		synctest.Wait()
		r, _ = h.tracker.Readiness(key.Namespace, key.Name)
		h.Expect(r.Ready).To(BeFalse(), "one of two")
		h.Expect(r.Handle).To(Equal("handle-of-" + key.Name))
		h.api.snapshotReady(key)
		synctest.Wait()
		r, _ = h.tracker.Readiness(key.Namespace, key.Name)
		h.Expect(r.Ready).To(BeTrue())
		h.Expect(r.Fault.Text).To(BeEmpty())

		_ = h.api.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
		synctest.Wait()
		_, known = h.tracker.Readiness(key.Namespace, key.Name)
		h.Expect(known).To(BeFalse())
		h.Expect(h.tracker.histories).To(BeEmpty())
		h.Expect(h.api.asked("get volumesnapshots") + h.api.asked("get volumesnapshotcontents")).To(BeZero())
	})
}

func TestTrim(t *testing.T) {
	g := NewWithT(t)
	big := strings.Repeat("x", 5000)
	content := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{
		Name: "c", Finalizers: []string{"f"}, Labels: map[string]string{"l": "v"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		Annotations: map[string]string{
			"small": "s", "big": big, "kubectl.kubernetes.io/last-applied-configuration": "{}",
			"snapshot.storage.kubernetes.io/deletion-secret-name": "secret", "velero.io/big": big,
		},
	}, Status: &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: ptr.To("h")}}
	out, err := trim(content)
	g.Expect(err).NotTo(HaveOccurred())
	got := out.(*snapshotv1.VolumeSnapshotContent)
	g.Expect(got.ManagedFields).To(BeNil())
	g.Expect(got.Annotations).To(Equal(map[string]string{
		"small": "s", "snapshot.storage.kubernetes.io/deletion-secret-name": "secret", "velero.io/big": big,
	}))
	g.Expect(got.Finalizers).To(Equal([]string{"f"}))
	g.Expect(*got.Status.SnapshotHandle).To(Equal("h"))
	out, err = trim("something else")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(Equal("something else"))
}

func TestMissingCRDAndPermission(t *testing.T) {
	tests := []struct {
		name, kind string
		err        error
		text       []string
	}{
		{"CRD of snapshots", "list volumesnapshots", missingResource(snapshotsResource),
			[]string{"CRD volumesnapshots.snapshot.storage.k8s.io", "install the snapshot CRDs"}},
		{"CRD of contents", "list volumesnapshotcontents", missingResource(contentsResource),
			[]string{"CRD volumesnapshotcontents.snapshot.storage.k8s.io"}},
		{"permission", "list volumesnapshotcontents", forbidden(contentsResource),
			[]string{"may not list volumesnapshotcontents.snapshot.storage.k8s.io", "grant its service account list and watch"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, TakerOptions{}, func(a *api) { refuse(a, test.err, test.kind) }, func(h *harness) {
				h.Expect(h.tracker.WaitForSync(h.ctx)).To(MatchError(ContainSubstring(test.text[0])))
				begin := time.Now()
				snaps := h.taker.Take(h.ctx, requests(3)...)
				h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
				h.Expect(time.Since(begin)).To(BeZero())
				h.Expect(reasons(snaps)).To(Equal(map[string]int{"CreateRefused": 3}))
				for _, text := range test.text {
					h.Expect(snaps[0].Outcome().Message).To(ContainSubstring(text))
				}
				h.Expect(h.api.asked("create volumesnapshots")).To(BeZero())

				h.api.setAnswer(nil) // somebody mends it
				h.api.cutAfter(time.Second)
				h.pass(time.Minute)
				h.Expect(h.tracker.WaitForSync(h.ctx)).To(Succeed())
				snaps = h.taker.Take(h.ctx, request(7))
				h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
				h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 1}))
			})
		})
	}
}

func TestAPermissionThatIsMissingForAMomentEndsNothing(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		snaps := h.taker.Take(h.ctx, requests(2)...)
		synctest.Wait()
		refuse(h.api, forbidden(snapshotsResource), "list volumesnapshots", "watch volumesnapshots")
		h.api.expire()
		h.pass(troubleGrace / 2)
		h.Expect(h.decided(snaps[0])).To(BeFalse())
		h.api.setAnswer(nil)
		h.pass(time.Minute)
		h.api.cut(keyOf(request(0)))
		synctest.Wait()
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 1, "Cutting": 1}))

		refuse(h.api, forbidden(snapshotsResource), "list volumesnapshots", "watch volumesnapshots")
		h.api.expire()
		h.pass(2 * time.Minute)
		h.Expect(snaps[1].Outcome().Reason).To(Equal(ReasonCreateRefused))
		h.Expect(snaps[1].Outcome().Message).To(ContainSubstring("may not list"))
	})
}

func TestAnAPIThatIsDownAtStart(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) {
		refuse(a, apierrors.NewServiceUnavailable("starting"), "list", "create")
		a.cutAfter(time.Second)
	}, func(h *harness) {
		ctx, cancel := context.WithTimeout(h.ctx, time.Second)
		defer cancel()
		h.Expect(h.tracker.WaitForSync(ctx)).To(MatchError(context.DeadlineExceeded))
		snaps := h.taker.Take(h.ctx, requests(3)...)
		h.pass(time.Minute)
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cutting": 3}))
		h.api.setAnswer(nil)
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 3}))
	})
}

func TestWithoutWatchOneListPerInterval(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) {
		refuse(a, forbidden(snapshotsResource), "watch")
		a.cutAfter(12 * time.Second)
	}, func(h *harness) {
		begin := time.Now()
		snaps := h.taker.Take(h.ctx, requests(40)...)
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 40}))
		h.Expect(time.Since(begin)).To(BeNumerically("<=", 15*time.Second))
		h.Expect(h.api.asked("list volumesnapshots")).To(BeNumerically("<=", 4))
		h.Expect(h.api.asked("get volumesnapshots")).To(BeZero())

		// Deletions are seen too, and a permission granted later is used.
		key := keyOf(request(0))
		_ = h.api.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
		h.pass(5 * time.Second)
		_, known := h.tracker.Readiness(key.Namespace, key.Name)
		h.Expect(known).To(BeFalse())
		h.api.setAnswer(nil)
		h.pass(time.Hour)
		lists := h.api.asked("list volumesnapshots")
		h.pass(time.Hour)
		h.Expect(h.api.asked("list volumesnapshots")).To(Equal(lists))
	})
}

func TestAWatchThatIsWithdrawnMissesNoDeletion(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		snaps := h.taker.Take(h.ctx, requests(2)...)
		synctest.Wait()
		refuse(h.api, forbidden(snapshotsResource), "watch")
		h.api.closeWatches()
		key := keyOf(request(0))
		_ = h.api.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
		h.pass(30 * time.Second)
		h.Expect(snaps[0].Outcome().Reason).To(Equal(ReasonDeleted))
		h.api.cut(keyOf(request(1)))
		h.pass(5 * time.Second)
		h.Expect(snaps[1].Outcome().Phase).To(Equal(Cut))
	})
}

func TestASnapshotMadeAnewBetweenTwoListsIsNoticed(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) { refuse(a, forbidden(snapshotsResource), "watch") }, func(h *harness) {
		r := request(1)
		s := h.taker.Take(h.ctx, r)[0]
		h.pass(6 * time.Second)
		_ = h.api.delete(snapshotsResource, "app", keyOf(r).Name, metav1.DeleteOptions{})
		_, _ = h.api.create(snapshotsResource, desired(r))
		h.pass(5*time.Second + lostGrace)
		h.Expect(s.Outcome().Reason).To(Equal(ReasonDeleted))
	})
}

func TestContentIsFoundFromEitherSide(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		r := request(1)
		h.taker.Take(h.ctx, r)
		synctest.Wait()
		key, uid := keyOf(r), h.api.snapshot(keyOf(r)).UID
		later := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "of-a-later-one"}}
		later.Spec.VolumeSnapshotRef.Namespace, later.Spec.VolumeSnapshotRef.Name, later.Spec.VolumeSnapshotRef.UID = key.Namespace, key.Name, "other"
		_, _ = h.api.create(contentsResource, later)
		synctest.Wait()
		_, content := h.tracker.look(key, uid)
		h.Expect(content).To(BeNil(), "the UID doesn't match")
		name := h.api.bind(key, snapshotv1.VolumeSnapshotContentDelete)
		synctest.Wait()
		_, content = h.tracker.look(key, uid)
		h.Expect(content.Name).To(Equal(name))
		h.api.snapshotReady(key)
		synctest.Wait()
		_, content = h.tracker.look(key, "")
		h.Expect(content.Name).To(Equal(name))
	})
}

// TestNoDeletionIsLostBetweenTwoPollers: a poller ends like a watch, and the next must know what the last one told.
func TestNoDeletionIsLostBetweenTwoPollers(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) { refuse(a, forbidden(snapshotsResource), "watch") }, func(h *harness) {
		h.api.cutAfter(time.Second)
		for i := range 400 {
			r := request(i)
			h.Expect(Wait(h.ctx, h.taker.Take(h.ctx, r)...)).To(Succeed())
			h.pass(6 * time.Second)
			_ = h.api.delete(snapshotsResource, r.Namespace, keyOf(r).Name, metav1.DeleteOptions{})
			h.pass(3 * time.Second)
		}
		h.pass(time.Minute)
		h.Expect(h.api.count(snapshotsResource)).To(BeZero())
		h.Expect(h.tracker.allSnapshots()).To(BeEmpty())
	})
}

func TestReadinessKnowsTheStorageClass(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) { a.cutAfter(time.Second) }, func(h *harness) {
		r := request(1, func(r *Request) { r.StorageClass = "fast" })
		h.Expect(Wait(h.ctx, h.taker.Take(h.ctx, r)...)).To(Succeed())
		readiness, known := h.tracker.Readiness(r.Namespace, keyOf(r).Name)
		h.Expect(known).To(BeTrue())
		h.Expect(readiness.Observation(r.Namespace, time.Now()).StorageClass).To(Equal("fast"))
	})
}
