// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"
	"sync/atomic"
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

// This file is about what a failed snapshot leaves: nothing, whatever it failed of.

var impatient Judge = JudgeFunc(func(Observation) Judgement { return Judgement{Verdict: Terminal, Reason: "it can't heal"} })

func (h *harness) objects() int {
	return h.api.count(snapshotsResource) + h.api.count(contentsResource)
}

func TestNothingIsLeftOfAFailedSnapshot(t *testing.T) {
	deleteSnapshot := func(a *api, key types.NamespacedName) {
		_ = a.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
	}
	tests := map[string]func(*api, types.NamespacedName){
		"the driver says no": func(a *api, key types.NamespacedName) { a.report(key, ptr.To("no")) },
		"the driver says no, and the class keeps snapshots": func(a *api, key types.NamespacedName) {
			a.bind(key, snapshotv1.VolumeSnapshotContentRetain)
			a.report(key, ptr.To("no"))
		},
		"the class is gone, so there is no content": func(a *api, key types.NamespacedName) {
			a.changeSnapshot(key, func(vs *snapshotv1.VolumeSnapshot) {
				vs.Status = &snapshotv1.VolumeSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{Message: ptr.To("class not found")}}
			})
		},
		"deleted by somebody before it was bound": deleteSnapshot,
		"deleted by somebody after it was bound": func(a *api, key types.NamespacedName) {
			a.bind(key, snapshotv1.VolumeSnapshotContentDelete)
			deleteSnapshot(a, key)
		},
		"deleted by somebody after it was bound, and the class keeps snapshots": func(a *api, key types.NamespacedName) {
			a.bind(key, snapshotv1.VolumeSnapshotContentRetain)
			deleteSnapshot(a, key)
		},
		"deleted by somebody, and bound only then": func(a *api, key types.NamespacedName) {
			a.changeSnapshot(key, func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = []string{"controller"} })
			deleteSnapshot(a, key)
			time.AfterFunc(time.Minute, func() {
				a.bind(key, snapshotv1.VolumeSnapshotContentRetain)
				a.changeSnapshot(key, func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = nil })
			})
		},
		"only the content was deleted": func(a *api, key types.NamespacedName) {
			name := a.bind(key, snapshotv1.VolumeSnapshotContentDelete)
			synctestSettle()
			_ = a.delete(contentsResource, "", name, metav1.DeleteOptions{})
		},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, TakerOptions{Judge: impatient}, nil, func(h *harness) {
				s := h.taker.Take(h.ctx, request(1))[0]
				h.pass(time.Second)
				fault(h.api, keyOf(request(1)))
				h.pass(lostGrace + time.Minute + time.Second)
				h.Expect(s.Outcome().Phase).To(Equal(Failed))
				h.Expect(h.objects()).To(BeZero())
				h.Expect(h.taker.Settle(h.ctx, refTo(s))).To(BeEmpty())
			})
		})
	}
}

func refTo(s *Snapshot) Ref {
	o := s.Outcome()
	return Ref{Namespace: o.VolumeSnapshot.Namespace, Name: o.VolumeSnapshot.Name, UID: o.VolumeSnapshot.UID}
}

// What was cut is the backup's. Whoever deletes the VolumeSnapshot then decides by the policy whether the physical one stays.
func TestADeletionAfterTheCutIsNotOurs(t *testing.T) {
	for _, ready := range []bool{false, true} {
		for policy, left := range map[snapshotv1.DeletionPolicy]int{snapshotv1.VolumeSnapshotContentRetain: 1, snapshotv1.VolumeSnapshotContentDelete: 0} {
			t.Run(fmt.Sprint(policy, ready), func(t *testing.T) {
				inBubble(t, TakerOptions{}, nil, func(h *harness) {
					s := h.taker.Take(h.ctx, request(1))[0]
					h.pass(time.Second)
					key := keyOf(request(1))
					h.api.bind(key, policy)
					h.api.cut(key)
					if ready {
						h.api.contentReady(key)
						h.api.snapshotReady(key)
					}
					h.pass(time.Second)
					_ = h.api.VolumeSnapshots(key.Namespace).Delete(h.ctx, key.Name, metav1.DeleteOptions{})
					h.pass(time.Hour)
					h.Expect(s.Outcome().Phase).To(Equal(Cut))
					h.Expect(h.objects()).To(Equal(left))
					h.Expect(h.api.asked("delete volumesnapshots")).To(Equal(1), "that one was the test's own")
				})
			})
		}
	}
}

// A storage system that has reached its quota must not be asked ever more often (F18).
func TestBackupsThatFailOneAfterTheOtherLeaveNothingBetweenThem(t *testing.T) {
	inBubble(t, TakerOptions{Judge: impatient}, func(a *api) {
		a.onCreate = func(key types.NamespacedName) {
			time.AfterFunc(time.Second, func() { a.report(key, ptr.To("ShareSnapshotCountExceeded")) })
		}
	}, func(h *harness) {
		for i := range 20 {
			snaps := h.taker.Take(h.ctx, requests(5, ofOwner(types.UID(fmt.Sprintf("backup-%d", i))))...)
			h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
			h.Expect(reasons(snaps)).To(Equal(map[string]int{string(ReasonTerminalError): 5}))
			h.pass(time.Second)
			h.Expect(h.objects()).To(BeZero())
		}
		h.Expect(h.api.asked("create volumesnapshots")).To(Equal(100))
		h.Expect(h.api.asked("delete volumesnapshots")).To(Equal(100))
	})
}

// Two backups of the same claims, one of which fails, and the snapshots of users (F13).
func TestAFailedBackupRemovesNothingOfOthers(t *testing.T) {
	users := []types.NamespacedName{{Namespace: "app", Name: "mine-0"}, {Namespace: "app", Name: "mine-1"}}
	inBubble(t, TakerOptions{Judge: impatient}, func(a *api) {
		for _, key := range users {
			vs := desired(request(0))
			vs.Name, vs.Labels = key.Name, nil
			_, _ = a.create(snapshotsResource, vs)
			a.cut(key)
		}
	}, func(h *harness) {
		failing := h.taker.Take(h.ctx, requests(20, ofOwner("a"))...)
		fine := h.taker.Take(h.ctx, requests(20, ofOwner("b"))...)
		h.pass(time.Minute) // until all are in flight
		for i := range 20 {
			h.api.cut(keyOf(request(i, ofOwner("b"))))
			h.api.report(keyOf(request(i, ofOwner("a"))), ptr.To("no"))
		}
		h.pass(time.Minute)
		h.Expect(reasons(failing)).To(Equal(map[string]int{string(ReasonTerminalError): 20}))
		h.Expect(reasons(fine)).To(Equal(map[string]int{"Cut": 20}))
		h.Expect(h.api.count(snapshotsResource)).To(Equal(20 + len(users)))
		h.Expect(h.api.count(contentsResource)).To(Equal(20 + len(users)))
		for _, key := range users {
			h.Expect(h.api.snapshot(key)).NotTo(BeNil())
		}
	})
}

func TestAHundredFailuresAtOnce(t *testing.T) {
	for name, fault := range map[string]error{
		"an API at its best": nil, "429": apierrors.NewTooManyRequestsError("busy"), "503": apierrors.NewServiceUnavailable("down"), "lost": errors.New("connection reset"),
	} {
		t.Run(name, func(t *testing.T) {
			opts := parallelism("unlimited")
			opts.Judge = impatient
			inBubble(t, opts, nil, func(h *harness) {
				snaps := h.taker.Take(h.ctx, requests(100)...)
				h.pass(time.Minute) // until all are in flight
				begin := time.Now()
				var inFlight, most atomic.Int64
				h.api.setAnswer(func(verb, _, _ string) error {
					if verb != "delete" {
						return nil
					}
					most.Store(max(most.Load(), inFlight.Add(1)))
					<-time.After(10 * time.Millisecond)
					inFlight.Add(-1)
					if time.Since(begin) < 10*time.Second {
						return fault
					}
					return nil
				})
				before := h.api.allRequests()
				for i := range snaps {
					h.api.report(keyOf(request(i)), ptr.To("no"))
				}
				synctest.Wait()
				h.Expect(reasons(snaps)).To(Equal(map[string]int{string(ReasonTerminalError): 100}), "removing must not hold up the verdicts")
				h.pass(time.Minute)
				h.Expect(h.objects()).To(BeZero())
				h.Expect(most.Load()).To(BeNumerically("<=", maxRemovers+1), "and the one that follows removals")
				total := 0
				for request, n := range h.api.allRequests() {
					total += n - before[request]
				}
				t.Logf("%d requests for 100 removals", total)
				h.Expect(total).To(BeNumerically("<=", 400))
			})
		})
	}
}
