// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/util/collections"
)

// Set holds the hooks of a backup's spec, resolved, and answers which hooks a pod has. It doesn't change after Resolve
// and may be used by many goroutines at once. A nil Set is one without spec hooks: pods then have the hooks of their
// annotations only.
type Set struct {
	specs []resolved
}

// resolved is one entry of spec.hooks.resources.
type resolved struct {
	name       string
	namespaces *collections.IncludesExcludes
	forPods    bool
	selector   labels.Selector
	hooks      map[Phase][]velerov1.BackupResourceHook
}

// Resolve prepares the entries of a backup's spec.hooks.resources. Resource names are resolved by discovery, in
// whichever form they are written; a name that discovery doesn't know stays as it is. The error names the entry and the
// field that can't be used.
func Resolve(specs []velerov1.BackupResourceHookSpec, helper discovery.Helper) (*Set, error) {
	set := &Set{specs: make([]resolved, 0, len(specs))}
	for i := range specs {
		spec := &specs[i]
		// A nil selector of the API matches nothing in apimachinery, while a hook without selector is for all pods.
		selector := labels.Everything()
		if spec.LabelSelector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(spec.LabelSelector); err != nil {
				return nil, fmt.Errorf("spec.hooks.resources[%d] %q: labelSelector: %w", i, spec.Name, err)
			}
		}
		resources := collections.GetResourceIncludesExcludes(helper, spec.IncludedResources, spec.ExcludedResources)
		set.specs = append(set.specs, resolved{
			name: spec.Name,
			namespaces: collections.NewIncludesExcludes().
				Includes(spec.IncludedNamespaces...).Excludes(spec.ExcludedNamespaces...),
			forPods:  resources.ShouldInclude(kuberesource.Pods.String()),
			selector: selector,
			hooks:    map[Phase][]velerov1.BackupResourceHook{PhasePre: spec.PreHooks, PhasePost: spec.PostHooks},
		})
	}
	return set, nil
}

// Hooks returns the hooks of a pod in a phase, in the order in which they run. A hook in the pod's annotations replaces
// all hooks of the spec for that phase. The pod's own phase plays no part here; the Runner doesn't run the hooks of a
// pod that has ended. A timeout that can't be used is warned of in log, each time.
func (s *Set) Hooks(pod *unstructured.Unstructured, phase Phase, log logrus.FieldLogger) []Hook {
	if hook, ok := fromAnnotations(pod.GetAnnotations(), phase, log); ok {
		return []Hook{hook}
	}
	var hooks []Hook
	for _, spec := range s.matching(pod) {
		for i, h := range spec.hooks[phase] {
			if h.Exec == nil {
				continue
			}
			exec := *h.Exec.DeepCopy()
			where := fmt.Sprintf("Hook %q of the backup's spec", spec.name)
			exec.Timeout.Duration = boundedTimeout(exec.Timeout.Duration, where, log)
			hooks = append(hooks, Hook{Source: SourceSpec, Name: spec.name, Index: i, Exec: exec})
		}
	}
	return hooks
}

// HasHooks reports whether a pod has a hook to run, in either phase and from either source. A pod that has ended
// (Succeeded or Failed) has none: there is nothing left to freeze, and its volumes need not wait for a hook.
func (s *Set) HasHooks(pod *unstructured.Unstructured) bool {
	if finished(pod) {
		return false
	}
	for _, phase := range []Phase{PhasePre, PhasePost} {
		if _, ok := annotationPrefix(pod.GetAnnotations(), phase); ok {
			return true
		}
	}
	for _, spec := range s.matching(pod) {
		if hasExec(spec.hooks[PhasePre]) || hasExec(spec.hooks[PhasePost]) {
			return true
		}
	}
	return false
}

// matching returns the entries that select the pod, in the order of the spec.
func (s *Set) matching(pod *unstructured.Unstructured) []resolved {
	if s == nil {
		return nil
	}
	var specs []resolved
	for _, spec := range s.specs {
		if spec.forPods && spec.namespaces.ShouldInclude(pod.GetNamespace()) &&
			spec.selector.Matches(labels.Set(pod.GetLabels())) {
			specs = append(specs, spec)
		}
	}
	return specs
}

func hasExec(hooks []velerov1.BackupResourceHook) bool {
	for _, h := range hooks {
		if h.Exec != nil {
			return true
		}
	}
	return false
}
