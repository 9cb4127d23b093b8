// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// existing makes a VolumeSnapshot with a content of that policy and returns what names it.
func existing(a *api, policy snapshotv1.DeletionPolicy) Ref {
	_, _ = a.create(snapshotsResource, desired(request(1)))
	a.bind(keyOf(request(1)), policy)
	vs := a.snapshot(keyOf(request(1)))
	return Ref{Namespace: vs.Namespace, Name: vs.Name, UID: vs.UID}
}

func TestRemoveMakesTheContentFollow(t *testing.T) {
	tests := []struct {
		policy  snapshotv1.DeletionPolicy
		patches int
	}{{snapshotv1.VolumeSnapshotContentRetain, 1}, {snapshotv1.VolumeSnapshotContentDelete, 0}}
	for _, test := range tests {
		t.Run(string(test.policy), func(t *testing.T) {
			var ref Ref
			inBubble(t, TakerOptions{}, func(a *api) { ref = existing(a, test.policy) }, func(h *harness) {
				h.Expect(h.taker.Remove(h.ctx, ref)).To(Succeed())
				h.Expect(h.api.asked("patch volumesnapshotcontents")).To(Equal(test.patches))
				h.Expect(h.api.asked("delete volumesnapshots")).To(Equal(1))
				h.Expect(h.taker.Settle(h.ctx, ref)).To(BeEmpty())
				h.Expect(h.api.count(snapshotsResource) + h.api.count(contentsResource)).To(BeZero())
				h.Expect(h.taker.Remove(h.ctx, ref)).To(Succeed(), "once more does no harm")
			})
		})
	}
}

func TestRemoveRetriesTransientErrors(t *testing.T) {
	var ref Ref
	inBubble(t, TakerOptions{}, func(a *api) { ref = existing(a, snapshotv1.VolumeSnapshotContentRetain) }, func(h *harness) {
		tries := 0
		h.api.setAnswer(func(verb, _, _ string) error {
			tries++
			if tries%3 != 0 {
				return apierrors.NewTooManyRequestsError("busy")
			}
			return nil
		})
		h.Expect(h.taker.Remove(h.ctx, ref)).To(Succeed())
		h.Expect(h.api.count(snapshotsResource) + h.api.count(contentsResource)).To(BeZero())
	})
}

func TestRemoveEndsWithItsContextAndSaysWhy(t *testing.T) {
	var ref Ref
	inBubble(t, TakerOptions{}, func(a *api) { ref = existing(a, snapshotv1.VolumeSnapshotContentDelete) }, func(h *harness) {
		refuse(h.api, apierrors.NewServiceUnavailable("down"), "delete")
		ctx, cancel := context.WithTimeoutCause(h.ctx, time.Minute, errors.New("no time left"))
		defer cancel()
		err := h.taker.Remove(ctx, ref)
		h.Expect(err).To(MatchError(And(ContainSubstring(ref.Name), ContainSubstring("down"), ContainSubstring("no time left"))))
		left := h.taker.Settle(ctx, ref)
		h.Expect(left).To(HaveLen(1))
		h.Expect(left[0].Reason).To(ContainSubstring("is not being deleted"))

		refuse(h.api, forbidden(snapshotsResource), "delete")
		h.Expect(h.taker.Remove(h.ctx, ref)).To(MatchError(ContainSubstring("forbidden")))
	})
}

func TestALaterSnapshotOfTheSameNameIsLeftAlone(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) { existing(a, snapshotv1.VolumeSnapshotContentDelete) }, func(h *harness) {
		ref := Ref{Namespace: "app", Name: keyOf(request(1)).Name, UID: "an-earlier-one"}
		h.Expect(h.taker.Remove(h.ctx, ref)).To(Succeed())
		h.Expect(h.taker.Settle(h.ctx, ref)).To(BeEmpty())
		h.Expect(h.api.count(snapshotsResource)).To(Equal(1))
		h.Expect(h.api.count(contentsResource)).To(Equal(1))
	})
}

func TestAnOrphanedContentIsDeletedWithItsMark(t *testing.T) {
	for _, policy := range []snapshotv1.DeletionPolicy{snapshotv1.VolumeSnapshotContentRetain, snapshotv1.VolumeSnapshotContentDelete} {
		t.Run(string(policy), func(t *testing.T) { orphanIsDeleted(t, policy) })
	}
}

func orphanIsDeleted(t *testing.T, policy snapshotv1.DeletionPolicy) {
	var ref Ref
	inBubble(t, TakerOptions{}, func(a *api) {
		ref = existing(a, policy)
		_ = a.delete(snapshotsResource, ref.Namespace, ref.Name, metav1.DeleteOptions{})
		_ = a.changeContent(nameOfContent(ref), func(c *snapshotv1.VolumeSnapshotContent) { c.Finalizers = []string{"sidecar"} })
	}, func(h *harness) {
		h.Expect(h.taker.Remove(h.ctx, ref)).To(Succeed())
		o, err := h.api.get(contentsResource, "", nameOfContent(ref))
		h.Expect(err).NotTo(HaveOccurred())
		content := o.(*snapshotv1.VolumeSnapshotContent)
		h.Expect(content.Annotations).To(HaveKeyWithValue(annBeingDeleted, "yes"))
		h.Expect(content.Spec.DeletionPolicy).To(Equal(snapshotv1.VolumeSnapshotContentDelete))
		h.Expect(content.DeletionTimestamp).NotTo(BeNil())
		h.Expect(content.Finalizers).To(Equal([]string{"sidecar"}), "finalizers are never taken off")

		ctx, cancel := context.WithTimeout(h.ctx, time.Minute)
		defer cancel()
		left := h.taker.Settle(ctx, ref)
		h.Expect(left).To(HaveLen(1))
		h.Expect(left[0].Reason).To(ContainSubstring("csi-snapshotter"))
	})
}

func nameOfContent(ref Ref) string { return "snapcontent-" + string(ref.UID) }

func TestAContentThatAppearsAfterTheDeletion(t *testing.T) {
	var ref Ref
	inBubble(t, TakerOptions{}, func(a *api) {
		ref = existing(a, snapshotv1.VolumeSnapshotContentRetain)
		_ = a.delete(contentsResource, "", nameOfContent(ref), metav1.DeleteOptions{})
		a.changeSnapshot(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, func(vs *snapshotv1.VolumeSnapshot) {
			vs.Finalizers = []string{"controller"}
		})
	}, func(h *harness) {
		key := ref.key()
		h.Expect(h.taker.Remove(h.ctx, ref)).To(Succeed())
		time.AfterFunc(time.Second, func() { h.api.bind(key, snapshotv1.VolumeSnapshotContentRetain) })
		time.AfterFunc(2*time.Second, func() {
			h.api.changeSnapshot(key, func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = nil })
		})
		h.Expect(h.taker.Settle(h.ctx, ref)).To(BeEmpty())
		h.Expect(h.api.count(snapshotsResource) + h.api.count(contentsResource)).To(BeZero())
	})
}

func TestSettleNamesADriverThatDoesNotAnswer(t *testing.T) {
	var ref Ref
	hanging := func(a *api) {
		ref = existing(a, snapshotv1.VolumeSnapshotContentDelete)
		a.changeSnapshot(ref.key(), func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = []string{"controller"} })
		_ = a.changeContent(nameOfContent(ref), func(c *snapshotv1.VolumeSnapshotContent) {
			c.Finalizers = []string{"sidecar"}
			c.Annotations = map[string]string{annBeingCreated: "yes"}
		})
	}
	inBubble(t, TakerOptions{}, hanging, func(h *harness) {
		h.Expect(h.taker.Remove(h.ctx, ref)).To(Succeed())
		ctx, cancel := context.WithTimeout(h.ctx, time.Minute)
		defer cancel()
		left := h.taker.Settle(ctx, ref)
		h.Expect(left).To(HaveLen(1))
		h.Expect(left[0].Name).To(Equal(ref.Name))
		h.Expect(left[0].Reason).To(And(ContainSubstring("has not answered CreateSnapshot"), ContainSubstring(ref.Namespace+"/"+ref.Name)))
		h.Expect(h.api.asked("get volumesnapshots") + h.api.asked("get volumesnapshotcontents")).To(BeZero())

		// The driver answers at last.
		begin := time.Now()
		time.AfterFunc(time.Hour, func() {
			_ = h.api.changeContent(nameOfContent(ref), func(c *snapshotv1.VolumeSnapshotContent) { c.Finalizers = nil })
			h.api.changeSnapshot(ref.key(), func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = nil })
		})
		h.Expect(h.taker.Settle(h.ctx, ref)).To(BeEmpty())
		h.Expect(time.Since(begin)).To(Equal(time.Hour))
	})
}

func TestSettleNamesAMissingController(t *testing.T) {
	var ref Ref
	inBubble(t, TakerOptions{}, func(a *api) {
		ref = existing(a, snapshotv1.VolumeSnapshotContentDelete)
		a.changeSnapshot(ref.key(), func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = []string{"controller"} })
		_ = a.delete(contentsResource, "", nameOfContent(ref), metav1.DeleteOptions{})
	}, func(h *harness) {
		h.Expect(h.taker.Remove(h.ctx, ref)).To(Succeed())
		ctx, cancel := context.WithTimeout(h.ctx, time.Minute)
		defer cancel()
		left := h.taker.Settle(ctx, ref)
		h.Expect(left).To(HaveLen(1))
		h.Expect(left[0].Reason).To(And(ContainSubstring("finalizers controller"), ContainSubstring("snapshot-controller")))
	})
}

func TestRemoveWithoutACache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		a := newAPI()
		a.collect()
		ref := existing(a, snapshotv1.VolumeSnapshotContentRetain)
		a.snapshotReady(ref.key())
		r := NewRemover(a, NewTracker(a, TrackerOptions{}), RemoverOptions{})
		g.Expect(r.Remove(t.Context(), ref)).To(Succeed())
		g.Expect(a.count(snapshotsResource) + a.count(contentsResource)).To(BeZero())
	})
}

func TestSettleSaysWhenItCannotKnow(t *testing.T) {
	var ref Ref
	inBubble(t, TakerOptions{}, func(a *api) { ref = existing(a, snapshotv1.VolumeSnapshotContentDelete) }, func(h *harness) {
		ctx, cancel := context.WithTimeout(h.ctx, time.Minute)
		defer cancel()
		h.Expect(h.taker.Remove(h.ctx, ref)).To(Succeed())
		h.pass(0) // what Settle sees going needs no question
		refuse(h.api, apierrors.NewServiceUnavailable("down"), "get")
		left := h.taker.Settle(ctx, ref)
		h.Expect(left).To(HaveLen(1))
		h.Expect(left[0].Reason).To(ContainSubstring("could not be found out"))
	})
}

func TestSettleOfNothing(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		h.Expect(h.taker.Settle(h.ctx)).To(BeEmpty())
		h.Expect(h.taker.Settle(h.ctx, Ref{Namespace: "app", Name: "never", UID: types.UID("u"), ContentName: *ptr.To("c")})).To(BeEmpty())
	})
}
