// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var throttleJudge = JudgeFunc(func(o Observation) Judgement {
	if strings.Contains(o.Message, "rate exceeded") {
		return Judgement{Verdict: Throttled}
	}
	return Judgement{}
})

// storage stands for a sidecar and the driver behind it: it asks a while after a VolumeSnapshot was created, by a number of
// workers, and asks again, later each time, for what was refused.
type storage struct {
	*api
	delay, cuts time.Duration
	workers     chan struct{}
	limiter     *rate.Limiter
	concurrent  int

	mu             sync.Mutex
	busy           int
	calls, refused int
}

func (s *storage) asked(key types.NamespacedName) { s.askAfter(key, s.delay, time.Second) }

func (s *storage) askAfter(key types.NamespacedName, delay, backoff time.Duration) {
	time.AfterFunc(delay, func() {
		s.workers <- struct{}{}
		defer func() { <-s.workers }()
		if s.refuses() {
			s.report(key, ptr.To(fmt.Sprintf("rate exceeded, after %s", backoff)))
			s.askAfter(key, backoff, 2*backoff)
			return
		}
		<-time.After(s.cuts)
		s.mu.Lock()
		s.busy--
		s.mu.Unlock()
		time.AfterFunc(s.delay, func() { s.cut(key) })
	})
}

func (s *storage) refuses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.limiter != nil && !s.limiter.Allow() || s.concurrent > 0 && s.busy >= s.concurrent {
		s.refused++
		return true
	}
	s.busy++
	return false
}

func TestAThrottlingDriverIsAskedAsMuchAsItTakes(t *testing.T) {
	tests := []struct {
		name       string
		cuts       time.Duration
		perSecond  float64
		concurrent int
		volumes    int
		ideal      time.Duration
		refused    float64
	}{
		{name: "five a second, cut at once", cuts: 50 * time.Millisecond, perSecond: 5, volumes: 100, ideal: 20 * time.Second, refused: 0.10},
		{name: "five a second, cut in a second", cuts: time.Second, perSecond: 5, volumes: 100, ideal: 20 * time.Second, refused: 0.10},
		{name: "five a second, cut in two", cuts: 2 * time.Second, perSecond: 5, volumes: 100, ideal: 20 * time.Second, refused: 0.10},
		{name: "five a second, cut in five", cuts: 5 * time.Second, perSecond: 5, volumes: 100, ideal: 25 * time.Second, refused: 0.10},
		// Ten are asked for before the first answer is there, and asked for again by the sidecar.
		{name: "two a second", cuts: time.Second, perSecond: 2, volumes: 100, ideal: 50 * time.Second, refused: 0.25},
		{name: "five a second, for long", cuts: time.Second, perSecond: 5, volumes: 600, ideal: 120 * time.Second, refused: 0.10},
		{name: "twenty a second", cuts: time.Second, perSecond: 20, volumes: 400, ideal: 20 * time.Second, refused: 0.10},
		// Each place is empty for the delay before and after a cut.
		{name: "five at once", cuts: 2 * time.Second, concurrent: 5, volumes: 100, ideal: 46 * time.Second, refused: 0.25},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &storage{delay: 150 * time.Millisecond, cuts: test.cuts, workers: make(chan struct{}, 100), concurrent: test.concurrent}
			opts := TakerOptions{Judge: throttleJudge}
			inBubble(t, opts, func(a *api) {
				if test.perSecond > 0 {
					s.limiter = rate.NewLimiter(rate.Limit(test.perSecond), int(test.perSecond))
				}
				s.api = a
				a.onCreate = s.asked
			}, func(h *harness) {
				begin := time.Now()
				snaps := h.taker.Take(h.ctx, requests(test.volumes)...)
				h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
				took := time.Since(begin)
				h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": test.volumes}))
				t.Logf("%s, ideal %s; %d of %d calls refused", took, test.ideal, s.refused, s.calls)
				h.Expect(took.Seconds()).To(BeNumerically("<=", 1.3*test.ideal.Seconds()))
				h.Expect(float64(s.refused) / float64(s.calls)).To(BeNumerically("<=", test.refused))
			})
		})
	}
}

func TestADriverThatTakesEverythingIsHardlyHeldBack(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) { a.cutAfter(2 * time.Second) }, func(h *harness) {
		begin := time.Now()
		h.Expect(Wait(h.ctx, h.taker.Take(h.ctx, requests(50)...)...)).To(Succeed())
		h.Expect(time.Since(begin)).To(BeNumerically("<=", 2*time.Second+widenAfter))
		begin = time.Now()
		h.Expect(Wait(h.ctx, h.taker.Take(h.ctx, requests(50, ofOwner("next"))...)...)).To(Succeed())
		h.Expect(time.Since(begin)).To(Equal(2*time.Second), "it is known now")
	})
}

func TestWhatWasLearnedOfADriverIsForgotten(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) { a.cutAfter(2 * time.Second) }, func(h *harness) {
		h.Expect(Wait(h.ctx, h.taker.Take(h.ctx, requests(50)...)...)).To(Succeed())
		h.pass(2 * forgetAfter)
		snaps := h.taker.Take(h.ctx, requests(50, ofOwner("next"))...)
		h.pass(time.Second)
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cutting": firstWindow, "Queued": 50 - firstWindow}))
	})
}

func TestFrozenIsNotHeldBackByTheWindow(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) { a.cutAfter(2 * time.Second) }, func(h *harness) {
		begin := time.Now()
		h.Expect(Wait(h.ctx, h.taker.Take(h.ctx, requests(40, frozen)...)...)).To(Succeed())
		h.Expect(time.Since(begin)).To(Equal(2 * time.Second))
	})
}

func TestThrottlingIsForgotten(t *testing.T) {
	g := NewWithT(t)
	var p pace
	now := time.Now()
	for i := range 10 {
		p.started(now, i+1)
	}
	now = now.Add(300 * time.Millisecond)
	for i := range 5 {
		g.Expect(p.refuse(now, 10, false)).To(Equal(i == 0), "an episode is told once")
	}
	g.Expect(p.current()).To(Equal(5), "what was accepted")
	g.Expect(p.rate).To(BeNumerically("==", 5))
	g.Expect(p.allow(now, 10).blocked).To(BeTrue(), "the refused ones are asked for again first")
	later := p.allow(now.Add(30*time.Second), 0)
	g.Expect(later.blocked).To(BeFalse())
	g.Expect(later.inFlight).To(BeNumerically(">", 5))
	g.Expect(p.rate).To(BeNumerically("~", 5*1.6, 0.5))
	now = now.Add(30 * time.Second)
	g.Expect(p.refuse(now, 8, false)).To(BeTrue())
	g.Expect(p.rate).To(BeNumerically("~", 5*1.6/2, 0.5), "nothing was cut meanwhile")
	g.Expect(p.allow(now.Add(forgetAfter), 0)).To(Equal(allowance{inFlight: firstWindow}))
}

// TestFrozenIsNotHeldBackByWhatWasLearned: another backup's batch is refused again and again. What the driver refuses of a frozen
// application the sidecar asks for again, within seconds; a place in our queue would be the whole freeze.
func TestFrozenIsNotHeldBackByWhatWasLearned(t *testing.T) {
	inBubble(t, TakerOptions{Judge: throttleJudge}, func(a *api) {
		a.onCreate = func(key types.NamespacedName) {
			for i := range 3 {
				if key == keyOf(request(i, ofOwner("db"))) {
					time.AfterFunc(time.Second, func() { a.cut(key) })
					return
				}
			}
			for i := range 60 {
				time.AfterFunc(time.Duration(i+1)*2*time.Second, func() { a.report(key, ptr.To(fmt.Sprintf("rate exceeded, try %d", i))) })
			}
		}
	}, func(h *harness) {
		h.taker.Take(h.ctx, requests(45)...)
		h.pass(40 * time.Second)
		begin := time.Now()
		frozen := requests(3, ofOwner("db"), frozen)
		release := h.taker.Reserve(h.ctx, frozen...)
		snaps := h.taker.Take(h.ctx, frozen...)
		release()
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(time.Since(begin)).To(Equal(time.Second))
	})
}

func TestWaitingForThePaceKeepsOneEntryInTheAgenda(t *testing.T) {
	inBubble(t, TakerOptions{Parallelism: Parallelism{kind: parallelismUnlimited}, Judge: throttleJudge}, nil, func(h *harness) {
		h.taker.Take(h.ctx, requests(40, ofDriver("slow"))...)
		h.pass(1500 * time.Millisecond)
		h.api.report(keyOf(request(0)), ptr.To("rate exceeded"))
		h.pass(3 * time.Second)
		size := func() int {
			got := make(chan int, 1)
			h.taker.inbox.put(func(l *loop) { got <- len(l.agenda.items) })
			return <-got
		}
		before := size()
		for i := range 200 {
			r := request(1000+i, ofDriver("busy"))
			h.taker.Take(h.ctx, r)
			h.pass(7 * time.Millisecond)
			h.api.cut(keyOf(r))
			synctest.Wait()
		}
		h.pass(time.Second)
		// Deadlines of what is cut stay in the agenda until they pass: two for each.
		h.Expect(size()-before).To(BeNumerically("<=", 3*200), "and not one for each event on top, for ever")
		h.pass(2 * testTimeout)
		h.Expect(size()).To(BeNumerically("<=", 5))
	})
}

func TestTheLimitIsShownWhenNothingIsGoingOn(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) { a.cutAfter(2 * time.Second) }, func(h *harness) {
		h.Expect(Wait(h.ctx, h.taker.Take(h.ctx, requests(50)...)...)).To(Succeed())
		h.Expect(series(h.WithT, h.taker.Metrics())).To(HaveKeyWithValue("velero_csi_snapshots_limit/driver", 50.0))
		h.pass(2*forgetAfter + time.Minute)
		h.Expect(series(h.WithT, h.taker.Metrics())).To(HaveKeyWithValue("velero_csi_snapshots_limit/driver", float64(firstWindow)))
	})
}
