// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Snapshot is one that exists at the storage.
type Snapshot struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Volume string `json:"volume"`
	// Cut is its point in time.
	Cut time.Time `json:"cut"`
	// Ready is when it becomes, or became, ready to use.
	Ready time.Time `json:"ready"`
}

// cut is a snapshot in the making.
type cut struct {
	name, volume string
	// done is closed when the snapshot exists.
	done chan struct{}
	rule *rule
	// timer runs once the cut has a place; before that the cut waits in its rule's queue.
	timer *time.Timer
}

// rule is a Behaviour with what the storage has to remember of it.
type rule struct {
	Behaviour
	running int
	waiting []*cut
	limiter *rate.Limiter
	failed  map[string]int
	called  map[string]time.Time // first call, by volume; for HangFor
}

// storage is the lab's array. It locks itself. No goroutine belongs to it: cuts under way are timers.
type storage struct {
	seed  uint64
	onCut func(Snapshot)

	mu        sync.Mutex
	rules     []*rule
	fallback  *rule
	changed   chan struct{}
	cutting   map[string]*cut
	snapshots map[string]*Snapshot // by name
	random    map[string]*rand.Rand
	cuts      int
}

func newStorage(seed uint64, behaviours []Behaviour, onCut func(Snapshot)) *storage {
	s := &storage{
		seed: seed, onCut: onCut,
		changed:   make(chan struct{}),
		cutting:   map[string]*cut{},
		snapshots: map[string]*Snapshot{},
		random:    map[string]*rand.Rand{},
	}
	s.adopt(behaviours)
	return s
}

// adopt makes rules of behaviours.
func (s *storage) adopt(behaviours []Behaviour) {
	s.fallback = &rule{Behaviour: Behaviour{Match: "*"}}
	s.rules = nil
	for _, b := range behaviours {
		r := &rule{Behaviour: b, failed: map[string]int{}, called: map[string]time.Time{}}
		if b.Throttle != nil {
			burst := int(math.Min(math.Max(1, b.Throttle.PerSecond), math.MaxInt32))
			r.limiter = rate.NewLimiter(rate.Limit(b.Throttle.PerSecond), burst)
		}
		s.rules = append(s.rules, r)
	}
}

// setBehaviours replaces the behaviours. Cuts that have a place go on with the time they were given, and count for the
// new capacities; cuts that wait for one are looked at afresh, and so is every call that waits for anything.
func (s *storage) setBehaviours(behaviours []Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var waiting []*cut
	for _, r := range s.all() {
		waiting = append(waiting, r.waiting...)
	}
	s.adopt(behaviours)
	for _, c := range s.cutting {
		c.rule = s.rule(c.volume)
		if c.timer != nil {
			c.rule.running++
		}
	}
	for _, c := range waiting {
		s.place(c)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// rule returns the first one that matches a volume.
func (s *storage) rule(volume string) *rule {
	for _, r := range s.rules {
		if r.matches(volume) {
			return r
		}
	}
	return s.fallback
}

func (s *storage) all() []*rule {
	return slices.Concat(s.rules, []*rule{s.fallback})
}

// begin starts to cut a snapshot.
func (s *storage) begin(name, volume string, r *rule) *cut {
	c := &cut{name: name, volume: volume, done: make(chan struct{}), rule: r}
	s.cutting[name] = c
	s.place(c)
	return c
}

// place lets a cut run if its rule has capacity, and queues it otherwise.
func (s *storage) place(c *cut) {
	r := c.rule
	if !r.hasPlace() {
		r.waiting = append(r.waiting, c)
		return
	}
	r.running++
	takes := r.Cut.Duration
	if r.Jitter.Duration > 0 {
		takes += time.Duration(s.rand(c.volume).Int64N(int64(r.Jitter.Duration) + 1))
	}
	c.timer = time.AfterFunc(takes, func() { s.finish(c) })
}

// finish makes the snapshot exist and gives the cut's place to the next in the queue.
func (s *storage) finish(c *cut) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cutting[c.name] != c {
		return // dropped by forget
	}
	now := time.Now()
	s.cuts++
	snapshot := Snapshot{
		ID:   fmt.Sprintf("snap-%d-%s", s.cuts, c.name),
		Name: c.name, Volume: c.volume,
		Cut: now, Ready: now.Add(c.rule.Ready.Duration),
	}
	s.snapshots[c.name] = &snapshot
	delete(s.cutting, c.name)
	r := c.rule
	r.running--
	for len(r.waiting) > 0 && r.hasPlace() {
		next := r.waiting[0]
		r.waiting = r.waiting[1:]
		s.place(next)
	}
	// The log has the cut before the answer that tells of it.
	s.onCut(snapshot)
	close(c.done)
}

// rand returns the volume's own generator, so that its jitter doesn't depend on the order of other volumes' calls.
func (s *storage) rand(volume string) *rand.Rand {
	r, ok := s.random[volume]
	if !ok {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(volume))
		r = rand.New(rand.NewPCG(s.seed, hash.Sum64()))
		s.random[volume] = r
	}
	return r
}

// forget drops the cuts under way, so that no timer outlives the server.
func (s *storage) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.cutting {
		if c.timer != nil {
			c.timer.Stop()
		}
		delete(s.cutting, name)
	}
	for _, r := range s.all() {
		r.running, r.waiting = 0, nil
	}
}

// remove deletes a snapshot by ID. One that doesn't exist is fine.
func (s *storage) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, snapshot := range s.snapshots {
		if snapshot.ID == id {
			delete(s.snapshots, name)
			return
		}
	}
}

// list returns the snapshots in the order in which they were cut.
func (s *storage) list() []Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Snapshot, 0, len(s.snapshots))
	for _, snapshot := range s.snapshots {
		all = append(all, *snapshot)
	}
	slices.SortFunc(all, func(a, b Snapshot) int {
		if d := a.Cut.Compare(b.Cut); d != 0 {
			return d
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

func (s *storage) cutCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cuts
}

func (r *rule) hasPlace() bool {
	return r.Capacity == 0 || r.running < r.Capacity
}

// hangs reports whether a call for the volume gets no answer now, and until when; a zero time is without end.
func (r *rule) hangs(volume string, now time.Time) (until time.Time, hangs bool) {
	if r.Hang || r.HangFor.Duration == 0 {
		return time.Time{}, r.Hang
	}
	first, ok := r.called[volume]
	if !ok {
		first = now
		r.called[volume] = now
	}
	until = first.Add(r.HangFor.Duration)
	return until, now.Before(until)
}

// failure returns the error that a behaviour owes a volume now, and counts it.
func (r *rule) failure(volume string) error {
	if r.Fail == nil {
		return nil
	}
	if r.Fail.Times > 0 {
		if r.failed[volume] >= r.Fail.Times {
			return nil
		}
		r.failed[volume]++
	}
	return r.err(r.Fail.Code, r.Fail.Message)
}

// throttled returns the refusal of a request that comes too fast.
func (r *rule) throttled() error {
	if r.limiter == nil || r.limiter.AllowN(time.Now(), 1) {
		return nil
	}
	return refusal{r.err(r.Throttle.code(), r.Throttle.message())}
}
