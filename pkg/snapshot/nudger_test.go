// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

func TestASnapshotThatAControllerForgotIsNudged(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) {
		_, _ = a.create(snapshotsResource, desired(request(1)))
	}, func(h *harness) {
		key := keyOf(request(1))
		nudger := NewNudger(h.api, h.tracker, clock.RealClock{})
		nudge := func() bool {
			nudged, err := nudger.Nudge(context.Background(), key.Namespace, key.Name)
			h.Expect(err).NotTo(HaveOccurred())
			synctest.Wait()
			return nudged
		}
		h.Expect(nudge()).To(BeFalse(), "there is no content yet")
		h.api.cut(key)
		h.pass(unaskedAge - time.Second)
		h.Expect(nudge()).To(BeFalse(), "the sidecar asks by itself")
		h.pass(time.Second)
		h.Expect(nudge()).To(BeTrue(), "it may have forgotten to")
		_, content := h.tracker.look(key, "")
		h.Expect(content.Annotations).To(HaveKey(annStatusNudge))
		h.pass(time.Hour)
		h.Expect(nudge()).To(BeFalse(), "the storage may need hours, and is asked once more only")
		h.Expect(h.api.asked("patch " + contentsResource)).To(Equal(1))
		h.api.contentReady(key)
		synctest.Wait()
		h.Expect(nudge()).To(BeFalse(), "the controller had no time")
		h.Expect(h.api.asked("patch[] " + snapshotsResource)).To(BeZero())

		h.pass(stalledAge)
		h.Expect(nudge()).To(BeTrue())
		h.Expect(h.api.snapshot(key).Annotations).To(HaveKey(annStatusNudge))
		h.pass(time.Minute)
		h.Expect(nudge()).To(BeFalse(), "once, for some minutes")
		h.pass(nudgeAgain)
		h.Expect(nudge()).To(BeTrue())

		h.pass(nudgeAgain)
		h.api.snapshotReady(key)
		synctest.Wait()
		h.Expect(nudge()).To(BeFalse(), "it is ready")
		h.Expect(h.api.asked("patch[] " + snapshotsResource)).To(Equal(2))
	})
}

func TestANudgeThatIsRefusedSaysWhatFor(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) {
		_, _ = a.create(snapshotsResource, desired(request(1)))
	}, func(h *harness) {
		key := keyOf(request(1))
		h.api.cut(key)
		h.api.contentReady(key)
		h.pass(stalledAge)
		nudger := NewNudger(h.api, h.tracker, clock.RealClock{})
		refuse(h.api, errors.New("no right to patch"), "patch[]")
		_, err := nudger.Nudge(context.Background(), key.Namespace, key.Name)
		h.Expect(err).To(MatchError(And(ContainSubstring(key.Name), ContainSubstring("no right to patch"))))

		nudged, err := nudger.Nudge(context.Background(), key.Namespace, key.Name)
		h.Expect(err).NotTo(HaveOccurred(), "not at each question")
		h.Expect(nudged).To(BeFalse())
		h.pass(nudgeAgain)
		_, err = nudger.Nudge(context.Background(), key.Namespace, key.Name)
		h.Expect(err).To(HaveOccurred(), "but again after some minutes")
		stopped, stop := context.WithCancel(context.Background())
		stop()
		h.pass(nudgeAgain)
		_, err = nudger.Nudge(stopped, key.Namespace, key.Name)
		h.Expect(err).NotTo(HaveOccurred(), "a server that ends says nothing")

		refuse(h.api, nil)
		h.Expect(h.api.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})).To(Succeed())
		synctest.Wait()
		nudged, err = nudger.Nudge(context.Background(), key.Namespace, key.Name)
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(nudged).To(BeFalse(), "it is gone")
	})
}
