// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The driver hangs until the snapshot was given up, and cuts it after all. Its sidecar then takes its mark off and forgets the
// content until something else changes the content's annotations.
func TestARemovalIsFollowedPastTheSidecarsMemory(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		s := h.taker.Take(h.ctx, request(1))[0]
		h.pass(time.Second)
		key := keyOf(request(1))
		name := h.api.bind(key, snapshotv1.VolumeSnapshotContentDelete)
		h.Expect(h.api.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) {
			c.Finalizers = []string{"sidecar"}
			c.Annotations = map[string]string{annBeingCreated: "yes"}
		})).To(Succeed())
		h.api.changeSnapshot(key, func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = []string{"controller"} })
		h.pass(testTimeout)
		h.Expect(s.Outcome().Phase).To(Equal(Failed))
		content := func() *snapshotv1.VolumeSnapshotContent {
			o, err := h.api.get(contentsResource, "", name)
			h.Expect(err).NotTo(HaveOccurred())
			return o.(*snapshotv1.VolumeSnapshotContent)
		}
		// The snapshot-controller deletes the content with its VolumeSnapshot; the driver still hangs.
		now := metav1.Now()
		h.Expect(h.api.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) { c.DeletionTimestamp = &now })).To(Succeed())
		h.pass(time.Hour)
		h.Expect(content().Annotations).NotTo(HaveKey(annNudge), "the sidecar knows of it: it waits for the driver")

		h.Expect(h.api.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) {
			handle := "late"
			c.Status = &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: &handle}
			c.Annotations = nil
		})).To(Succeed())
		h.pass(time.Second)
		h.Expect(content().Annotations).To(HaveKey(annNudge))

		patches := h.api.asked("patch " + contentsResource)
		h.Expect(h.api.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) { c.Labels = map[string]string{"a": "change"} })).To(Succeed())
		h.pass(time.Hour)
		h.Expect(h.api.asked("patch "+contentsResource)).To(Equal(patches), "once is enough")
	})
}
