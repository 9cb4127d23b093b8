// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

func TestNext(t *testing.T) {
	batch := func(owner types.UID, driver string) candidate {
		return candidate{owner: owner, driver: driver}
	}
	hooked := func(owner types.UID, driver string) candidate {
		return candidate{owner: owner, driver: driver, priority: Frozen}
	}
	running := func(c candidate) candidate { c.inFlight = true; return c }
	limited := func(c candidate, limit int) candidate { c.ownerLimit = limit; return c }

	tests := []struct {
		name      string
		snapshots []candidate
		turns     map[types.UID]uint64
		limits    limits
		want      []int
	}{
		{name: "nothing asked"},
		{name: "no limit: all, in order", snapshots: []candidate{batch("a", "d"), batch("a", "d")}, want: []int{0, 1}},
		{name: "server limit", limits: limits{server: 2},
			snapshots: []candidate{running(batch("a", "d")), batch("a", "d"), batch("a", "d")}, want: []int{1}},
		{name: "a server that is over its limit starts nothing", limits: limits{server: 1},
			snapshots: []candidate{running(batch("a", "d")), running(batch("a", "d")), batch("a", "d")}},
		{name: "frozen first, across owners", limits: limits{server: 2},
			snapshots: []candidate{batch("a", "d"), batch("a", "d"), hooked("b", "d"), hooked("c", "d")}, want: []int{2, 3}},
		{name: "frozen first though its owner has more in flight", limits: limits{server: 4},
			snapshots: []candidate{running(hooked("b", "d")), running(hooked("b", "d")), batch("a", "d"), hooked("b", "d")}, want: []int{3, 2}},
		{name: "first in, first out inside an owner", limits: limits{server: 2},
			snapshots: []candidate{batch("a", "d"), batch("a", "e"), batch("a", "d")}, want: []int{0, 1}},
		{name: "owners take turns", limits: limits{server: 4},
			snapshots: []candidate{batch("a", "d"), batch("a", "d"), batch("a", "d"), batch("b", "d"), batch("b", "d")}, want: []int{0, 3, 1, 4}},
		{name: "the owner with less in flight first", limits: limits{server: 3},
			snapshots: []candidate{running(batch("a", "d")), running(batch("a", "d")), batch("a", "d"), batch("b", "d")}, want: []int{3}},
		{name: "with one slot, the owner that was served longest ago", limits: limits{server: 1}, turns: map[types.UID]uint64{"a": 7, "b": 3},
			snapshots: []candidate{batch("a", "d"), batch("b", "d")}, want: []int{1}},
		{name: "an owner never served before all", limits: limits{server: 1}, turns: map[types.UID]uint64{"a": 7, "b": 3},
			snapshots: []candidate{batch("a", "d"), batch("b", "d"), batch("c", "d")}, want: []int{2}},
		{name: "an owner's own limit", limits: limits{server: 10},
			snapshots: []candidate{limited(batch("a", "d"), 1), limited(batch("a", "d"), 1), batch("b", "d")}, want: []int{0, 2}},
		{name: "an owner's own limit can't raise the server's", limits: limits{server: 1},
			snapshots: []candidate{limited(batch("a", "d"), 5), limited(batch("a", "d"), 5)}, want: []int{0}},
		{name: "a limit for owners without one", limits: limits{owner: 1},
			snapshots: []candidate{batch("a", "d"), batch("a", "d"), limited(batch("b", "d"), 2), limited(batch("b", "d"), 2)}, want: []int{0, 2, 3}},
		{name: "a full driver lets others pass", limits: limits{driver: map[string]driverLimit{"d": {inFlight: 1}}},
			snapshots: []candidate{running(batch("a", "d")), batch("a", "d"), batch("a", "e"), hooked("a", "d"), batch("a", "e")}, want: []int{2, 4}},
		{name: "frozen gets the driver's last place", limits: limits{driver: map[string]driverLimit{"d": {inFlight: 1}}},
			snapshots: []candidate{batch("a", "d"), hooked("b", "d")}, want: []int{1}},
		{name: "a hanging driver doesn't take the places of another", limits: limits{server: 4},
			snapshots: []candidate{running(batch("a", "d")), batch("a", "d"), batch("a", "d"), batch("a", "d"), batch("a", "e"), batch("a", "e")},
			want:      []int{4, 1, 5}},
		{name: "a driver's window holds back batches", limits: limits{driver: map[string]driverLimit{"d": {batch: 1}}},
			snapshots: []candidate{running(batch("a", "d")), batch("a", "d"), batch("a", "e")}, want: []int{2}},
		{name: "a driver's window lets frozen pass", limits: limits{driver: map[string]driverLimit{"d": {batch: 1}}},
			snapshots: []candidate{running(batch("a", "d")), batch("a", "d"), hooked("a", "d"), hooked("b", "d")}, want: []int{3, 2}},
		{name: "the window counts frozen ones", limits: limits{driver: map[string]driverLimit{"d": {batch: 2}}},
			snapshots: []candidate{running(hooked("a", "d")), batch("a", "d"), batch("a", "d")}, want: []int{1}},
		{name: "one start of a batch at a time", limits: limits{driver: map[string]driverLimit{"d": {starts: 1}}},
			snapshots: []candidate{running(batch("a", "d")), batch("a", "d"), batch("a", "d"), batch("a", "e"), hooked("b", "d")}, want: []int{4, 3, 1}},
		{name: "no start now, but for frozen", limits: limits{driver: map[string]driverLimit{"d": {starts: -1}}},
			snapshots: []candidate{batch("a", "d"), hooked("a", "d"), batch("a", "e")}, want: []int{1, 2}},
		{name: "zero as a driver's limit is none", limits: limits{driver: map[string]driverLimit{"d": {}}},
			snapshots: []candidate{batch("a", "d"), batch("a", "d")}, want: []int{0, 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			NewWithT(t).Expect(next(test.snapshots, test.turns, test.limits)).To(Equal(test.want))
		})
	}
}

// TestNextHoldsItsPromises tries random lists: limits are kept, nothing that could start is left, frozen comes first.
func TestNextHoldsItsPromises(t *testing.T) {
	g := NewWithT(t)
	random := rand.New(rand.NewPCG(1, 2))
	owners, drivers := []types.UID{"a", "b", "c"}, []string{"d", "e"}
	for range 2000 {
		list := make([]candidate, random.IntN(30))
		lim := limits{server: random.IntN(10), driver: map[string]driverLimit{
			"d": {inFlight: random.IntN(5), batch: random.IntN(5)}, "e": {starts: random.IntN(4) - 1},
		}}
		ownerLimits := map[types.UID]int{"a": random.IntN(4)}
		for i := range list {
			owner := owners[random.IntN(3)]
			list[i] = candidate{
				owner: owner, ownerLimit: ownerLimits[owner], driver: drivers[random.IntN(2)],
				priority: Priority(random.IntN(2)), inFlight: random.IntN(4) == 0,
			}
		}
		before := newPlan(list, nil, lim)
		got := next(list, nil, lim)
		for i := 1; i < len(got); i++ {
			g.Expect(list[got[i]].priority).To(BeNumerically("<=", list[got[i-1]].priority))
		}
		after := slices.Clone(list)
		for _, i := range got {
			g.Expect(after[i].inFlight).To(BeFalse(), "started twice")
			after[i].inFlight = true
		}
		counted := newPlan(after, nil, lim)
		within := func(now, was, limit int) { g.Expect(limit == 0 || now <= max(limit, was)).To(BeTrue()) }
		within(counted.total, before.total, lim.server)
		within(counted.byDriver["d"], before.byDriver["d"], lim.driver["d"].inFlight)
		if lim.driver["e"].starts != 0 {
			batches := 0
			for _, i := range got {
				if list[i].driver == "e" && list[i].priority == Batch {
					batches++
				}
			}
			g.Expect(batches).To(BeNumerically("<=", max(0, lim.driver["e"].starts)))
		}
		within(counted.byOwner["a"], before.byOwner["a"], ownerLimits["a"])
		lim.driver["e"] = driverLimit{starts: -1} // its starts are used up
		if before.lim.driver["e"].starts == 0 {
			lim.driver["e"] = driverLimit{}
		}
		g.Expect(next(after, nil, lim)).To(BeEmpty(), "what could start has started")
	}
}

func TestNextLeavesItsInputAlone(t *testing.T) {
	g := NewWithT(t)
	list := []candidate{{owner: "a"}, {owner: "b"}}
	turns := map[types.UID]uint64{"a": 1}
	next(list, turns, limits{})
	g.Expect(list).To(Equal([]candidate{{owner: "a"}, {owner: "b"}}))
	g.Expect(turns).To(Equal(map[types.UID]uint64{"a": 1}))
}
