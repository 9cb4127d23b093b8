// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"
	"testing/synctest"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
)

// contents returns the names of all contents.
func (h *harness) contents() []string {
	h.api.mu.Lock()
	defer h.api.mu.Unlock()
	var names []string
	for _, o := range h.api.objects[contentsResource] {
		names = append(names, o.GetName())
	}
	return names
}

func (h *harness) erase(physical ...Physical) <-chan []Leftover {
	done := make(chan []Leftover, 1)
	go func() { done <- h.taker.Remover().Erase(h.ctx, "velero", time.Minute, physical...) }()
	synctest.Wait()
	return done
}

// sidecarTakes and sidecarDeletes are the two steps of a sidecar with a content that was made for a snapshot.
func (h *harness) sidecarTakes(name string) {
	h.Expect(h.api.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) {
		contentStatus(c).SnapshotHandle = c.Spec.Source.SnapshotHandle
	})).To(Succeed())
	synctest.Wait()
}

func (h *harness) sidecarDeletes(name string) {
	h.Expect(h.api.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) {
		h.Expect(c.DeletionTimestamp).NotTo(BeNil())
		c.Finalizers = nil
	})).To(Succeed())
	synctest.Wait()
}

func TestErase(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		one := Physical{Driver: "driver", Handle: "snap-1", Annotations: map[string]string{"secret": "s"}}
		done := h.erase(one, one, Physical{Driver: "driver", Handle: "snap-2"})
		h.Expect(h.contents()).To(HaveLen(2), "the same snapshot once")
		for _, name := range h.contents() {
			content := h.tracker.content(name)
			h.Expect(content.Spec.DeletionPolicy).To(Equal(snapshotv1.VolumeSnapshotContentDelete))
			h.Expect(content.Spec.VolumeSnapshotClassName).To(BeNil(), "the class may be gone")
			h.Expect(content.DeletionTimestamp).To(BeNil(), "the sidecar would let it go, and the snapshot stay")
			h.sidecarTakes(name)
			h.Expect(h.tracker.content(name).DeletionTimestamp).NotTo(BeNil())
			h.Expect(done).NotTo(Receive())
			h.sidecarDeletes(name)
		}
		h.Expect(done).To(Receive(BeEmpty()))
	})
}

func TestEraseGoesOnWhereItEnded(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		physical := Physical{Driver: "driver", Handle: "snap-1"}
		done := h.erase(physical)
		h.pass(time.Minute)
		var left []Leftover
		h.Expect(done).To(Receive(&left))
		h.Expect(left).To(HaveLen(1))
		h.Expect(left[0].Reason).To(And(ContainSubstring("snap-1"), ContainSubstring("sidecar running")))

		name := h.contents()[0]
		done = h.erase(physical)
		h.sidecarTakes(name)
		h.sidecarDeletes(name)
		h.Expect(done).To(Receive(BeEmpty()))
		h.Expect(h.contents()).To(BeEmpty())
	})
}

func TestEraseIsPatientWhileSomethingGoesOn(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		done := h.erase(Physical{Driver: "driver", Handle: "snap-1"}, Physical{Driver: "driver", Handle: "snap-2"})
		names := h.contents()
		h.pass(50 * time.Second)
		h.sidecarTakes(names[0])
		h.sidecarDeletes(names[0])
		h.pass(50 * time.Second)
		h.Expect(done).NotTo(Receive())
		h.sidecarTakes(names[1])
		h.sidecarDeletes(names[1])
		h.Expect(done).To(Receive(BeEmpty()))
	})
}

func TestEraseOfWhatTheStorageDoesNotKnow(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		done := h.erase(Physical{Driver: "driver", Handle: "snap-1"})
		name := h.contents()[0]
		h.Expect(h.api.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) {
			contentStatus(c).Error = &snapshotv1.VolumeSnapshotError{Message: ptr.To("can not find snapshot for snapshotID snap-1")}
		})).To(Succeed())
		synctest.Wait()
		h.sidecarDeletes(name)
		h.Expect(done).To(Receive(BeEmpty()))
	})
}

func TestLostAfterTheCut(t *testing.T) {
	for _, test := range []struct {
		policy snapshotv1.DeletionPolicy
		lost   bool
	}{{snapshotv1.VolumeSnapshotContentDelete, true}, {snapshotv1.VolumeSnapshotContentRetain, false}} {
		t.Run(string(test.policy), func(t *testing.T) {
			inBubble(t, TakerOptions{}, nil, func(h *harness) {
				r := request(1)
				s := h.taker.Take(h.ctx, r)[0]
				synctest.Wait()
				h.api.bind(keyOf(r), test.policy)
				h.api.cut(keyOf(r))
				synctest.Wait()
				h.Expect(s.Outcome().Phase).To(Equal(Cut))
				_ = h.taker.client.VolumeSnapshots("app").Delete(h.ctx, keyOf(r).Name, deleteOptions(""))
				synctest.Wait()
				h.Expect(s.Outcome().Phase).To(Equal(Cut), "what was decided stays")
				h.Expect(s.Outcome().Lost != "").To(Equal(test.lost), s.Outcome().Lost)
			})
		})
	}
}

func TestErrorsOfTheSnapshotControllerAreNoneBesideAHandle(t *testing.T) {
	judge := JudgeFunc(func(Observation) Judgement { return Judgement{Verdict: Terminal} })
	inBubble(t, TakerOptions{Judge: judge}, nil, func(h *harness) {
		r := request(1)
		s := h.taker.Take(h.ctx, r)[0]
		synctest.Wait()
		h.api.cut(keyOf(r))
		synctest.Wait()
		h.api.changeSnapshot(keyOf(r), func(vs *snapshotv1.VolumeSnapshot) {
			vs.Status = &snapshotv1.VolumeSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{Message: ptr.To("class not found")}}
		})
		h.pass(time.Minute)
		h.api.contentReady(keyOf(r))
		h.api.snapshotReady(keyOf(r))
		synctest.Wait()
		h.Expect(h.ready(s)).To(BeTrue())
	})
}

func TestAwaitReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, TakerOptions{}, nil)
		waited := make(chan time.Duration, 1)
		begin := time.Now()
		go func() {
			h.taker.AwaitReadiness(t.Context())
			waited <- time.Since(begin)
		}()
		<-time.After(5 * time.Second)
		synctest.Wait()
		h.Expect(waited).NotTo(Receive())
		h.start()
		h.Expect(<-waited).To(BeNumerically("~", 5*time.Second, time.Second))
		h.end()
	})
}
