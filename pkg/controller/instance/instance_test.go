// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leases is an API server for Leases.
type leases struct {
	mu      sync.Mutex
	items   map[string]*coordinationv1.Lease
	version int
	err     error
}

// set changes it while it is used.
func (l *leases) set(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

var resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (l *leases) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	if found := l.items[name]; found != nil {
		return found.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

func (l *leases) store(lease *coordinationv1.Lease) *coordinationv1.Lease {
	l.version++
	stored := lease.DeepCopy()
	stored.ResourceVersion = strings.Repeat("i", l.version)
	if l.items == nil {
		l.items = map[string]*coordinationv1.Lease{}
	}
	l.items[lease.Name] = stored
	return stored
}

func (l *leases) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	lease.UID = types.UID("uid-" + lease.Name)
	return l.store(lease), nil
}

func (l *leases) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	if l.items[lease.Name].ResourceVersion != lease.ResourceVersion {
		return nil, apierrors.NewConflict(resource, lease.Name, errors.New("changed"))
	}
	return l.store(lease), nil
}

func (l *leases) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := new(coordinationv1.LeaseList)
	for _, lease := range l.items {
		list.Items = append(list.Items, *lease)
	}
	return list, l.err
}

func (l *leases) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.items, name)
	return nil
}

func (l *leases) lease(id ID) *Lease {
	log, _ := logrustest.NewNullLogger()
	return &Lease{ID: id, Leases: l, Clock: clock.RealClock{}, Log: log}
}

func look(g *WithT, w *Watch, id ID) State {
	state, err := w.Look(context.Background(), id)
	g.Expect(err).NotTo(HaveOccurred())
	return state
}

func watch(l *leases, self ID) *Watch { return &Watch{Self: self, Leases: l, Clock: clock.RealClock{}} }

func TestIDs(t *testing.T) {
	g := NewWithT(t)
	a, b := NewID("velero-0"), NewID("velero-0")
	g.Expect(a).NotTo(Equal(b))
	g.Expect(a.server()).To(Equal("velero-0"))
	g.Expect(ID("").server()).To(BeEmpty())
	g.Expect(a.IsNamesake(b)).To(BeTrue())
	g.Expect(a.IsNamesake(a)).To(BeFalse())
	g.Expect(a.IsNamesake(NewID("velero-1"))).To(BeFalse())
	g.Expect(ID("").IsNamesake("x")).To(BeFalse(), "neither is an ID")
	g.Expect(leaseName("velero-7d4")).To(Equal("velero-server-velero-7d4"))
	g.Expect(leaseName("My Host!")).To(MatchRegexp("^velero-server-[0-9a-f]{16}$"))
	g.Expect(CheckName("velero-0")).To(Succeed())
	g.Expect(CheckName("")).NotTo(Succeed())
	g.Expect(CheckName("a_b")).NotTo(Succeed())
}

func TestWhoIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := &leases{}
		other := NewID("other")
		w := watch(l, NewID("self"))
		g.Expect(look(g, w, "")).To(Equal(Dead), "a backup of another version")
		g.Expect(look(g, w, other)).To(Equal(Dead), "no Lease")
		g.Expect(look(g, w, w.Self)).To(Equal(Alive))

		theirs := l.lease(other)
		g.Expect(theirs.Take(t.Context())).To(Succeed())
		g.Expect(look(g, w, other)).To(Equal(Unsure))
		watched(t, g, w, other)
		g.Expect(look(g, w, other)).To(Equal(Unsure))
		g.Expect(theirs.hold(t.Context())).To(Succeed())
		g.Expect(look(g, w, other)).To(Equal(Alive), "it was renewed")
		watched(t, g, w, other)
		g.Expect(look(g, w, other)).To(Equal(Alive))
		wait(t, time.Second)
		g.Expect(look(g, w, other)).To(Equal(Dead))
	})
}

// watched lets pass, with a look at each second, one second less than it takes to be dead.
func watched(t *testing.T, g *WithT, w *Watch, id ID) {
	t.Helper()
	for range int(Duration.Seconds()) - 1 {
		wait(t, time.Second)
		g.Expect(look(g, w, id)).NotTo(Equal(Dead))
	}
}

// wait lets time pass in a bubble.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	<-time.After(d)
}

func TestAServerThatWasStartedAgainKnowsAtOnceThatItWasDead(t *testing.T) {
	g := NewWithT(t)
	l := &leases{}
	before, after := NewID("velero-0"), NewID("velero-0")
	g.Expect(l.lease(before).Take(t.Context())).To(Succeed())
	g.Expect(l.lease(after).Take(t.Context())).To(Succeed())
	g.Expect(look(g, watch(l, after), before)).To(Equal(Dead))
	g.Expect(look(g, watch(l, before), after)).To(Equal(Unsure))
}

func TestALeaseIsKeptAndGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := &leases{}
		lease := l.lease(NewID("velero-0"))
		g.Expect(lease.Take(t.Context())).To(Succeed())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); lease.Keep(ctx) }()
		other := watch(l, NewID("other"))
		for range 10 {
			g.Expect(look(g, other, lease.ID)).NotTo(Equal(Dead))
			wait(t, 7*time.Second)
		}
		g.Expect(look(g, other, lease.ID)).To(Equal(Alive))

		l.set(func() { l.err = errors.New("the API server is away") })
		wait(t, 7*time.Second)
		l.set(func() { l.err = nil })
		g.Expect(look(g, other, lease.ID)).To(Equal(Alive))
		wait(t, 7*time.Second)
		g.Expect(look(g, other, lease.ID)).To(Equal(Alive), "one renewal may fail")

		l.set(func() { delete(l.items, "velero-server-velero-0") })
		wait(t, 7*time.Second)
		g.Expect(look(g, other, lease.ID)).To(Equal(Alive), "it was made again")

		cancel()
		<-done
		g.Expect(look(g, other, lease.ID)).To(Equal(Dead), "it ended in order")
	})
}

func TestTwoServersOfTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := &leases{}
		log, lines := logrustest.NewNullLogger()
		first := l.lease(NewID("velero-0"))
		first.Log = log
		g.Expect(first.Take(t.Context())).To(Succeed())
		second := l.lease(NewID("velero-0"))
		g.Expect(second.Take(t.Context())).To(Succeed())
		first.Keep(t.Context()) // it ends by itself
		g.Expect(lines.LastEntry().Level).To(Equal(logrus.ErrorLevel))
		g.Expect(ptr.Deref(l.items["velero-server-velero-0"].Spec.HolderIdentity, "")).To(Equal(string(second.ID)))
	})
}

func TestLooksThatFail(t *testing.T) {
	g := NewWithT(t)
	l := &leases{err: errors.New("the API server is away")}
	state, err := watch(l, "self_1").Look(t.Context(), "other_2")
	g.Expect(err).To(MatchError(ContainSubstring("server other_2 is alive")))
	g.Expect(state).To(Equal(Unsure))
}

// An API server that is away keeps everybody from renewing, and everybody from looking.
func TestAnOutageOfTheAPIServerKillsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := &leases{}
		lease := l.lease(NewID("other"))
		g.Expect(lease.Take(t.Context())).To(Succeed())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); lease.Keep(ctx) }()
		w := watch(l, NewID("self"))
		watched(t, g, w, lease.ID)
		l.set(func() { l.err = errors.New("the API server is away") })
		for range 21 {
			_, err := w.Look(t.Context(), lease.ID)
			g.Expect(err).To(HaveOccurred())
			wait(t, time.Second)
		}
		l.set(func() { l.err = nil })
		g.Expect(look(g, w, lease.ID)).To(Equal(Unsure), "it could not renew")
		watched(t, g, w, lease.ID)
		g.Expect(look(g, w, lease.ID)).To(Equal(Alive))
		cancel()
		<-done
	})
}

func TestLooksThatAreFarApartTellNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := &leases{}
		other := NewID("other")
		g.Expect(l.lease(other).Take(t.Context())).To(Succeed())
		w := watch(l, NewID("self"))
		for range 3 {
			g.Expect(look(g, w, other)).To(Equal(Unsure))
			wait(t, time.Minute)
		}
		g.Expect(look(g, w, other)).To(Equal(Unsure))
		watched(t, g, w, other)
		wait(t, time.Second)
		g.Expect(look(g, w, other)).To(Equal(Dead))
	})
}

// The container is started again, so the Lease is that of the process before, and the API server doesn't answer the first request.
func TestALeaseThatCouldNotBeTakenAtFirstIsTakenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := &leases{}
		g.Expect(l.lease(NewID("velero-0")).Take(t.Context())).To(Succeed())
		l.set(func() { l.err = errors.New("the API server is away") })
		lease := l.lease(NewID("velero-0"))
		g.Expect(lease.Take(t.Context())).NotTo(Succeed())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); lease.Keep(ctx) }()
		wait(t, 7*time.Second)
		l.set(func() { l.err = nil })
		wait(t, 7*time.Second)
		g.Expect(look(g, watch(l, NewID("self")), lease.ID)).To(Equal(Unsure), "it has its Lease")
		cancel()
		<-done
	})
}

func TestOldLeasesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := &leases{}
		g.Expect(l.lease(NewID("old")).Take(t.Context())).To(Succeed())
		wait(t, old)
		g.Expect(l.lease(NewID("new")).Take(t.Context())).To(Succeed())
		g.Expect(watch(l, "self_1").Tidy(t.Context())).To(Succeed())
		g.Expect(l.items).To(And(HaveLen(1), HaveKey("velero-server-new")))
	})
}
