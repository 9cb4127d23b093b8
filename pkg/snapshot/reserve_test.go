// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// reserve asks for room in the background and returns what is closed when there is.
func (h *harness) reserve(requests ...Request) (granted <-chan func()) {
	done := make(chan func(), 1)
	go func() { done <- h.taker.Reserve(h.ctx, requests...) }()
	synctest.Wait()
	return done
}

func TestRoomIsMadeBeforeAnythingIsFrozen(t *testing.T) {
	inBubble(t, parallelism("4"), func(a *api) { a.cutAfter(10 * time.Second) }, func(h *harness) {
		batch := h.taker.Take(h.ctx, requests(20)...)
		h.pass(5 * time.Second)
		mine := requests(3, ofOwner("db"), frozen)
		granted := h.reserve(mine...)
		h.Expect(granted).NotTo(Receive(), "all four places are taken")
		h.pass(5 * time.Second)
		var release func()
		h.Expect(granted).To(Receive(&release))
		h.Expect(reasons(batch)["Cutting"]).To(Equal(1), "the batch has what the reservation leaves")

		h.pass(3 * time.Second) // the pre hooks
		begin := time.Now()
		snaps := h.taker.Take(h.ctx, mine...)
		release()
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(time.Since(begin)).To(Equal(10 * time.Second))
		h.Expect(Wait(h.ctx, batch...)).To(Succeed(), "the batch goes on")
	})
}

func TestMoreRoomThanThereIs(t *testing.T) {
	inBubble(t, parallelism("2"), func(a *api) { a.cutAfter(10 * time.Second) }, func(h *harness) {
		batch := h.taker.Take(h.ctx, requests(2)...)
		synctest.Wait()
		granted := h.reserve(requests(5, ofOwner("db"), frozen)...)
		h.pass(9 * time.Second)
		h.Expect(granted).NotTo(Receive())
		h.pass(2 * time.Second)
		var release func()
		h.Expect(granted).To(Receive(&release), "when nothing else is in flight")
		release()
		h.Expect(Wait(h.ctx, batch...)).To(Succeed())
	})
}

func TestAReservationThatIsGivenUpHoldsNobodyUp(t *testing.T) {
	inBubble(t, parallelism("2"), func(a *api) { a.cutAfter(10 * time.Second) }, func(h *harness) {
		granted := h.reserve(requests(2, ofOwner("db"), frozen)...)
		var release func()
		h.Expect(granted).To(Receive(&release), "an idle server has room")
		batch := h.taker.Take(h.ctx, requests(2)...)
		h.pass(time.Second)
		h.Expect(reasons(batch)).To(Equal(map[string]int{"Queued": 2}))
		release()
		h.Expect(Wait(h.ctx, batch...)).To(Succeed())
		h.Expect(h.taker.Reserve(h.ctx)).NotTo(BeNil(), "no room for nothing")
	})
}

func TestNobodyWaitsForRoomInAServerThatStops(t *testing.T) {
	inBubble(t, parallelism("1"), nil, func(h *harness) {
		h.taker.Take(h.ctx, request(1))
		h.pass(time.Second)
		granted := h.reserve(request(2, frozen))
		h.Expect(granted).NotTo(Receive())
		h.stop()
		h.pass(time.Second)
		h.Expect(granted).To(Receive())
	})
}
