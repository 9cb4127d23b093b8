// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// poller stands in for a watch where watching is not permitted: one LIST of everything per interval, whose differences
// to the one before it hands out as watch events. It ends when a watch would have (the reflector's timeout), upon which
// the reflector asks for a watch again, so that a permission granted meanwhile is found.
type poller struct {
	source *source
	known  map[string]runtime.Object
	events chan watch.Event
	cancel context.CancelFunc
	done   chan struct{}
}

// newPoller starts from the objects that the reflector has just been given.
func newPoller(ctx context.Context, s *source, options metav1.ListOptions, known map[string]runtime.Object) *poller {
	ctx, cancel := context.WithCancel(ctx)
	p := &poller{source: s, known: known, events: make(chan watch.Event), cancel: cancel, done: make(chan struct{})}
	var end <-chan time.Time
	if options.TimeoutSeconds != nil {
		end = s.clock.After(time.Duration(*options.TimeoutSeconds) * time.Second)
	}
	go p.run(ctx, end)
	return p
}

// ResultChan implements watch.Interface.
func (p *poller) ResultChan() <-chan watch.Event { return p.events }

// Stop implements watch.Interface and waits for the poller's goroutine.
func (p *poller) Stop() {
	p.cancel()
	<-p.done
}

func (p *poller) run(ctx context.Context, end <-chan time.Time) {
	defer close(p.done)
	defer close(p.events)
	ticker := p.source.clock.NewTicker(p.source.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end:
			return
		case <-ticker.C():
			p.poll(ctx)
		}
	}
}

func (p *poller) poll(ctx context.Context) {
	list, err := p.source.listAll(ctx, metav1.ListOptions{})
	if ctx.Err() != nil {
		return
	}
	p.source.note(err)
	if err != nil {
		p.source.log.WithError(err).Debugf("Listing %s failed, trying again in %s", p.source.resource, p.source.interval)
		return
	}
	current, err := byKey(list)
	if err != nil {
		p.source.log.WithError(err).Warnf("Reading the list of %s failed", p.source.resource)
		return
	}
	previous := p.known
	for key, object := range current {
		old := previous[key]
		switch {
		case old == nil:
			p.send(ctx, watch.Added, object)
		case version(old) == version(object):
		case identity(old) != identity(object): // deleted and made anew between two lists
			p.send(ctx, watch.Deleted, old)
			p.send(ctx, watch.Added, object)
		default:
			p.send(ctx, watch.Modified, object)
		}
	}
	for key, old := range previous {
		if current[key] == nil {
			p.send(ctx, watch.Deleted, old)
		}
	}
	if ctx.Err() == nil { // else some of it was not told, and is told again by the next poller
		p.known = current
		p.source.told(current)
	}
}

func (p *poller) send(ctx context.Context, kind watch.EventType, object runtime.Object) {
	select {
	case p.events <- watch.Event{Type: kind, Object: object}:
	case <-ctx.Done():
	}
}

func version(object runtime.Object) string {
	m, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return m.GetResourceVersion()
}

func identity(object runtime.Object) types.UID {
	m, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return m.GetUID()
}
