// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	"github.com/vmware-tanzu/velero/pkg/util/collections"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/internal/velero"
)

// Selection is what a filter policy says about the objects of one resource type. When they are listed it stands in the
// place of the spec's label selectors (121).
type Selection struct {
	// Selectors are joined by or; without any, every label will do.
	Selectors []labels.Selector
	// names is nil when every name will do.
	names *collections.IncludesExcludes
}

// Matches says whether an object with these labels is selected.
func (s *Selection) Matches(set labels.Set) bool {
	for _, selector := range s.Selectors {
		if selector.Matches(set) {
			return true
		}
	}
	return len(s.Selectors) == 0
}

// kindRules are the selections of one policy, by resource type as schema.GroupResource writes it.
type kindRules struct {
	byType map[string]*Selection
	// rest is for all other types; nil when the policy says nothing about them.
	rest *Selection
}

func (r *kindRules) selection(gr schema.GroupResource) *Selection {
	if found := r.byType[gr.String()]; found != nil {
		return found
	}
	return r.rest
}

// patternRules are the rules for the namespaces that a pattern matches.
type patternRules struct {
	pattern *collections.IncludesExcludes
	*kindRules
}

// policyRules are the filter policies of a backup, resolved against the cluster's resource types (101). The zero value
// has none. It doesn't change.
type policyRules struct {
	cluster *kindRules
	// exact and patterns are rules for namespaces; patterns are in the order of their definition.
	exact    map[string]*kindRules
	patterns []patternRules
}

// policyResolver makes policyRules. What it has to complain of is a warning each.
type policyResolver struct {
	log       logrus.FieldLogger
	discovery discovery.Helper
	resources collections.IncludesExcludesInterface
}

func (r policyResolver) resolve(policies *velero.Policies) (policyRules, error) {
	rules := policyRules{exact: map[string]*kindRules{}}
	if filters := policies.ClusterFilters(); len(filters) > 0 {
		made, err := r.kinds(filters, "clusterScopedFilterPolicy", false)
		if err != nil {
			return policyRules{}, err
		}
		rules.cluster = made
	}
	for i, policy := range policies.NamespacedFilters() {
		field := fmt.Sprintf("namespacedFilterPolicies[%d]", i)
		made, err := r.kinds(policy.Filters, field, true)
		if err != nil {
			return policyRules{}, err
		}
		for _, namespace := range policy.Namespaces {
			r.warnOfExcluded(made, field, namespace)
			if !strings.ContainsAny(namespace, "*?[") {
				rules.exact[namespace] = made
				continue
			}
			pattern := collections.NewIncludesExcludes().Includes(namespace)
			rules.patterns = append(rules.patterns, patternRules{pattern: pattern, kindRules: made})
		}
	}
	return rules, nil
}

func (r policyResolver) kinds(filters []velero.KindFilter, field string, namespaced bool) (*kindRules, error) {
	rules := &kindRules{byType: map[string]*Selection{}}
	for i, f := range filters {
		selection, err := selectionOf(f)
		if err != nil {
			return nil, fmt.Errorf("%s.resourceFilters[%d]: %w", field, i, err)
		}
		if f.IsCatchAll() {
			rules.rest = selection
			continue
		}
		for _, kind := range f.Kinds {
			rules.byType[r.typeOf(kind, field, namespaced)] = selection
		}
	}
	return rules, nil
}

// typeOf returns the resource type that a policy calls by a name: its kind, its plural with or without the group, or a
// short name. A name that discovery doesn't know stays as it is: the type may be there at another time.
func (r policyResolver) typeOf(kind, field string, namespaced bool) string {
	log := r.log.WithField("kind", kind)
	gvr, resource, err := r.discovery.ResourceFor(schema.ParseGroupResource(kind).WithVersion(""))
	switch {
	case err != nil:
		log.WithError(err).Warnf("%s names kind %q, which the cluster doesn't know; it is taken for the full name of a resource type", field, kind)
		return kind
	case resource.Namespaced && !namespaced:
		log.Warnf("%s names kind %q, which lives in namespaces, so the filter has no effect; namespacedFilterPolicies is the place for it", field, kind)
	case !resource.Namespaced && namespaced:
		log.Warnf("%s names kind %q, which lives in no namespace, so the filter has no effect; clusterScopedFilterPolicy is the place for it", field, kind)
	}
	return gvr.GroupResource().String()
}

// warnOfExcluded looks for types of a policy that the backup excludes in all namespaces. Asking about a type that the cluster doesn't
// know is an error line of Velero's: the backup is PartiallyFailed, as in stock (101, 138).
func (r policyResolver) warnOfExcluded(rules *kindRules, field, namespace string) {
	for _, name := range slices.Sorted(maps.Keys(rules.byType)) {
		if r.resources.ShouldExclude(name) {
			r.log.WithField("kind", name).
				Warnf("%s names kind %q for namespace %s, but the backup excludes it in all namespaces, so the filter has no effect", field, name, namespace)
		}
	}
}

func selectionOf(f velero.KindFilter) (*Selection, error) {
	selection := &Selection{}
	for i := range f.Selectors {
		selector, err := metav1.LabelSelectorAsSelector(&f.Selectors[i])
		if err != nil {
			return nil, fmt.Errorf("label selector: %w", err)
		}
		selection.Selectors = append(selection.Selectors, selector)
	}
	if len(f.Names)+len(f.ExcludedNames) > 0 {
		selection.names = collections.NewIncludesExcludes().Includes(f.Names...).Excludes(f.ExcludedNames...)
	}
	return selection, nil
}

// FiltersNamespaces says whether a policy narrows what is backed up of some namespaces.
func (s *Set) FiltersNamespaces() bool { return len(s.policies.exact)+len(s.policies.patterns) > 0 }

// Selection returns what the filter policies say about listing a type in a namespace, which is empty for cluster-scoped
// types. Without a selection the spec's label selectors apply (121). in is false when a policy keeps all objects of the
// type in that namespace from being collected: it lists neither the type nor all types.
//
// Policies for namespaces say nothing about cluster-scoped types, whatever their patterns match, and the other way round
// (122).
func (s *Set) Selection(gr schema.GroupResource, namespace string) (selection *Selection, in bool) {
	if namespace == "" {
		if s.policies.cluster == nil {
			return nil, true
		}
		return s.policies.cluster.selection(gr), true
	}
	rules := s.rulesOf(namespace)
	if rules == nil {
		return nil, true
	}
	selection = rules.selection(gr)
	return selection, selection != nil
}

// rulesOf finds the rules for a namespace, or nil: an exact name comes before patterns, and patterns are tried in the
// order of their definition. The answer is remembered (148).
func (s *Set) rulesOf(namespace string) *kindRules {
	if exact := s.policies.exact[namespace]; exact != nil || len(s.policies.patterns) == 0 {
		return exact
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rules, known := s.byNamespace[namespace]
	if known {
		return rules
	}
	for _, candidate := range s.policies.patterns {
		if candidate.pattern.ShouldInclude(namespace) {
			rules = candidate.kindRules
			break
		}
	}
	if s.byNamespace == nil {
		s.byNamespace = map[string]*kindRules{}
	}
	s.byNamespace[namespace] = rules
	return rules
}

// admitsName is the policies' say about an object's name (145). A kind that a policy doesn't list passes: it wasn't
// collected, so a plugin asks for it.
func (s *Set) admitsName(obj metav1.Object, gr schema.GroupResource) bool {
	selection, _ := s.Selection(gr, obj.GetNamespace())
	return selection == nil || selection.names == nil || selection.names.ShouldInclude(obj.GetName())
}
