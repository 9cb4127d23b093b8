// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"net/http"
	"sync"
)

// watches keeps the open watches and those that have expired. It locks itself.
type watches struct {
	mu   sync.Mutex
	next int
	open map[int]openWatch
	// expired are the paths whose next watch from a resource version is refused.
	expired map[string]bool
}

type openWatch struct {
	path string
	cut  context.CancelFunc
}

func newWatches() *watches {
	return &watches{open: map[int]openWatch{}, expired: map[string]bool{}}
}

// add remembers a watch until the function that it returns is called.
func (w *watches) add(path string, cut context.CancelFunc) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	w.next++
	w.open[id] = openWatch{path: path, cut: cut}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, id)
	}
}

// cut ends the open watches and returns how many there were. With expire, none of them can be taken up again where it ended.
func (w *watches) cut(expire bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, watch := range w.open {
		if expire {
			w.expired[watch.path] = true
		}
		watch.cut()
	}
	return len(w.open)
}

// refuses says, once for each path, whether a watch is to be told that its resource version is too old.
func (w *watches) refuses(r *http.Request) bool {
	query := r.URL.Query()
	if version := query.Get("resourceVersion"); version == "" || version == "0" || query.Get("sendInitialEvents") == "true" {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	refuses := w.expired[r.URL.Path]
	delete(w.expired, r.URL.Path)
	return refuses
}
