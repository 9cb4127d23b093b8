// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"fmt"
	"slices"
	"sync"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/util/collections"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reasons of a Decision.
const (
	// ReasonIncluded: nothing speaks against the object.
	ReasonIncluded = "Included"
	// ReasonMustInclude: whoever brought the object in asked for it whatever the filters say.
	ReasonMustInclude = "MustInclude"
	// ReasonExcludedByLabel: the object carries the label that keeps it out of backups. For PVCs and PVs the engine
	// records a skipped volume then (141).
	ReasonExcludedByLabel = "ExcludedByLabel"
	// ReasonNamespaceNotIncluded: the object's namespace is excluded, or not among the included ones.
	ReasonNamespaceNotIncluded = "NamespaceNotIncluded"
	// ReasonResourceExcluded: its cluster-scoped resource type is explicitly excluded.
	ReasonResourceExcluded = "ResourceExcluded"
	// ReasonResourceNotIncluded: its namespaced resource type is excluded, or not among the included ones.
	ReasonResourceNotIncluded = "ResourceNotIncluded"
	// ReasonNameNotIncluded: a filter policy for its type doesn't include its name.
	ReasonNameNotIncluded = "NameNotIncluded"
	// ReasonBeingDeleted: it has a deletion timestamp.
	ReasonBeingDeleted = "BeingDeleted"
)

// Decision says whether an object is in the backup, and why.
type Decision struct {
	// In is true when the object belongs into the backup.
	In bool
	// Reason is one CamelCase word, one of the Reason constants of this package.
	Reason string
	// Message is one sentence for people.
	Message string
}

// Set is the filter of one backup. Make it with Resolve; tests may fill the two exported fields themselves. They must
// not be changed afterwards. A Set is safe for concurrent use and must not be copied.
type Set struct {
	// Namespaces holds the namespace lists, with wildcards expanded. Required.
	Namespaces *collections.NamespaceIncludesExcludes
	// Resources holds the resource lists, in the old or the scoped style. Required.
	Resources collections.IncludesExcludesInterface

	// policies are the resource policies' filters.
	policies policyRules

	mu sync.Mutex
	// namespaces remembers which are included: the library compiles its patterns on each call.
	namespaces map[string]bool
	// byNamespace remembers which of the policies is for a namespace (148).
	byNamespace map[string]*kindRules
	// included and excluded remember the answers of Resources by type: it compiles its patterns on each call, and writes
	// an error line on each call about a type that discovery doesn't know (138).
	included, excluded map[schema.GroupResource]bool
}

// Includes decides about one object of type gr (140 to 147). With mustInclude only an object that is being deleted is
// left out (140).
func (s *Set) Includes(obj metav1.Object, gr schema.GroupResource, mustInclude bool) Decision {
	decision := Decision{In: true, Reason: ReasonMustInclude, Message: "it must be included whatever the filters say"}
	if !mustInclude {
		decision = s.byFilters(obj, gr)
	}
	if decision.In && obj.GetDeletionTimestamp() != nil {
		return out(ReasonBeingDeleted, "it is being deleted")
	}
	return decision
}

// byFilters is Includes without the check for deletion. The order of the checks only decides which reason is named.
func (s *Set) byFilters(obj metav1.Object, gr schema.GroupResource) Decision {
	if obj.GetLabels()[velerov1.ExcludeFromBackupLabel] == "true" {
		return out(ReasonExcludedByLabel, "it has the label %s=true", velerov1.ExcludeFromBackupLabel)
	}
	switch ns := obj.GetNamespace(); {
	case ns != "" && !s.IncludesNamespace(ns):
		return out(ReasonNamespaceNotIncluded, "the backup doesn't include namespace %s", ns)
	case ns != "" && !s.IncludesResource(gr):
		return out(ReasonResourceNotIncluded, "the backup doesn't include the resource type %s", gr)
	case ns == "" && gr != kuberesource.Namespaces && s.ExcludesResource(gr):
		// Being absent from the included types is not enough (143): PVs, cluster roles and classes come in through the
		// objects that need them. Which namespaces are in was settled when they were collected.
		return out(ReasonResourceExcluded, "the backup excludes the resource type %s", gr)
	}
	if !s.admitsName(obj, gr) {
		return out(ReasonNameNotIncluded, "a filter policy doesn't include the name %s of the resource type %s", obj.GetName(), gr)
	}
	return Decision{In: true, Reason: ReasonIncluded, Message: "the backup's filters include it"}
}

// IncludesNamespace says whether namespaced objects of this namespace may be in the backup.
func (s *Set) IncludesNamespace(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, known := s.namespaces[namespace]
	if !known {
		in = s.Namespaces.ShouldInclude(namespace)
		if s.namespaces == nil {
			s.namespaces = map[string]bool{}
		}
		s.namespaces[namespace] = in
	}
	return in
}

// IncludesResource says whether objects of this type are collected (133, 135, 136). A type unknown to discovery isn't,
// and gives an error line the first time (138).
func (s *Set) IncludesResource(gr schema.GroupResource) bool {
	return s.remember(&s.included, gr, s.Resources.ShouldInclude)
}

// ExcludesResource says whether this type is excluded explicitly (134, 137). It isn't the opposite of
// IncludesResource: a type may be neither included nor excluded. A type unknown to discovery counts as excluded (138).
func (s *Set) ExcludesResource(gr schema.GroupResource) bool {
	return s.remember(&s.excluded, gr, s.Resources.ShouldExclude)
}

func (s *Set) remember(answers *map[schema.GroupResource]bool, gr schema.GroupResource, ask func(string) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, known := (*answers)[gr]
	if known {
		return answer
	}
	if *answers == nil {
		*answers = map[schema.GroupResource]bool{}
	}
	answer = ask(gr.String())
	(*answers)[gr] = answer
	return answer
}

// NamespaceList returns the names of the existing namespaces that the backup includes, sorted. It fails only for a Set
// that wasn't made by Resolve and has a malformed pattern.
func (s *Set) NamespaceList() ([]string, error) {
	// The library keeps the result in the lists, hence the lock.
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := s.Namespaces.ResolveNamespaceList(true)
	if err != nil {
		return nil, fmt.Errorf("resolving the backup's namespaces: %w", err)
	}
	return slices.Clone(names), nil
}

func out(reason, format string, args ...any) Decision {
	return Decision{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
