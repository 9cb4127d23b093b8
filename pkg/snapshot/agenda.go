// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"container/heap"
	"time"
)

// agenda holds what is to be done at which time. Entries are never taken back: an action looks for itself whether it is
// still due, so that a deadline that moved or a snapshot that was cut costs nothing.
type agenda struct {
	items agendaItems
	seq   uint64
}

type agendaItem struct {
	at  time.Time
	seq uint64
	do  func()
}

// add notes an action. Actions of the same moment run in the order in which they were added.
func (a *agenda) add(at time.Time, do func()) {
	a.seq++
	heap.Push(&a.items, agendaItem{at: at, seq: a.seq, do: do})
}

// run runs what is due at now, and what becomes due by running it.
func (a *agenda) run(now time.Time) {
	for len(a.items) > 0 && !a.items[0].at.After(now) {
		heap.Pop(&a.items).(agendaItem).do()
	}
}

// next is when the earliest action is due; false when there is none.
func (a *agenda) next() (time.Time, bool) {
	if len(a.items) == 0 {
		return time.Time{}, false
	}
	return a.items[0].at, true
}

type agendaItems []agendaItem

func (s agendaItems) Len() int      { return len(s) }
func (s agendaItems) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *agendaItems) Push(x any)   { *s = append(*s, x.(agendaItem)) }

func (s agendaItems) Less(i, j int) bool {
	if s[i].at.Equal(s[j].at) {
		return s[i].seq < s[j].seq
	}
	return s[i].at.Before(s[j].at)
}

func (s *agendaItems) Pop() any {
	last := len(*s) - 1
	item := (*s)[last]
	(*s)[last] = agendaItem{} // let go of the action's closure
	*s = (*s)[:last]
	return item
}
