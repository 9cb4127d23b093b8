// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package filter_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/test"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/backup/filter"
)

var (
	deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}
	classes     = schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}
)

// reader is a cluster that has only namespaces. It returns them in the given order, as a cache may.
type reader struct {
	crclient.Reader
	namespaces []*corev1.Namespace
	err        error
	lists      int
}

func (r *reader) List(_ context.Context, list crclient.ObjectList, _ ...crclient.ListOption) error {
	r.lists++
	for _, ns := range r.namespaces {
		list.(*corev1.NamespaceList).Items = append(list.(*corev1.NamespaceList).Items, *ns)
	}
	return r.err
}

func names(names ...string) *reader {
	r := &reader{}
	for _, name := range names {
		r.namespaces = append(r.namespaces, builder.ForNamespace(name).Result())
	}
	return r
}

// helper knows the types that the tests use.
func helper(t *testing.T) discovery.Helper {
	t.Helper()
	server := test.NewAPIServer(t)
	for _, resource := range []*test.APIResource{
		test.Namespaces(), test.Pods(), test.PVCs(), test.PVs(), test.Secrets(), test.Deployments(), test.StorageClasses(),
	} {
		server.DiscoveryClient.WithAPIResource(resource)
	}
	h, err := discovery.NewHelper(server.DiscoveryClient, logrus.New())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return h
}

func resolve(t *testing.T, r *reader, spec velerov1.BackupSpec) (*filter.Set, *logrustest.Hook) {
	t.Helper()
	log, hook := logrustest.NewNullLogger()
	set, err := filter.Resolve(t.Context(), log, filter.Deps{Client: r, Discovery: helper(t)}, spec)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return set, hook
}

func messages(hook *logrustest.Hook, level logrus.Level) []string {
	var out []string
	for _, entry := range hook.AllEntries() {
		if entry.Level == level {
			out = append(out, entry.Message)
		}
	}
	return out
}

func TestNamespaceLists(t *testing.T) {
	cases := map[string]struct {
		live               []string
		includes, excludes []string
		want               []string
		everything         bool
	}{
		"nothing given means all (92)":               {live: []string{"b", "a"}, want: []string{"a", "b"}, everything: true},
		"a star means all (92)":                      {live: []string{"b", "a"}, includes: []string{"*"}, want: []string{"a", "b"}, everything: true},
		"plain names":                                {live: []string{"a", "b"}, includes: []string{"b"}, want: []string{"b"}},
		"patterns are expanded (93)":                 {live: []string{"app-1", "app-2", "db"}, includes: []string{"app-*", "gone"}, want: []string{"app-1", "app-2"}},
		"excludes are expanded too (93)":             {live: []string{"app-1", "app-2"}, includes: []string{"app-?"}, excludes: []string{"*-2"}, want: []string{"app-1"}},
		"patterns without a match give nothing (94)": {live: []string{"a"}, includes: []string{"x-*"}, want: nil, everything: true},
		"with a star the excludes are globs (95)":    {live: []string{"a", "kube-x"}, includes: []string{"*"}, excludes: []string{"kube-*"}, want: []string{"a"}},
		"a complete list is everything, whatever the order of the cluster's answer (96)": {
			live: []string{"b", "a"}, includes: []string{"a", "b"}, want: []string{"a", "b"}, everything: true},
		"an expanded complete list too (96)": {live: []string{"b2", "b1"}, includes: []string{"b*"}, want: []string{"b1", "b2"}, everything: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := names(tc.live...)
			set, _ := resolve(t, r, velerov1.BackupSpec{IncludedNamespaces: tc.includes, ExcludedNamespaces: tc.excludes})

			list, err := set.NamespaceList()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list).To(HaveExactElements(toAny(tc.want)...))
			for _, ns := range tc.live {
				g.Expect(set.IncludesNamespace(ns)).To(Equal(slices.Contains(tc.want, ns)), "namespace %s", ns)
			}
			// Only for cluster-scoped types; that it is true when nothing matched is stock's behaviour too.
			g.Expect(set.Namespaces.IncludeEverything()).To(Equal(tc.everything))
			g.Expect(r.lists).To(Equal(1), "namespaces are listed once")
		})
	}
}

func toAny(in []string) []any {
	out := make([]any, len(in))
	for i := range in {
		out[i] = in[i]
	}
	return out
}

func TestNamespacesOfAnyPhaseAreActive(t *testing.T) {
	g := NewWithT(t)
	r := &reader{namespaces: []*corev1.Namespace{builder.ForNamespace("a").Phase(corev1.NamespaceTerminating).Result()}}
	set, _ := resolve(t, r, velerov1.BackupSpec{IncludedNamespaces: []string{"a*"}})
	g.Expect(set.NamespaceList()).To(Equal([]string{"a"}))
}

func TestNamespaceListIsACopy(t *testing.T) {
	g := NewWithT(t)
	set, _ := resolve(t, names("a", "b"), velerov1.BackupSpec{})
	list, _ := set.NamespaceList()
	list[0] = "changed"
	g.Expect(set.NamespaceList()).To(Equal([]string{"a", "b"}))
}

func TestArgoCDWarning(t *testing.T) {
	managed := func(name, value string) *corev1.Namespace {
		return builder.ForNamespace(name).ObjectMeta(builder.WithLabels("argocd.argoproj.io/managed-by", value)).Result()
	}
	live := []*corev1.Namespace{managed("z", "argo"), managed("a", "argo"), managed("empty", ""), managed("out", "argo")}

	t.Run("one warning names all included ones (97)", func(t *testing.T) {
		g := NewWithT(t)
		_, hook := resolve(t, &reader{namespaces: live}, velerov1.BackupSpec{ExcludedNamespaces: []string{"out"}})
		warnings := messages(hook, logrus.WarnLevel)
		g.Expect(warnings).To(HaveLen(1))
		g.Expect(warnings[0]).To(And(ContainSubstring(": a, z."), Not(ContainSubstring("empty")), Not(ContainSubstring("out"))))
	})
	t.Run("none without managed namespaces", func(t *testing.T) {
		g := NewWithT(t)
		_, hook := resolve(t, &reader{namespaces: live}, velerov1.BackupSpec{IncludedNamespaces: []string{"empty"}})
		g.Expect(messages(hook, logrus.WarnLevel)).To(BeEmpty())
	})
}

func TestResolveErrors(t *testing.T) {
	forbidden := errors.New("forbidden")
	cases := map[string]struct {
		reader *reader
		spec   velerov1.BackupSpec
		want   string
	}{
		"list fails":        {&reader{err: forbidden}, velerov1.BackupSpec{}, "listing the cluster's namespaces: forbidden"},
		"malformed pattern": {names("a"), velerov1.BackupSpec{IncludedNamespaces: []string{"a[", "b*"}}, `included \["a\[" "b\*"\]`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			log, _ := logrustest.NewNullLogger()
			_, err := filter.Resolve(t.Context(), log, filter.Deps{Client: tc.reader, Discovery: helper(t)}, tc.spec)
			g.Expect(err).To(MatchError(MatchRegexp(tc.want)))
		})
	}
}

func TestResourceLists(t *testing.T) {
	yes, no := true, false
	cases := map[string]struct {
		spec     velerov1.BackupSpec
		gr       schema.GroupResource
		included bool
		excluded bool
	}{
		"old style: a glob (132)":             {velerov1.BackupSpec{IncludedResources: []string{"p*"}}, kuberesource.Pods, true, false},
		"old style: a short name (100)":       {velerov1.BackupSpec{IncludedResources: []string{"po"}}, kuberesource.Pods, true, false},
		"old style: not listed":               {velerov1.BackupSpec{IncludedResources: []string{"pods"}}, kuberesource.Secrets, false, false},
		"old style: excluded (134)":           {velerov1.BackupSpec{ExcludedResources: []string{"secrets"}}, kuberesource.Secrets, false, true},
		"old style: cluster false (133, 134)": {velerov1.BackupSpec{IncludeClusterResources: &no}, kuberesource.PersistentVolumes, false, true},
		"old style: cluster true (133)":       {velerov1.BackupSpec{IncludeClusterResources: &yes, IncludedNamespaces: []string{"a"}}, kuberesource.PersistentVolumes, true, false},
		"old style: cluster auto, some namespaces (133)": {
			velerov1.BackupSpec{ExcludedResources: []string{"secrets"}, IncludedNamespaces: []string{"a"}}, kuberesource.PersistentVolumes, false, false},
		"old style: namespaces in auto mode (131)": {
			velerov1.BackupSpec{ExcludedResources: []string{"secrets"}, IncludedNamespaces: []string{"a"}}, kuberesource.Namespaces, true, false},
		"scoped: nothing given (98, 136)": {velerov1.BackupSpec{}, kuberesource.PersistentVolumes, true, false},
		"scoped: an explicit namespace list keeps PVs from being collected (139)": {
			velerov1.BackupSpec{IncludedNamespaces: []string{"a"}}, kuberesource.PersistentVolumes, false, false},
		"scoped: namespaces anyway (131)": {velerov1.BackupSpec{IncludedNamespaces: []string{"a"}}, kuberesource.Namespaces, true, false},
		"scoped: exclude star (135, 137)": {
			velerov1.BackupSpec{ExcludedNamespaceScopedResources: []string{"*"}}, kuberesource.Pods, false, true},
		"scoped: cluster list (136)": {
			velerov1.BackupSpec{IncludedNamespaces: []string{"a"}, IncludedClusterScopedResources: []string{"storageclasses"}}, classes, true, false},
		"scoped: a name of the wrong scope is dropped (100)": {
			velerov1.BackupSpec{IncludedNamespaces: []string{"a"}, IncludedNamespaceScopedResources: []string{"pods", "storageclasses"}}, classes, false, false},
		"unknown to discovery (138)": {
			velerov1.BackupSpec{}, schema.GroupResource{Group: "example.com", Resource: "things"}, false, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			set, _ := resolve(t, names("a", "b"), tc.spec)
			for range 2 { // the second answer is the remembered one
				g.Expect(set.IncludesResource(tc.gr)).To(Equal(tc.included), "included")
				g.Expect(set.ExcludesResource(tc.gr)).To(Equal(tc.excluded), "excluded")
			}
		})
	}
}

func TestUnknownTypeIsReportedOnce(t *testing.T) {
	g := NewWithT(t)
	set, hook := resolve(t, names("a"), velerov1.BackupSpec{})
	for range 3 {
		set.IncludesResource(schema.GroupResource{Group: "example.com", Resource: "things"})
	}
	g.Expect(messages(hook, logrus.ErrorLevel)).To(HaveLen(1))
}

func TestIncludes(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	someNamespaces := velerov1.BackupSpec{IncludedNamespaces: []string{"a"}}
	label := builder.WithLabels(velerov1.ExcludeFromBackupLabel, "true")
	cases := map[string]struct {
		spec velerov1.BackupSpec
		obj  metav1.Object
		gr   schema.GroupResource
		must bool
		want string
	}{
		"plain":                    {someNamespaces, builder.ForPod("a", "p").Result(), kuberesource.Pods, false, filter.ReasonIncluded},
		"label (141)":              {someNamespaces, builder.ForPod("a", "p").ObjectMeta(label).Result(), kuberesource.Pods, false, filter.ReasonExcludedByLabel},
		"label with another value": {someNamespaces, builder.ForPod("a", "p").ObjectMeta(builder.WithLabels(velerov1.ExcludeFromBackupLabel, "yes")).Result(), kuberesource.Pods, false, filter.ReasonIncluded},
		"namespace (142)":          {someNamespaces, builder.ForPod("b", "p").Result(), kuberesource.Pods, false, filter.ReasonNamespaceNotIncluded},
		"cluster type, not included but not excluded (143)": {someNamespaces, builder.ForPersistentVolume("v").Result(), kuberesource.PersistentVolumes, false, filter.ReasonIncluded},
		"cluster type, excluded (143)": {velerov1.BackupSpec{ExcludedClusterScopedResources: []string{"persistentvolumes"}},
			builder.ForPersistentVolume("v").Result(), kuberesource.PersistentVolumes, false, filter.ReasonResourceExcluded},
		"namespace objects are settled elsewhere (143)": {velerov1.BackupSpec{ExcludedClusterScopedResources: []string{"namespaces"}},
			builder.ForNamespace("b").Result(), kuberesource.Namespaces, false, filter.ReasonIncluded},
		"namespaced type (144)": {velerov1.BackupSpec{IncludedNamespaceScopedResources: []string{"pods"}},
			builder.ForDeployment("a", "d").Result(), deployments, false, filter.ReasonResourceNotIncluded},
		"selectors are not looked at (146)": {velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}},
			builder.ForPod("a", "p").Result(), kuberesource.Pods, false, filter.ReasonIncluded},
		"must include passes everything (140)": {someNamespaces, builder.ForPod("b", "p").ObjectMeta(label).Result(), kuberesource.Pods, true, filter.ReasonMustInclude},
		"being deleted (147)":                  {someNamespaces, builder.ForPod("a", "p").ObjectMeta(builder.WithDeletionTimestamp(now)).Result(), kuberesource.Pods, false, filter.ReasonBeingDeleted},
		"being deleted, must include (140)":    {someNamespaces, builder.ForPod("a", "p").ObjectMeta(builder.WithDeletionTimestamp(now)).Result(), kuberesource.Pods, true, filter.ReasonBeingDeleted},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			set, _ := resolve(t, names("a", "b"), tc.spec)
			got := set.Includes(tc.obj, tc.gr, tc.must)
			g.Expect(got.Reason).To(Equal(tc.want))
			g.Expect(got.In).To(Equal(tc.want == filter.ReasonIncluded || tc.want == filter.ReasonMustInclude))
			g.Expect(got.Message).NotTo(BeEmpty())
		})
	}
}

// TestConcurrentUse is for the race detector.
func TestConcurrentUse(t *testing.T) {
	g := NewWithT(t)
	set, _ := resolve(t, names("a", "b"), velerov1.BackupSpec{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, gr := range []schema.GroupResource{kuberesource.Pods, kuberesource.Secrets, deployments} {
				g.Expect(set.Includes(builder.ForPod("a", "p").Result(), gr, false).In).To(BeTrue())
			}
			g.Expect(set.NamespaceList()).To(HaveLen(2))
		})
	}
	wg.Wait()
}
