// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"sync"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// scope is what an action applies to. Velero compiles the patterns of the action's lists anew for each item; here the answer for
// a resource type in a namespace is remembered, and only labels are looked at for each item. It is safe for concurrent use.
type scope struct {
	resolved resolvedPlugin
	selector labels.Selector

	mu    sync.Mutex
	known map[place]bool
}

// place is a resource type in a namespace.
type place struct {
	schema.GroupResource
	namespace string
}

func newScope(resolved resolvedPlugin, selector labels.Selector) *scope {
	return &scope{resolved: resolved, selector: selector, known: map[place]bool{}}
}

// Name of the action.
func (s *scope) Name() string { return s.resolved.Name() }

// ShouldUse says whether the action applies to an item.
func (s *scope) ShouldUse(gr schema.GroupResource, namespace string, metadata metav1.Object, log logrus.FieldLogger) bool {
	return s.covers(place{gr, namespace}, log) && s.selector.Matches(labels.Set(metadata.GetLabels()))
}

func (s *scope) covers(p place, log logrus.FieldLogger) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	covered, known := s.known[p]
	if !known {
		covered = s.resolved.ShouldUse(p.GroupResource, p.namespace, nil, log) // without metadata labels don't count
		s.known[p] = covered
	}
	return covered
}
