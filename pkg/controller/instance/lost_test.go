// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// cutOff is a server that can't reach the API server while others can.
type cutOff struct {
	*leases
	away bool
}

func (c *cutOff) lease(id ID) *Lease {
	l := c.leases.lease(id)
	l.Leases = c.view()
	return l
}

// view is the API server as the one that is cut off sees it.
func (c *cutOff) view() Leases { return &seenBy{c} }

// A server that was cut off is taken for dead by another one. When it is back it learns that, and doesn't take its Lease again.
func TestAServerThatWasTakenForDeadLearnsIt(t *testing.T) {
	for name, removed := range map[string]bool{"its Lease was taken away": false, "and removed since": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				c := &cutOff{leases: &leases{}}
				lease := c.lease(NewID("velero-0"))
				var lost error
				lease.Lost = func(err error) { lost = err }
				g.Expect(lease.Take(t.Context())).To(Succeed())
				done := make(chan struct{})
				go func() { defer close(done); lease.Keep(t.Context()) }()
				w := watch(c.leases, NewID("other"))
				watched(t, g, w, lease.ID)
				c.set(func() { c.away = true })
				for range 30 {
					wait(t, time.Second)
					look(g, w, lease.ID)
				}
				g.Expect(look(g, w, lease.ID)).To(Equal(Dead))
				c.set(func() {
					if removed {
						delete(c.items, "velero-server-velero-0")
					}
					c.away = false
				})
				g.Expect(done).NotTo(BeClosed())
				<-done
				g.Expect(lost).To(MatchError(errTaken))
				g.Expect(look(g, w, lease.ID)).To(Equal(Dead), "it stays so")
			})
		})
	}
}

// Away for everybody, nobody has taken the Lease: what the server runs goes on.
func TestAServerKeepsItsLeaseAfterALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := &leases{}
		lease := l.lease(NewID("velero-0"))
		lease.Lost = func(err error) { t.Error(err) }
		g.Expect(lease.Take(t.Context())).To(Succeed())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); lease.Keep(ctx) }()
		l.set(func() { l.err = errors.New("the API server is away") })
		wait(t, 10*Duration)
		l.set(func() { l.err = nil })
		wait(t, 2*renewal)
		cancel()
		<-done
	})
}

// It renews its Lease between the look and what follows it.
func TestALeaseThatIsRenewedAtThatMomentIsNotTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := &leases{}
		lease := l.lease(NewID("velero-0"))
		g.Expect(lease.Take(t.Context())).To(Succeed())
		w := watch(l, NewID("other"))
		watched(t, g, w, lease.ID)
		wait(t, time.Second)
		w.Leases = &renewedMeanwhile{Leases: l, renew: func() { g.Expect(lease.hold(t.Context())).To(Succeed()) }}
		g.Expect(look(g, w, lease.ID)).To(Equal(Unsure))
		g.Expect(lease.hold(t.Context())).To(Succeed())
	})
}
