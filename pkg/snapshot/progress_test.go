// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestTimeoutFailsAndRemoves(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		r := request(1)
		s := h.taker.Take(h.ctx, r)[0]
		synctest.Wait()
		h.api.report(keyOf(r), ptr.To("the array is on fire"))
		h.pass(testTimeout - time.Second)
		h.Expect(h.decided(s)).To(BeFalse(), "a retryable error ends nothing before the deadline")
		h.pass(time.Second)
		h.Expect(s.Outcome().Reason).To(Equal(ReasonTimedOut))
		h.Expect(s.Outcome().Message).To(And(ContainSubstring("app/data-1"), ContainSubstring(keyOf(r).String()),
			ContainSubstring("driver"), ContainSubstring("600 s"), ContainSubstring("the array is on fire")))
		h.Expect(h.ready(s)).To(BeTrue(), "nothing is to be waited for any more")
		h.Expect(h.api.count(snapshotsResource) + h.api.count(contentsResource)).To(BeZero())
	})
}

func TestHangingVolumesCostOneTimeout(t *testing.T) {
	for _, limit := range []string{"1", "20", "unlimited"} {
		t.Run(limit, func(t *testing.T) {
			inBubble(t, parallelism(limit), nil, func(h *harness) {
				begin := time.Now()
				snaps := h.taker.Take(h.ctx, requests(30)...)
				h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
				h.Expect(time.Since(begin)).To(Equal(testTimeout))
				found := reasons(snaps)
				h.Expect(found["TimedOut"] + found["NoProgress"]).To(Equal(30))
				synctest.Wait()
				h.Expect(h.api.count(snapshotsResource)).To(BeZero())
				if limit == "20" {
					h.Expect(h.api.asked("create volumesnapshots")).To(Equal(20))
					h.Expect(snaps[29].Outcome().Message).To(And(ContainSubstring("queued"), ContainSubstring("CSI driver driver")))
					h.Expect(snaps[29].Outcome().VolumeSnapshot).To(BeNil())
				}
			})
		})
	}
}

func TestProgressKeepsTheQueueAlive(t *testing.T) {
	// The volume with number 0 hangs; the others take a minute each, one after the other, longer than the timeout in all.
	prepare := func(a *api) {
		a.onCreate = func(key types.NamespacedName) {
			if key != keyOf(request(0)) {
				time.AfterFunc(time.Minute, func() { a.cut(key) })
			}
		}
	}
	inBubble(t, parallelism("2"), prepare, func(h *harness) {
		snaps := h.taker.Take(h.ctx, requests(31)...)
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 30, "TimedOut": 1}))
	})
}

func TestABreakdownAfterProgressIsNoticedOneTimeoutAfterIt(t *testing.T) {
	// One of three cuts after 5 s, and then nothing does any more.
	prepare := func(a *api) {
		a.onCreate = func(key types.NamespacedName) {
			if key == keyOf(request(0)) {
				time.AfterFunc(5*time.Second, func() { a.cut(key) })
			}
		}
	}
	inBubble(t, parallelism("3"), prepare, func(h *harness) {
		begin := time.Now()
		snaps := h.taker.Take(h.ctx, requests(30)...)
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(time.Since(begin)).To(Equal(testTimeout + 5*time.Second))
		h.Expect(reasons(snaps)["Cut"]).To(Equal(1))
	})
}

func TestAnotherDriversQueueIsNotGivenUp(t *testing.T) {
	inBubble(t, parallelism("1"), func(a *api) {
		a.onCreate = func(key types.NamespacedName) {
			if key.Name == keyOf(request(1)).Name {
				time.AfterFunc(time.Second, func() { a.cut(key) })
			}
		}
	}, func(h *harness) {
		hanging := h.taker.Take(h.ctx, request(0, ofDriver("broken")))
		healthy := h.taker.Take(h.ctx, request(1, ofDriver("fine")))
		h.Expect(Wait(h.ctx, healthy...)).To(Succeed())
		h.Expect(reasons(healthy)).To(Equal(map[string]int{"Cut": 1}))
		h.Expect(reasons(hanging)).To(Equal(map[string]int{"TimedOut": 1}))
	})
}

func TestFrozenOvertakesTheBatch(t *testing.T) {
	inBubble(t, parallelism("2"), func(a *api) { a.cutAfter(time.Second) }, func(h *harness) {
		batch := h.taker.Take(h.ctx, requests(20)...)
		h.pass(1500 * time.Millisecond)
		hooked := h.taker.Take(h.ctx, request(100, frozen, ofOwner("other")), request(101, frozen, ofOwner("other")))
		h.Expect(Wait(h.ctx, hooked...)).To(Succeed())
		h.Expect(reasons(batch)["Cut"]).To(Equal(4), "no more of the batch than was in flight before")
		h.Expect(Wait(h.ctx, batch...)).To(Succeed())
		h.Expect(reasons(batch)).To(Equal(map[string]int{"Cut": 20}))
	})
}

func TestTheLimitIsNeverExceeded(t *testing.T) {
	var mu sync.Mutex
	inFlight, peak := 0, 0
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		inFlight += by
		peak = max(peak, inFlight)
	}
	inBubble(t, parallelism("7"), func(a *api) {
		a.onCreate = func(key types.NamespacedName) {
			count(1)
			time.AfterFunc(time.Duration(len(key.Name))*time.Second, func() { count(-1); a.cut(key) })
		}
	}, func(h *harness) {
		snaps := h.taker.Take(h.ctx, requests(60)...)
		snaps = append(snaps, h.taker.Take(h.ctx, requests(20, frozen, ofOwner("other"))...)...)
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(peak).To(Equal(7))
	})
}

func TestCreationsGoOutTogether(t *testing.T) {
	inBubble(t, parallelism("unlimited"), func(a *api) {
		a.setAnswer(func(verb, _, _ string) error {
			if verb == "create" {
				<-time.After(time.Second) // a slow API
			}
			return nil
		})
	}, func(h *harness) {
		h.taker.Take(h.ctx, requests(40, frozen)...)
		h.pass(time.Second)
		h.Expect(h.api.count(snapshotsResource)).To(Equal(maxCreators))
		h.pass(2 * time.Second)
		h.Expect(h.api.count(snapshotsResource)).To(Equal(40))
	})
}

func TestOwnersShareFairly(t *testing.T) {
	inBubble(t, parallelism("1"), func(a *api) { a.cutAfter(time.Second) }, func(h *harness) {
		first := h.taker.Take(h.ctx, requests(10, ofOwner("first"))...)
		second := h.taker.Take(h.ctx, requests(3, ofOwner("second"))...)
		h.Expect(Wait(h.ctx, second...)).To(Succeed())
		h.Expect(reasons(first)["Cut"]).To(BeNumerically("<=", 4))
	})
}
