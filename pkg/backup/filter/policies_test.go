// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package filter_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/internal/velero"
	"github.com/velero-clipper/clipper/pkg/backup/filter"
)

// withPolicies resolves a spec with a document of resource policies, of which the version is left out.
func withPolicies(t *testing.T, document string, spec velerov1.BackupSpec) (*filter.Set, *logrustest.Hook) {
	t.Helper()
	g := NewWithT(t)
	policies, err := velero.LoadPolicies(&corev1.ConfigMap{Data: map[string]string{"policies": "version: v1\n" + document}}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	log, hook := logrustest.NewNullLogger()
	set, err := filter.Resolve(t.Context(), log, filter.Deps{Client: names("app", "app-2", "db"), Discovery: helper(t), Policies: policies}, spec)
	g.Expect(err).NotTo(HaveOccurred())
	return set, hook
}

func TestTypeListsOfThePolicyAreAdded(t *testing.T) { // 99
	const policy = `
includeExcludePolicy:
  includedNamespaceScopedResources: [secrets]
  excludedNamespaceScopedResources: [pods]
  includedClusterScopedResources: [storageclasses]
  excludedClusterScopedResources: [persistentvolumes]
`
	type want map[schema.GroupResource]bool
	for name, tc := range map[string]struct {
		spec     velerov1.BackupSpec
		included want
	}{
		"a spec without lists": {velerov1.BackupSpec{}, want{
			kuberesource.Secrets: true, kuberesource.Pods: false, deployments: false, classes: true, kuberesource.PersistentVolumes: false,
		}},
		"the spec includes what the policy excludes": {
			velerov1.BackupSpec{IncludedNamespaceScopedResources: []string{"pods"}, IncludedClusterScopedResources: []string{"persistentvolumes"}},
			want{kuberesource.Secrets: true, kuberesource.Pods: true, deployments: false, classes: true, kuberesource.PersistentVolumes: true}},
		"the spec excludes what the policy includes": {
			velerov1.BackupSpec{ExcludedNamespaceScopedResources: []string{"secrets"}, ExcludedClusterScopedResources: []string{"storageclasses"}},
			want{kuberesource.Secrets: false, kuberesource.Pods: false, deployments: true, classes: false}},
	} {
		t.Run(name, func(t *testing.T) {
			set, _ := withPolicies(t, policy, tc.spec)
			for gr, included := range tc.included {
				NewWithT(t).Expect(set.IncludesResource(gr)).To(Equal(included), gr.String())
			}
		})
	}
}

func TestWhichPolicyIsForANamespace(t *testing.T) { // 101, 148
	set, hook := withPolicies(t, `
namespacedFilterPolicies:
- namespaces: ["app*"]
  resourceFilters: [{kinds: [Pod], labelSelector: {matchLabels: {from: first}}}]
- namespaces: ["*-2", app]
  resourceFilters: [{kinds: [po, deployments.apps], labelSelector: {matchLabels: {from: second}}}]
`, velerov1.BackupSpec{})
	for namespace, from := range map[string]string{
		"app":   "second", // an exact name, though it comes later
		"app-2": "first",  // of two patterns the one that comes first
		"x-2":   "second",
		"db":    "", // none
	} {
		t.Run(namespace, func(t *testing.T) {
			g := NewWithT(t)
			for range 2 { // the second answer is the remembered one
				selection, in := set.Selection(kuberesource.Pods, namespace)
				g.Expect(in).To(BeTrue())
				if from == "" {
					g.Expect(selection).To(BeNil())
					continue
				}
				g.Expect(selection.Matches(labels.Set{"from": from})).To(BeTrue())
				g.Expect(selection.Matches(labels.Set{"from": "elsewhere"})).To(BeFalse())
			}
		})
	}
	NewWithT(t).Expect(messages(hook, logrus.WarnLevel)).To(BeEmpty())
}

func TestSelections(t *testing.T) { // 121, 122
	set, _ := withPolicies(t, `
clusterScopedFilterPolicy:
  resourceFilters: [{kinds: [storageclasses], labelSelector: {matchLabels: {tier: fast}}}]
namespacedFilterPolicies:
- namespaces: [app]
  resourceFilters:
  - {kinds: [pods], orLabelSelectors: [{matchLabels: {a: b}}, {matchExpressions: [{key: c, operator: Exists}]}]}
  - {kinds: [secrets]}
- namespaces: [db]
  resourceFilters: [{kinds: [pods]}, {labelSelector: {matchLabels: {rest: "yes"}}}]
- namespaces: ["*"]
  resourceFilters: [{kinds: [secrets]}]
`, velerov1.BackupSpec{})
	// Selections of these labels, or none.
	const out, ofSpec = "out", "spec"
	for name, tc := range map[string]struct {
		gr        schema.GroupResource
		namespace string
		want      string
		matches   []labels.Set
		misses    []labels.Set
	}{
		"any of several selectors":                           {gr: kuberesource.Pods, namespace: "app", matches: []labels.Set{{"a": "b"}, {"c": "x"}}, misses: []labels.Set{{}, {"a": "c"}}},
		"a kind without selectors":                           {gr: kuberesource.Secrets, namespace: "app", matches: []labels.Set{{}, {"a": "c"}}},
		"a kind that isn't listed":                           {gr: deployments, namespace: "app", want: out},
		"a kind that isn't listed, and all others are":       {gr: deployments, namespace: "db", matches: []labels.Set{{"rest": "yes"}}, misses: []labels.Set{{}}},
		"a listed kind beside all others":                    {gr: kuberesource.Pods, namespace: "db", matches: []labels.Set{{}}},
		"a namespace that only the pattern matches":          {gr: kuberesource.Pods, namespace: "web", want: out},
		"a cluster-scoped kind of the policy":                {gr: classes, matches: []labels.Set{{"tier": "fast"}}, misses: []labels.Set{{}}},
		"another cluster-scoped kind, whatever the patterns": {gr: kuberesource.PersistentVolumes, want: ofSpec},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			selection, in := set.Selection(tc.gr, tc.namespace)
			g.Expect(in).To(Equal(tc.want != out))
			if tc.want != "" {
				g.Expect(selection).To(BeNil())
				return
			}
			for _, set := range tc.matches {
				g.Expect(selection.Matches(set)).To(BeTrue(), "%v", set)
			}
			for _, set := range tc.misses {
				g.Expect(selection.Matches(set)).To(BeFalse(), "%v", set)
			}
		})
	}
}

func TestNamesOfThePolicies(t *testing.T) { // 145
	set, _ := withPolicies(t, `
clusterScopedFilterPolicy:
  resourceFilters: [{kinds: [storageclasses, namespaces], names: ["fast-*", app], excludedNames: [fast-old]}]
namespacedFilterPolicies:
- namespaces: ["app*"]
  resourceFilters: [{kinds: [secrets], names: ["db-*"], excludedNames: ["*-tmp"]}, {kinds: [deployments]}]
`, velerov1.BackupSpec{})
	secret := func(namespace, name string) metav1.Object { return builder.ForSecret(namespace, name).Result() }
	class := func(name string) metav1.Object { return builder.ForStorageClass(name).Result() }
	for name, tc := range map[string]struct {
		object metav1.Object
		gr     schema.GroupResource
		must   bool
		want   string
	}{
		"a name":                               {object: secret("app", "db-1"), gr: kuberesource.Secrets, want: filter.ReasonIncluded},
		"another name":                         {object: secret("app", "web"), gr: kuberesource.Secrets, want: filter.ReasonNameNotIncluded},
		"an excluded name":                     {object: secret("app-2", "db-tmp"), gr: kuberesource.Secrets, want: filter.ReasonNameNotIncluded},
		"another namespace":                    {object: secret("db", "web"), gr: kuberesource.Secrets, want: filter.ReasonIncluded},
		"asked for whatever the filters say":   {object: secret("app", "web"), gr: kuberesource.Secrets, must: true, want: filter.ReasonMustInclude},
		"a kind without names":                 {object: builder.ForDeployment("app", "any").Result(), gr: deployments, want: filter.ReasonIncluded},
		"a kind that isn't listed, by plugins": {object: builder.ForPod("app", "any").Result(), gr: kuberesource.Pods, want: filter.ReasonIncluded},
		"a cluster-scoped name":                {object: class("fast-1"), gr: classes, want: filter.ReasonIncluded},
		"another cluster-scoped name":          {object: class("slow"), gr: classes, want: filter.ReasonNameNotIncluded},
		"an excluded cluster-scoped name":      {object: class("fast-old"), gr: classes, want: filter.ReasonNameNotIncluded},
		"a cluster-scoped kind without filter": {object: builder.ForPersistentVolume("any").Result(), gr: kuberesource.PersistentVolumes, want: filter.ReasonIncluded},
		"a namespace's name":                   {object: builder.ForNamespace("app").Result(), gr: kuberesource.Namespaces, want: filter.ReasonIncluded},
		"another namespace's name":             {object: builder.ForNamespace("db").Result(), gr: kuberesource.Namespaces, want: filter.ReasonNameNotIncluded},
	} {
		t.Run(name, func(t *testing.T) {
			decision := set.Includes(tc.object, tc.gr, tc.must)
			NewWithT(t).Expect(decision.Reason).To(Equal(tc.want), decision.Message)
		})
	}
}

func TestKindsNamedInVain(t *testing.T) { // 101
	set, hook := withPolicies(t, `
clusterScopedFilterPolicy:
  resourceFilters: [{kinds: [pods, gadgets.example.com, storageclasses]}]
namespacedFilterPolicies:
- namespaces: [app]
  resourceFilters: [{kinds: [pv, widgets.example.com, secrets, pods]}]
includeExcludePolicy: {excludedNamespaceScopedResources: [secrets]}
`, velerov1.BackupSpec{})
	g := NewWithT(t)
	g.Expect(messages(hook, logrus.WarnLevel)).To(ConsistOf(
		And(ContainSubstring("clusterScopedFilterPolicy"), ContainSubstring(`"pods"`), ContainSubstring("lives in namespaces")),
		And(ContainSubstring("clusterScopedFilterPolicy"), ContainSubstring(`"gadgets.example.com"`), ContainSubstring("doesn't know")),
		And(ContainSubstring("namespacedFilterPolicies[0]"), ContainSubstring(`"pv"`), ContainSubstring("no namespace")),
		And(ContainSubstring("namespacedFilterPolicies[0]"), ContainSubstring(`"widgets.example.com"`), ContainSubstring("doesn't know")),
		And(ContainSubstring("namespacedFilterPolicies[0]"), ContainSubstring(`"secrets"`), ContainSubstring("excludes")),
		And(ContainSubstring("namespacedFilterPolicies[0]"), ContainSubstring(`"widgets.example.com"`), ContainSubstring("excludes")),
	))
	g.Expect(messages(hook, logrus.ErrorLevel)).To(ConsistOf(ContainSubstring("widgets.example.com")), "as in stock, from Velero's own lists (138)")

	selection, in := set.Selection(schema.GroupResource{Group: "example.com", Resource: "widgets"}, "app")
	g.Expect(in).To(BeTrue(), "what can't be resolved is taken literally")
	g.Expect(selection).NotTo(BeNil())
}
