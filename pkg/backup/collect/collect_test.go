// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/features"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"github.com/vmware-tanzu/velero/pkg/test"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
)

const active = corev1.NamespaceActive

func matchLabels(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// full is a small cluster with something of everything.
func full(t *testing.T) *cluster {
	c := newCluster(t, test.Secrets(), test.PVs(), test.PVCs(), test.Namespaces(), test.Pods(),
		test.Deployments(), test.ExtensionsDeployments())
	c.addNamespace("a", active)
	c.addNamespace("b", active)
	c.addNamespace("empty", active)
	c.add(test.Secrets(), "a", "s")
	c.add(test.PVs(), "", "v1")
	c.add(test.PVCs(), "a", "c1")
	c.add(test.Pods(), "b", "p2", "app=x")
	c.add(test.Pods(), "a", "p1", "app=x,tier=db")
	c.add(test.Pods(), "a", "p3")
	c.add(test.Deployments(), "a", "d")
	c.add(test.ExtensionsDeployments(), "a", "d")
	return c
}

func TestCollect(t *testing.T) {
	everything := []string{"pods b/p2", "pods a/p1", "pods a/p3", "persistentvolumeclaims a/c1", "persistentvolumes v1",
		"namespaces a", "namespaces b", "namespaces empty", "secrets a/s", "deployments.apps a/d"}
	cases := map[string]struct {
		spec velerov1.BackupSpec
		want []string
	}{
		"everything: pods, PVCs, PVs, then by name in the core group (108, 109, 113)": {velerov1.BackupSpec{}, everything},
		"one namespace; PVs aren't collected by themselves (139)": {
			velerov1.BackupSpec{IncludedNamespaces: []string{"b"}}, []string{"pods b/p2", "namespaces b"}},
		"an excluded namespace is sorted out in memory (116)": {
			velerov1.BackupSpec{ExcludedNamespaces: []string{"a"}, IncludedNamespaceScopedResources: []string{"pods", "secrets"}},
			[]string{"pods b/p2", "namespaces b", "namespaces empty"}},
		"patterns that match nothing: nothing of any namespace; cluster-scoped types as in stock (94)": {
			velerov1.BackupSpec{IncludedNamespaces: []string{"x*"}}, []string{"persistentvolumes v1"}},
		"a cohabitant counts as listed only if its group is included (113)": {
			velerov1.BackupSpec{ExcludedResources: []string{"deployments.apps"}, IncludedResources: []string{"deployments.apps", "deployments.extensions"}},
			[]string{"deployments.extensions a/d"}},
		"labelSelector; namespaces only with something in them (120, 128)": {
			velerov1.BackupSpec{LabelSelector: matchLabels("app", "x")},
			[]string{"pods b/p2", "pods a/p1", "namespaces a", "namespaces b"}},
		"orLabelSelectors: an object that two match is taken once (118)": {
			velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{matchLabels("tier", "db"), matchLabels("app", "x")}},
			[]string{"pods a/p1", "pods b/p2", "namespaces a", "namespaces b"}},
		"an empty selector selects all": {velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{}}, everything},
		"orderedResources over all namespaces (111, 112)": {
			velerov1.BackupSpec{OrderedResources: map[string]string{"pods": "a/p3,b/p2", "persistentvolumes": "v1"}, IncludedResources: []string{"pods", "persistentvolumes"}},
			[]string{"pods a/p3", "pods b/p2", "pods a/p1", "persistentvolumes v1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got, hook := full(t).collect(t, tc.spec)
			g.Expect(got).To(Equal(tc.want))
			g.Expect(entries(hook, logrus.ErrorLevel)).To(BeEmpty())
			g.Expect(entries(hook, logrus.WarnLevel)).To(BeEmpty())
		})
	}
}

func TestListRequests(t *testing.T) { // field case F28
	pods := []string{"pods"}
	cases := map[string]struct {
		spec velerov1.BackupSpec
		want []listCall
	}{
		"all namespaces: one request (115)": {velerov1.BackupSpec{IncludedNamespaces: []string{"*"}, IncludedResources: pods}, []listCall{{"pods", "", ""}}},
		"excludes alone: one request (115)": {velerov1.BackupSpec{ExcludedNamespaces: []string{"a"}, IncludedResources: pods}, []listCall{{"pods", "", ""}}},
		"named ones: one each, sorted, without excluded ones (115)": {
			velerov1.BackupSpec{IncludedNamespaces: []string{"b", "empty", "a"}, ExcludedNamespaces: []string{"empty"}, IncludedResources: pods},
			[]listCall{{"pods", "a", ""}, {"pods", "b", ""}}},
		"expanded ones likewise (93)":      {velerov1.BackupSpec{IncludedNamespaces: []string{"?"}, IncludedResources: pods}, []listCall{{"pods", "a", ""}, {"pods", "b", ""}}},
		"labelSelector: server side (120)": {velerov1.BackupSpec{LabelSelector: matchLabels("app", "x"), IncludedResources: pods}, []listCall{{"pods", "", "app=x"}}},
		"orLabelSelectors: one each (118)": {
			velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{matchLabels("tier", "db"), matchLabels("app", "x")}, IncludedResources: pods},
			[]listCall{{"pods", "", "tier=db"}, {"pods", "", "app=x"}}},
		"namespaces: no selector (125)": {velerov1.BackupSpec{LabelSelector: matchLabels("app", "x"), IncludedResources: []string{"namespaces"}}, []listCall{{"namespaces", "", ""}}},
		"cluster-scoped: one request":   {velerov1.BackupSpec{IncludedNamespaces: []string{"a", "b"}, IncludedClusterScopedResources: []string{"persistentvolumes"}, ExcludedNamespaceScopedResources: []string{"*"}}, []listCall{{"persistentvolumes", "", ""}, {"namespaces", "", ""}}},
		"a star beside an exclude pattern that matches a star": {
			velerov1.BackupSpec{IncludedNamespaces: []string{"*"}, ExcludedNamespaces: []string{"?"}, IncludedResources: pods}, []listCall{{"pods", "", ""}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := full(t)
			c.collect(t, tc.spec)
			NewWithT(t).Expect(c.lists).To(Equal(tc.want))
		})
	}
}

func TestPaging(t *testing.T) {
	for size, requests := range map[int]int{0: 1, 2: 3, 5: 1, 500: 1} {
		t.Run(fmt.Sprintf("page size %d (117)", size), func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t, test.Pods())
			var want []string
			for i := range 5 {
				c.add(test.Pods(), "a", fmt.Sprint(i))
				want = append(want, fmt.Sprintf("pods a/%d", i))
			}
			deps, _ := c.deps(t, velerov1.BackupSpec{})
			deps.PageSize = size
			items, err := collect.Collect(t.Context(), deps)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(names(items)).To(Equal(want))
			g.Expect(c.lists).To(HaveLen(requests))
		})
	}
}

func TestItemFields(t *testing.T) {
	g := NewWithT(t)
	deps, _ := full(t).deps(t, velerov1.BackupSpec{IncludedResources: []string{"deployments.apps"}, OrderedResources: map[string]string{"deployments": "a/d"}})
	items, err := collect.Collect(t.Context(), deps)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(items).To(HaveLen(1))
	item := items[0]
	g.Expect(item.GroupResource).To(Equal(schema.GroupResource{Group: "apps", Resource: "deployments"}))
	g.Expect(item.PreferredGVR).To(Equal(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}))
	g.Expect(item.Kind).To(Equal("Deployment"))
	g.Expect(item.Object().GetName()).To(Equal("d"))
	g.Expect(item.Ordered).To(BeTrue())
	g.Expect(item.Preferred()).To(BeTrue())
	g.Expect(item.ID()).To(Equal(velero.ResourceIdentifier{GroupResource: item.GroupResource, Namespace: "a", Name: "d"}))
}

func TestAllVersionsWithTheFeature(t *testing.T) {
	g := NewWithT(t)
	features.Enable(velerov1.APIGroupVersionsFeatureFlag)
	t.Cleanup(func() { features.Disable(velerov1.APIGroupVersionsFeatureFlag) })
	v1 := &test.APIResource{Group: "example.com", Version: "v1", Name: "things", Kind: "Thing", Namespaced: true}
	v2 := &test.APIResource{Group: "example.com", Version: "v2", Name: "things", Kind: "Thing", Namespaced: true}
	c := newCluster(t, v1, v2)
	c.add(v1, "a", "t")
	c.add(v2, "a", "t")
	deps, _ := c.deps(t, velerov1.BackupSpec{})
	items, err := collect.Collect(t.Context(), deps)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(items)).To(Equal([]string{"things.example.com a/t", "things.example.com a/t"}), "both versions (107)")
	g.Expect(items[0].Preferred()).NotTo(Equal(items[1].Preferred()))
	g.Expect(items[0].PreferredGVR).To(Equal(items[1].PreferredGVR))
}

func TestOrderedNamesThatDontExist(t *testing.T) {
	g := NewWithT(t)
	got, hook := full(t).collect(t, velerov1.BackupSpec{
		IncludedResources: []string{"pods"},
		OrderedResources:  map[string]string{"pods": "a/p3, b/p2,a/gone,a/p3"},
	})
	g.Expect(got).To(Equal([]string{"pods a/p3", "pods b/p2", "pods a/p1"}), "blanks aren't trimmed (110)")
	var missing []any
	for _, entry := range entries(hook, logrus.WarnLevel) {
		missing = append(missing, entry.Data["name"])
	}
	g.Expect(missing).To(Equal([]any{" b/p2", "a/gone", "a/p3"}), "one warning each (111)")
}

func TestNamespaceObjects(t *testing.T) {
	build := func(t *testing.T) *cluster {
		c := newCluster(t, test.Namespaces(), test.Pods())
		c.addNamespace("labelled", active, "app=x")
		c.addNamespace("plain", active)
		c.addNamespace("used", active)
		c.addNamespace("dying", corev1.NamespaceTerminating, "app=x")
		c.addNamespace("dying-used", corev1.NamespaceTerminating)
		c.add(test.Pods(), "used", "p", "app=x")
		c.add(test.Pods(), "dying-used", "p", "app=x")
		return c
	}
	selector := matchLabels("app", "x")
	cases := map[string]struct {
		spec velerov1.BackupSpec
		want []string
	}{
		"all active ones, and others with something in them (128, 129)": {velerov1.BackupSpec{}, []string{"labelled", "plain", "used", "dying-used"}},
		"a selector and no namespace list: labels and contents decide (128)": {
			velerov1.BackupSpec{LabelSelector: selector}, []string{"labelled", "used", "dying-used"}},
		"orLabelSelectors likewise (128)": {
			velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{matchLabels("app", "y"), selector}}, []string{"labelled", "used", "dying-used"}},
		"a selector and a namespace list: the union (128)": {
			velerov1.BackupSpec{LabelSelector: selector, IncludedNamespaces: []string{"plain"}}, []string{"labelled", "plain"}},
		"contents of an excluded namespace don't count (128)": {
			velerov1.BackupSpec{ExcludedNamespaces: []string{"dying-used", "used"}}, []string{"labelled", "plain"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			deps, _ := build(t).deps(t, tc.spec)
			items, err := collect.Collect(t.Context(), deps)
			g := NewWithT(t)
			g.Expect(err).NotTo(HaveOccurred())
			var got []string
			for _, item := range items {
				if item.GroupResource == kuberesource.Namespaces {
					got = append(got, item.Name)
				}
			}
			g.Expect(got).To(Equal(tc.want))
		})
	}
}

func TestMissingNamespaces(t *testing.T) {
	g := NewWithT(t)
	_, hook := full(t).collect(t, velerov1.BackupSpec{IncludedNamespaces: []string{"a", "gone", "lost", "b*"}})
	var missing []any
	for _, entry := range entries(hook, logrus.ErrorLevel) {
		missing = append(missing, entry.Data["name"])
	}
	g.Expect(missing).To(Equal([]any{"gone", "lost"}), "one error line each (126)")
}

func TestListErrors(t *testing.T) {
	broken := errors.New("broken")
	or := velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{matchLabels("tier", "db"), matchLabels("app", "x")}}
	cases := map[string]struct {
		spec   velerov1.BackupSpec
		fails  listCall
		want   []string
		fields logrus.Fields
	}{
		"one resource type (114)": {
			velerov1.BackupSpec{IncludedResources: []string{"pods", "secrets"}}, listCall{"pods", "", ""},
			[]string{"secrets a/s"}, logrus.Fields{"resource": "pods", logrus.ErrorKey: broken}},
		"one namespace (124)": {
			velerov1.BackupSpec{IncludedNamespaces: []string{"a", "b"}, IncludedResources: []string{"pods"}}, listCall{"pods", "a", ""},
			[]string{"pods b/p2"}, logrus.Fields{"resource": "pods", "namespace": "a", logrus.ErrorKey: broken}},
		"an earlier selector; what the later one finds is kept (119)": {
			or, listCall{"pods", "", "tier=db"},
			[]string{"pods b/p2", "pods a/p1", "namespaces a", "namespaces b"}, logrus.Fields{"resource": "pods", logrus.ErrorKey: broken}},
		"the last selector": {
			or, listCall{"pods", "", "app=x"},
			[]string{"pods a/p1", "namespaces a"}, logrus.Fields{"resource": "pods", logrus.ErrorKey: broken}},
		"namespaces (127)": {
			velerov1.BackupSpec{IncludedResources: []string{"namespaces", "secrets"}}, listCall{"namespaces", "", ""},
			[]string{"secrets a/s"}, logrus.Fields{"resource": "namespaces", logrus.ErrorKey: broken}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := full(t)
			c.fail = func(call listCall) error {
				if call == tc.fails {
					return broken
				}
				return nil
			}
			got, hook := c.collect(t, tc.spec)
			g.Expect(got).To(Equal(tc.want))
			lines := entries(hook, logrus.ErrorLevel)
			g.Expect(lines).To(HaveLen(1))
			g.Expect(lines[0].Data).To(Equal(tc.fields))
		})
	}
}

func TestBadSelectors(t *testing.T) {
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	for name, spec := range map[string]velerov1.BackupSpec{
		"spec.labelSelector":       {LabelSelector: bad},
		"spec.orLabelSelectors[1]": {OrLabelSelectors: []*metav1.LabelSelector{matchLabels("a", "b"), bad}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := full(t)
			deps, _ := c.deps(t, spec)
			_, err := collect.Collect(t.Context(), deps)
			g.Expect(err).To(MatchError(ContainSubstring(name)))
			g.Expect(c.lists).To(BeEmpty())
		})
	}
}

func TestContextEnds(t *testing.T) {
	g := NewWithT(t)
	c := full(t)
	shutdown := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	c.fail = func(listCall) error {
		cancel(shutdown)
		return ctx.Err()
	}
	deps, hook := c.deps(t, velerov1.BackupSpec{})
	items, err := collect.Collect(ctx, deps)
	g.Expect(err).To(MatchError(shutdown))
	g.Expect(items).To(BeNil())
	g.Expect(c.lists).To(HaveLen(1), "nothing is asked any more")
	g.Expect(entries(hook, logrus.ErrorLevel)).To(BeEmpty(), "the end of the context is not the fault of a resource type")
}

func TestDiscoveryIsNotChanged(t *testing.T) {
	g := NewWithT(t)
	c := full(t)
	shared := c.helper.Resources()[0].APIResources
	slices.SortFunc(shared, func(a, b metav1.APIResource) int { return -strings.Compare(a.Name, b.Name) })
	before := slices.Clone(shared)
	c.collect(t, velerov1.BackupSpec{})
	g.Expect(shared).To(Equal(before), "other backups use it too")
}

func TestFetch(t *testing.T) {
	g := NewWithT(t)
	c := full(t)
	fetcher := collect.Fetcher{Discovery: c.helper, Dynamic: c}
	secret := velero.ResourceIdentifier{GroupResource: kuberesource.Secrets, Namespace: "a", Name: "s"}

	item, err := fetcher.Fetch(t.Context(), secret)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(item.ID()).To(Equal(secret))
	g.Expect(item.Kind).To(Equal("Secret"))
	g.Expect(item.Object().GetName()).To(Equal("s"))
	g.Expect(item.Preferred()).To(BeTrue())

	secret.Name = "gone"
	_, err = fetcher.Fetch(t.Context(), secret)
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	g.Expect(err).To(MatchError(ContainSubstring("getting secrets a/gone")))

	_, err = fetcher.Fetch(t.Context(), velero.ResourceIdentifier{GroupResource: schema.GroupResource{Resource: "things"}, Name: "x"})
	g.Expect(err).To(MatchError(ContainSubstring("finding the resource type things")))
}
