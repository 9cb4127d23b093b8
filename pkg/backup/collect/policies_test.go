// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/test"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	internal "github.com/velero-clipper/clipper/internal/velero"
)

// withPolicies is full with a few more labels, and a document of resource policies for the backups of it.
func withPolicies(t *testing.T, document string) *cluster {
	t.Helper()
	c := full(t)
	c.add(test.Secrets(), "b", "s1", "app=x")
	c.add(test.Secrets(), "b", "s2", "tier=db")
	c.add(test.PVs(), "", "v2", "tier=db")
	var err error
	c.policies, err = internal.LoadPolicies(&corev1.ConfigMap{Data: map[string]string{"policies": "version: v1\n" + document}}, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

const (
	forA = `
namespacedFilterPolicies:
- namespaces: [a]
  resourceFilters: [{kinds: [pods], labelSelector: {matchLabels: {tier: db}}}]
`
	forB = `
namespacedFilterPolicies:
- namespaces: ["b*"]
  resourceFilters: [{kinds: [Secret], orLabelSelectors: [{matchLabels: {tier: db}}, {matchLabels: {app: x}}, {matchLabels: {app: x, tier: db}}]}]
`
	forAll = `
namespacedFilterPolicies:
- namespaces: ["*"]
  resourceFilters: [{kinds: [secrets]}]
`
	catchAll = `
namespacedFilterPolicies:
- namespaces: [b]
  resourceFilters: [{kinds: [secrets]}, {kinds: ["*"], labelSelector: {matchLabels: {tier: none}}}]
`
	forCluster = `
clusterScopedFilterPolicy:
  resourceFilters: [{kinds: [persistentvolumes, pods, namespaces], labelSelector: {matchLabels: {tier: db}}}]
`
)

func TestFilterPolicies(t *testing.T) {
	appX := matchLabels("app", "x")
	for name, tc := range map[string]struct {
		policies string
		spec     velerov1.BackupSpec
		want     []string
	}{
		"only listed kinds of a namespace, and all of others (116)": {forA, velerov1.BackupSpec{},
			[]string{"pods b/p2", "pods a/p1", "persistentvolumes v1", "persistentvolumes v2", "namespaces a", "namespaces b", "namespaces empty", "secrets b/s1", "secrets b/s2"}},
		"the same when the namespaces are named": {forA, velerov1.BackupSpec{IncludedNamespaces: []string{"a", "b"}, IncludedClusterScopedResources: []string{"persistentvolumes"}},
			[]string{"pods a/p1", "pods b/p2", "persistentvolumes v1", "persistentvolumes v2", "namespaces a", "namespaces b", "secrets b/s1", "secrets b/s2"}},
		"any of several selectors, each object once (116, 118)": {forB, velerov1.BackupSpec{},
			[]string{"pods a/p1", "pods a/p3", "persistentvolumeclaims a/c1", "persistentvolumes v1", "persistentvolumes v2", "namespaces a", "namespaces b", "namespaces empty", "secrets a/s", "secrets b/s1", "secrets b/s2", "deployments.apps a/d"}},
		"the same, server side (121)": {forB, velerov1.BackupSpec{IncludedNamespaces: []string{"b"}},
			[]string{"namespaces b", "secrets b/s2", "secrets b/s1"}},
		"a policy's selectors stand in the place of the spec's (121)": {forB, velerov1.BackupSpec{LabelSelector: appX},
			[]string{"pods a/p1", "namespaces a", "namespaces b", "secrets b/s1", "secrets b/s2"}},
		"the same when the namespaces are named (121)": {forB, velerov1.BackupSpec{LabelSelector: appX, IncludedNamespaces: []string{"a", "b"}},
			[]string{"pods a/p1", "namespaces a", "namespaces b", "secrets b/s2", "secrets b/s1"}},
		"of the spec's alternatives one is enough where no policy is for (116)": {forB, velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{appX, matchLabels("tier", "db")}},
			[]string{"pods a/p1", "persistentvolumes v2", "namespaces a", "namespaces b", "secrets b/s1", "secrets b/s2"}},
		"a pattern for all namespaces is not for cluster-scoped types (122)": {forAll, velerov1.BackupSpec{},
			[]string{"persistentvolumes v1", "persistentvolumes v2", "namespaces a", "namespaces b", "namespaces empty", "secrets a/s", "secrets b/s1", "secrets b/s2"}},
		"a catch-all is for the kinds that aren't listed (121)": {catchAll, velerov1.BackupSpec{IncludedNamespaces: []string{"b"}},
			[]string{"namespaces b", "secrets b/s1", "secrets b/s2"}},
		"a namespace of which nothing is left isn't in for its objects (128)": {catchAll, velerov1.BackupSpec{LabelSelector: matchLabels("tier", "none")},
			[]string{"namespaces b", "secrets b/s1", "secrets b/s2"}},
		"cluster-scoped types; not namespaces, and not namespaced ones (122)": {forCluster, velerov1.BackupSpec{IncludedNamespaceScopedResources: []string{"pods"}, IncludedClusterScopedResources: []string{"persistentvolumes"}},
			[]string{"pods b/p2", "pods a/p1", "pods a/p3", "persistentvolumes v2", "namespaces a", "namespaces b", "namespaces empty"}},
		"cluster-scoped types without an entry: the spec's selectors (121)": {
			"clusterScopedFilterPolicy: {resourceFilters: [{kinds: [storageclasses]}]}", velerov1.BackupSpec{LabelSelector: matchLabels("tier", "db"), IncludedClusterScopedResources: []string{"persistentvolumes"}},
			[]string{"pods a/p1", "persistentvolumes v2", "namespaces a", "namespaces b", "secrets b/s2"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, hook := withPolicies(t, tc.policies).collect(t, tc.spec)
			g.Expect(got).To(Equal(tc.want))
			g.Expect(entries(hook, logrus.ErrorLevel)).To(BeEmpty())
		})
	}
}

func TestListRequestsWithFilterPolicies(t *testing.T) {
	selected := velerov1.BackupSpec{LabelSelector: matchLabels("app", "x"), IncludedNamespaceScopedResources: []string{"secrets"}}
	named := *selected.DeepCopy()
	named.IncludedNamespaces = []string{"a", "b"}
	for name, tc := range map[string]struct {
		policies string
		spec     velerov1.BackupSpec
		want     []listCall
	}{
		"all namespaces: one request for the objects of all selectors (116)":  {forB, selected, []listCall{{"namespaces", "", ""}, {"secrets", "", ""}}},
		"named namespaces: the selectors of each (121)":                       {forB, named, []listCall{{"namespaces", "", ""}, {"secrets", "a", "app=x"}, {"secrets", "b", "tier=db"}, {"secrets", "b", "app=x"}, {"secrets", "b", "app=x,tier=db"}}},
		"a kind that isn't listed isn't asked for (121)":                      {forA, named, []listCall{{"namespaces", "", ""}, {"secrets", "b", "app=x"}}},
		"a policy for cluster-scoped types changes nothing for namespaces":    {forCluster, selected, []listCall{{"namespaces", "", ""}, {"secrets", "", "app=x"}}},
		"a kind without selectors is listed whole, whatever the spec's (121)": {forAll, named, []listCall{{"namespaces", "", ""}, {"secrets", "a", ""}, {"secrets", "b", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := withPolicies(t, tc.policies)
			c.collect(t, tc.spec)
			NewWithT(t).Expect(c.lists).To(Equal(tc.want))
		})
	}
}
