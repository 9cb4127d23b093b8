// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// troubleGrace is how long a permission or CRD that was there before must be missing before it is believed: an API
// server that has just restarted, or a role that is being replaced, refuses for some seconds.
const troubleGrace = 10 * time.Second

// source lists and watches one resource for an informer. It remembers how the API answers, so that callers get a clear
// error instead of a silent wait, and turns into a lister where watching is not permitted.
type source struct {
	resource string // plural name, such as volumesnapshots
	listAll  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watchAll func(context.Context, metav1.ListOptions) (watch.Interface, error)
	interval time.Duration
	clock    clock.WithTicker
	log      logrus.FieldLogger
	// changed is called after every change of what state answers.
	changed func()

	mu sync.Mutex
	// tried: a list was answered. listed: one was answered with objects.
	tried, listed bool
	// refusedSince is when the API began to refuse listing; zero when it doesn't.
	refusedSince time.Time
	trouble      error
	// last is what the informer was told last, until a watch takes over; it is what polling starts from.
	last map[string]runtime.Object
}

// state says whether the API has answered at all, and what is in the way for good.
func (s *source) state() (tried bool, trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tried, s.trouble
}

func (s *source) listWatch() *cache.ListWatch {
	return &cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}
}

func (s *source) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := s.listAll(ctx, options)
	s.note(err)
	if err != nil {
		return nil, err
	}
	objects, err := byKey(list)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", s.resource, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if options.Continue == "" || s.last == nil {
		s.last = objects
	} else {
		for key, object := range objects {
			s.last[key] = object
		}
	}
	return list, nil
}

// told notes what the informer knows by a poller.
func (s *source) told(objects map[string]runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = objects
}

func (s *source) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := s.watchAll(ctx, options)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case isWatchRefusal(err) && s.last == nil:
		// The permission was withdrawn from a running watch. The reflector must list first: what was deleted meanwhile
		// would be missed.
		return nil, apierrors.NewResourceExpired("watching is not permitted any more")
	case isWatchRefusal(err):
		s.log.WithError(err).Warnf("May not watch %s: listing them every %s instead", s.resource, s.interval)
		return newPoller(ctx, s, options, s.last), nil
	case err != nil:
		return nil, err
	}
	s.last = nil
	return w, nil
}

// note takes in the answer to a list.
func (s *source) note(err error) {
	s.mu.Lock()
	before, triedBefore := s.trouble, s.tried
	s.tried = true
	switch {
	case err == nil:
		s.listed, s.refusedSince, s.trouble = true, time.Time{}, nil
	case isRefusal(err):
		if s.refusedSince.IsZero() {
			s.refusedSince = s.clock.Now()
		}
		if !s.listed || s.clock.Since(s.refusedSince) >= troubleGrace {
			s.trouble = s.explain(err)
		}
	}
	after := s.trouble
	s.mu.Unlock()

	if (before == nil) == (after == nil) && triedBefore {
		return
	}
	if before == nil && after != nil {
		s.log.WithError(after).Error("CSI snapshots cannot be taken")
	}
	if before != nil && after == nil {
		s.log.Infof("Listing %s works again", s.resource)
	}
	s.changed()
}

func isWatchRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}

// isRefusal is true for answers that only an administrator can change.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}

// explain words a refusal with the way out of it.
func (s *source) explain(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("the server may not list %s.%s in the whole cluster: grant its service account list and watch on them: %w",
			s.resource, snapshotGroup, err)
	}
	return missingCRD(s.resource, err)
}

func missingCRD(resource string, err error) error {
	return fmt.Errorf("the CRD %s.%s (version v1) is missing: install the snapshot CRDs and the controllers of "+
		"external-snapshotter: %w", resource, snapshotGroup, err)
}

// byKey gives the objects of a list by their namespace/name.
func byKey(list runtime.Object) (map[string]runtime.Object, error) {
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	objects := make(map[string]runtime.Object, len(items))
	for _, item := range items {
		key, err := cache.MetaNamespaceKeyFunc(item)
		if err != nil {
			return nil, err
		}
		objects[key] = item
	}
	return objects, nil
}
