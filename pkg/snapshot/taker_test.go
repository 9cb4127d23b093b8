// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestAHundredSnapshotsCostOneRequestEach(t *testing.T) {
	inBubble(t, parallelism("unlimited"), func(a *api) { a.cutAfter(2 * time.Second) }, func(h *harness) {
		begin := time.Now()
		snaps := h.taker.Take(h.ctx, requests(100)...)
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(time.Since(begin)).To(Equal(2*time.Second + widenAfter))
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 100}))
		h.Expect(h.api.asked("create volumesnapshots")).To(Equal(100))
		for _, request := range []string{"get volumesnapshots", "get volumesnapshotcontents", "delete volumesnapshots"} {
			h.Expect(h.api.asked(request)).To(BeZero(), request)
		}
		for _, resource := range []string{"volumesnapshots", "volumesnapshotcontents"} {
			h.Expect(h.api.asked("list "+resource)).To(Equal(1), resource)
			h.Expect(h.api.asked("watch "+resource)).To(Equal(1), resource)
		}
	})
}

func TestWhatIsCreated(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		r := request(1, func(r *Request) {
			r.Labels = map[string]string{"app": "db", velerov1.BackupUIDLabel: "a claim's own"}
			r.Annotations = map[string]string{"note": "x"}
		})
		s := h.taker.Take(h.ctx, r)[0]
		synctest.Wait()
		vs := h.api.snapshot(keyOf(r))
		h.Expect(vs).NotTo(BeNil())
		h.Expect(vs.Labels).To(Equal(map[string]string{
			"app": "db", "velero.io/backup-name": "backup", "velero.io/backup-uid": "backup-uid", "velero.io/pvc-uid": "pvc-1",
		}))
		h.Expect(vs.Annotations).To(HaveKeyWithValue("note", "x"))
		h.Expect(*vs.Spec.Source.PersistentVolumeClaimName).To(Equal("data-1"))
		h.Expect(*vs.Spec.VolumeSnapshotClassName).To(Equal("class"))
		h.Expect(r.Labels).To(HaveKeyWithValue(velerov1.BackupUIDLabel, "a claim's own"), "the caller's map is left alone")
		h.Expect(s.Outcome().Phase).To(Equal(Cutting))
		h.Expect(s.Outcome().VolumeSnapshot.Name).To(Equal(keyOf(r).Name))
	})
}

func TestCutIsSeenOnTheContentBeforeTheSnapshotKnows(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		r := request(1)
		s := h.taker.Take(h.ctx, r)[0]
		h.pass(time.Second)
		h.Expect(h.decided(s)).To(BeFalse())
		h.api.cut(keyOf(r))
		synctest.Wait()
		h.Expect(s.Outcome().Phase).To(Equal(Cut))
		h.Expect(s.Outcome().VolumeSnapshot.Status).To(BeNil())
		h.Expect(*s.Outcome().Content.Status.SnapshotHandle).To(Equal("handle-of-" + keyOf(r).Name))
		h.Expect(s.Outcome().Decided.Sub(s.Outcome().Created)).To(Equal(time.Second))

		h.api.contentReady(keyOf(r))
		synctest.Wait()
		h.Expect(h.ready(s)).To(BeFalse(), "the VolumeSnapshot isn't ready yet")
		h.api.snapshotReady(keyOf(r))
		synctest.Wait()
		h.Expect(h.ready(s)).To(BeTrue())
		h.Expect(*s.Outcome().VolumeSnapshot.Status.BoundVolumeSnapshotContentName).To(Equal(s.Outcome().Content.Name))
		h.Expect(h.tracker.subscribers).To(BeEmpty())
	})
}

func TestTheEndOfTheContextAbandonsAndRemoves(t *testing.T) {
	inBubble(t, parallelism("2"), nil, func(h *harness) {
		ctx, cancel := context.WithCancelCause(h.ctx)
		snaps := h.taker.Take(ctx, requests(5)...)
		other := h.taker.Take(h.ctx, request(50, ofOwner("other")))
		synctest.Wait()
		h.api.cut(keyOf(request(0)))
		synctest.Wait()
		h.Expect(h.api.count(snapshotsResource)).To(Equal(3), "one cut, two in flight")
		cancel(errors.New("the backup was cancelled"))
		synctest.Wait()
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 1, "Abandoned": 4}))
		h.Expect(snaps[4].Outcome().Message).To(ContainSubstring("the backup was cancelled"))
		h.Expect(h.decided(other[0])).To(BeFalse())
		h.Expect(h.api.count(snapshotsResource)).To(Equal(2), "the one that is cut stays, and the other backup's starts")
		h.Expect(h.api.snapshot(keyOf(request(0)))).NotTo(BeNil())
	})
}

func TestAnEndedContextCreatesNothing(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		ctx, cancel := context.WithCancel(h.ctx)
		cancel()
		snaps := h.taker.Take(ctx, requests(3)...)
		synctest.Wait()
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Abandoned": 3}))
		h.Expect(h.api.asked("create volumesnapshots")).To(BeZero())
	})
}

func TestStoppingAbandonsRemovesAndRefuses(t *testing.T) {
	inBubble(t, parallelism("2"), nil, func(h *harness) {
		snaps := h.taker.Take(h.ctx, requests(5)...)
		h.pass(time.Second)
		h.end()
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Abandoned": 5}))
		h.Expect(h.api.count(snapshotsResource)).To(BeZero())
		late := h.taker.Take(context.Background(), request(9))
		h.Expect(late[0].Outcome().Reason).To(Equal(ReasonAbandoned))
		h.Expect(late[0].Outcome().Err()).To(MatchError(ContainSubstring("shutting down")))
	})
}

func TestStoppingGivesUpAfterTheGraceTime(t *testing.T) {
	inBubble(t, TakerOptions{ShutdownGrace: 3 * time.Second}, nil, func(h *harness) {
		snaps := h.taker.Take(h.ctx, requests(20, frozen)...)
		h.pass(time.Second)
		h.api.setAnswer(func(verb, _, _ string) error {
			if verb == "delete" {
				return apierrors.NewTooManyRequestsError("busy")
			}
			return nil
		})
		begin := time.Now()
		h.end()
		h.Expect(time.Since(begin)).To(Equal(3 * time.Second))
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Abandoned": 20}))
		h.Expect(h.seen(EventRemoved)).To(HaveLen(20))
		h.Expect(h.seen(EventRemoved)[0].Message).NotTo(BeEmpty())
	})
}

func TestTakeBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, TakerOptions{}, func(a *api) { a.cutAfter(time.Second) })
		snaps := h.taker.Take(h.ctx, requests(3)...)
		h.start()
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 3}))
		h.Expect(h.taker.Start(h.ctx)).To(MatchError(ContainSubstring("twice")))
		h.end()
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		snaps := h.taker.Take(h.ctx, requests(2)...)
		ctx, cancel := context.WithTimeout(h.ctx, time.Second)
		defer cancel()
		err := Wait(ctx, snaps...)
		h.Expect(err).To(MatchError(context.DeadlineExceeded))
		h.Expect(err).To(MatchError(ContainSubstring("app/data-0")))
	})
}

func TestIncompleteRequestIsRefused(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		s := h.taker.Take(h.ctx, request(1, func(r *Request) { r.Class, r.Timeout = "", 0 }))[0]
		synctest.Wait()
		h.Expect(s.Outcome().Reason).To(Equal(ReasonCreateRefused))
		h.Expect(s.Outcome().Message).To(And(ContainSubstring("Class"), ContainSubstring("Timeout")))
		h.Expect(h.api.asked("create volumesnapshots")).To(BeZero())
	})
}

func TestDeletedUnderUs(t *testing.T) {
	keep := func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = []string{"kept"} }
	tests := map[string]struct {
		do     func(*api, types.NamespacedName)
		phase  Phase
		reason Reason
	}{
		"gone": {func(a *api, key types.NamespacedName) {
			_ = a.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
		}, Failed, ReasonDeleted},
		"terminating": {func(a *api, key types.NamespacedName) {
			a.changeSnapshot(key, keep)
			_ = a.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
		}, Failed, ReasonDeleted},
		"content gone": {func(a *api, key types.NamespacedName) {
			name := a.bind(key, snapshotv1.VolumeSnapshotContentDelete)
			synctest.Wait()
			_ = a.delete(contentsResource, "", name, metav1.DeleteOptions{})
		}, Failed, ReasonDeleted},
		"cut, to be deleted with its snapshot": {func(a *api, key types.NamespacedName) {
			a.changeSnapshot(key, keep)
			_ = a.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
			synctest.Wait() // seen after the cut, the deletion would come too late to matter
			a.cut(key)
		}, Failed, ReasonDeleted},
		"cut, and kept without its snapshot": {func(a *api, key types.NamespacedName) {
			name := a.bind(key, snapshotv1.VolumeSnapshotContentRetain)
			_ = a.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) {
				contentStatus(c).SnapshotHandle = ptr.To("handle")
			})
			_ = a.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
		}, Cut, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, TakerOptions{}, nil, func(h *harness) {
				snaps := h.taker.Take(h.ctx, request(1), request(2))
				h.pass(time.Second)
				test.do(h.api, keyOf(request(1)))
				h.pass(lostGrace)
				h.Expect(snaps[0].Outcome().Phase).To(Equal(test.phase))
				h.Expect(snaps[0].Outcome().Reason).To(Equal(test.reason))
				h.Expect(h.decided(snaps[1])).To(BeFalse())
			})
		})
	}
}

func TestDeletedBeforeTheCreationWasAnswered(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) {
		a.onCreate = func(key types.NamespacedName) {
			synctestSettle() // the watch shows the object
			_ = a.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
			synctestSettle()
		}
	}, func(h *harness) {
		s := h.taker.Take(h.ctx, request(1))[0]
		h.pass(time.Second + lostGrace)
		h.Expect(s.Outcome().Reason).To(Equal(ReasonDeleted))
	})
}

// synctestSettle lets everybody else go on, by letting the smallest bit of fake time pass.
func synctestSettle() { <-time.After(time.Nanosecond) }

func TestErrorsWithoutMessageAndStaleErrors(t *testing.T) {
	judged := 0
	judge := JudgeFunc(func(o Observation) Judgement {
		judged++
		return Judgement{Verdict: Terminal}
	})
	inBubble(t, TakerOptions{Judge: judge}, nil, func(h *harness) {
		stale, nameless := request(1), request(2)
		snaps := h.taker.Take(h.ctx, stale, nameless)
		synctest.Wait()
		name := h.api.bind(keyOf(stale), snapshotv1.VolumeSnapshotContentDelete)
		_ = h.api.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) {
			contentStatus(c).SnapshotHandle = ptr.To("handle")
			c.Status.Error = &snapshotv1.VolumeSnapshotError{Message: ptr.To("old")}
		})
		h.api.report(keyOf(nameless), nil)
		synctest.Wait()
		h.Expect(snaps[0].Outcome().Phase).To(Equal(Cut), "an error beside a handle is stale")
		h.Expect(snaps[1].Outcome().Reason).To(Equal(ReasonTerminalError))
		h.Expect(judged).To(Equal(1))
	})
}

func TestTheSamePVCForTwoOwners(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) { a.cutAfter(time.Second) }, func(h *harness) {
		snaps := append(h.taker.Take(h.ctx, request(1, ofOwner("a"))), h.taker.Take(h.ctx, request(1, ofOwner("b")))...)
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(snaps[0].Outcome().VolumeSnapshot.Name).NotTo(Equal(snaps[1].Outcome().VolumeSnapshot.Name))
	})
}

// Field case F22: what is tracked is a set with keys, which an event that comes late or twice can't upset.
func TestRepeatedAndReorderedEvents(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		snaps := h.taker.Take(h.ctx, requests(10)...)
		synctest.Wait()
		for i := range snaps {
			h.api.report(keyOf(request(i)), ptr.To(fmt.Sprintf("try %d", i)))
		}
		h.api.repeat()
		h.api.expire()
		h.pass(time.Minute)
		for i := range snaps {
			h.api.cut(keyOf(request(i)))
			h.api.repeat()
			h.api.contentReady(keyOf(request(i)))
			h.api.snapshotReady(keyOf(request(i)))
		}
		h.api.repeat()
		h.api.expire()
		h.pass(time.Minute)
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 10}))
		for _, s := range snaps {
			h.Expect(h.ready(s)).To(BeTrue())
		}
		h.Expect(h.seen(EventCut)).To(HaveLen(10))
		h.Expect(h.api.asked("delete volumesnapshots")).To(BeZero())
	})
}

func TestWhatWasAskedForAMomentAgoIsNotGivenUpWithTheRest(t *testing.T) {
	inBubble(t, parallelism("2"), func(a *api) {
		a.onCreate = func(key types.NamespacedName) {
			if key != keyOf(request(0)) {
				time.AfterFunc(2*time.Second, func() { a.cut(key) })
			}
		}
	}, func(h *harness) {
		hung := h.taker.Take(h.ctx, request(0))[0]
		h.pass(testTimeout - time.Second)
		fresh := h.taker.Take(h.ctx, requests(4, ofOwner("other"))[1:]...)
		h.Expect(Wait(h.ctx, append(fresh, hung)...)).To(Succeed())
		h.Expect(reasons(fresh)).To(Equal(map[string]int{"Cut": 3}))
		h.Expect(hung.Outcome().Reason).To(Equal(ReasonTimedOut))
	})
}
