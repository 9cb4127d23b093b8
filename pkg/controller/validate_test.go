// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/velero-clipper/clipper/pkg/backup"
)

const (
	vs  = "volumesnapshots.snapshot.storage.k8s.io"
	vsc = "volumesnapshotcontents.snapshot.storage.k8s.io"
)

func specced(spec velerov1.BackupSpec) *velerov1.Backup {
	return ready("b", func(b *velerov1.Backup) { b.Spec = spec })
}

func TestRefusedFilters(t *testing.T) { // 42, 43, 47, 48
	const (
		mixed     = "can't be mixed with"
		old       = "spec.includedResources and excludedResources: "
		cluster   = "spec.includedClusterScopedResources and excludedClusterScopedResources: "
		scoped    = "spec.includedNamespaceScopedResources and excludedNamespaceScopedResources: "
		namespace = "spec.includedNamespaces and excludedNamespaces: "
	)
	for _, c := range []struct {
		name string
		spec velerov1.BackupSpec
		want []string
	}{
		{"old alone", velerov1.BackupSpec{IncludedResources: []string{"pods"}, ExcludedResources: []string{"secrets"}, IncludeClusterResources: ptr.To(false)}, nil},
		{"scoped alone", velerov1.BackupSpec{IncludedNamespaceScopedResources: []string{"pods"}, ExcludedClusterScopedResources: []string{"*"}}, nil},
		{"old includes and scoped", velerov1.BackupSpec{IncludedResources: []string{"pods"}, IncludedClusterScopedResources: []string{"nodes"}}, []string{mixed}},
		{"old excludes and scoped", velerov1.BackupSpec{ExcludedResources: []string{"pods"}, ExcludedClusterScopedResources: []string{"nodes"}}, []string{mixed}},
		{"cluster resources and scoped", velerov1.BackupSpec{IncludeClusterResources: ptr.To(true), ExcludedNamespaceScopedResources: []string{"pods"}}, []string{mixed}},
		{"all and one", velerov1.BackupSpec{IncludedResources: []string{"*", "pods"}}, []string{old}},
		{"excluding all", velerov1.BackupSpec{ExcludedResources: []string{"*"}}, []string{old}},
		{"old overlap", velerov1.BackupSpec{IncludedResources: []string{"pods"}, ExcludedResources: []string{"pods"}}, []string{old + "excludes list cannot contain an item in the includes list: pods"}},
		{"cluster-scoped all and one", velerov1.BackupSpec{IncludedClusterScopedResources: []string{"*", "nodes"}}, []string{cluster}},
		{"cluster-scoped overlap", velerov1.BackupSpec{IncludedClusterScopedResources: []string{"nodes"}, ExcludedClusterScopedResources: []string{"nodes"}}, []string{cluster}},
		{"namespaced all excluded and one included", velerov1.BackupSpec{IncludedNamespaceScopedResources: []string{"pods"}, ExcludedNamespaceScopedResources: []string{"*"}}, []string{scoped}},
		{"namespaced all and one excluded", velerov1.BackupSpec{ExcludedNamespaceScopedResources: []string{"*", "pods"}}, []string{scoped}},
		{"both scopes at once", velerov1.BackupSpec{IncludedClusterScopedResources: []string{"*", "a"}, IncludedNamespaceScopedResources: []string{"*", "b"}}, []string{cluster, scoped}},
		{"namespace patterns", velerov1.BackupSpec{IncludedNamespaces: []string{"", "app-*", "team-[ab]", "x?"}, ExcludedNamespaces: []string{"app-old"}}, nil},
		{"namespace overlap", velerov1.BackupSpec{IncludedNamespaces: []string{"app"}, ExcludedNamespaces: []string{"app"}}, []string{namespace}},
		{"namespace alternatives", velerov1.BackupSpec{IncludedNamespaces: []string{"a|b"}}, []string{namespace}},
		{"namespace deep wildcard", velerov1.BackupSpec{ExcludedNamespaces: []string{"app-**"}}, []string{namespace}},
		{"namespace open bracket", velerov1.BackupSpec{IncludedNamespaces: []string{"team-[ab"}}, []string{namespace}},
		{"namespace bad name", velerov1.BackupSpec{IncludedNamespaces: []string{"My_App"}}, []string{namespace}},
		{"two kinds of selectors", velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{}, OrLabelSelectors: []*metav1.LabelSelector{{}}}, []string{"spec.labelSelector and spec.orLabelSelectors can't be used together"}},
		{"one selector", velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}, nil},
		{"several selectors", velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{{}, {}}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			expectRefusals(t, newHarness(t).prepare(t, specced(c.spec)), c.want...)
		})
	}
}

func TestRefusedParallelism(t *testing.T) {
	for text, want := range map[string][]string{
		"5": nil, "10%": nil, "unlimited": nil,
		"0": {"velero.io/csi-snapshot-parallelism"}, "many": {"velero.io/csi-snapshot-parallelism"}, "": {"velero.io/csi-snapshot-parallelism"},
	} {
		t.Run(text, func(t *testing.T) {
			b := ready("b", func(b *velerov1.Backup) { b.Annotations = map[string]string{backup.ParallelismAnnotation: text} })
			expectRefusals(t, newHarness(t).prepare(t, b), want...)
		})
	}
}

func TestRefusedFreezeLimit(t *testing.T) {
	for text, want := range map[string][]string{
		"90s": nil, "0": nil, "5m": nil,
		"soon": {"annotation velero.io/max-freeze of Backup b: \"soon\" is no duration"}, "-5s": {"is negative"}, "": {"is no duration"}, "90": {"is no duration"},
	} {
		t.Run(text, func(t *testing.T) {
			b := ready("b", func(b *velerov1.Backup) { b.Annotations = map[string]string{backup.MaxFreezeAnnotation: text} })
			expectRefusals(t, newHarness(t).prepare(t, b), want...)
		})
	}
}

func TestSnapshotsAreLeftToPlugins(t *testing.T) { // 44; 45 is fixed
	for _, c := range []struct {
		name     string
		spec     velerov1.BackupSpec
		old      [2][]string // included and excluded afterwards
		cluster  [2][]string
		perSpace [2][]string
	}{
		{
			name:    "no filters are scoped ones",
			cluster: [2][]string{nil, {vsc}}, perSpace: [2][]string{nil, {vs}},
		},
		{
			name: "old",
			spec: velerov1.BackupSpec{IncludedResources: []string{"pods", vs}, ExcludedResources: []string{"secrets"}},
			old:  [2][]string{{"pods"}, {"secrets", vs, vsc}},
		},
		{
			name: "old duplicates side by side",
			spec: velerov1.BackupSpec{IncludedResources: []string{vs, vs, vsc, "pods", vsc, vs, "pods"}},
			old:  [2][]string{{"pods", "pods"}, {vs, vsc}},
		},
		{
			name: "old, excluded already",
			spec: velerov1.BackupSpec{ExcludedResources: []string{vsc, "secrets"}},
			old:  [2][]string{nil, {vsc, "secrets", vs}},
		},
		{
			name: "each scope its own",
			spec: velerov1.BackupSpec{
				IncludedClusterScopedResources: []string{vsc, vsc, "nodes"}, ExcludedClusterScopedResources: []string{"roles"},
				IncludedNamespaceScopedResources: []string{"pods", vs, vs}, ExcludedNamespaceScopedResources: []string{"secrets"},
			},
			cluster: [2][]string{{"nodes"}, {"roles", vsc}}, perSpace: [2][]string{{"pods"}, {"secrets", vs}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			j := newHarness(t).prepare(t, specced(c.spec))
			expectRefusals(t, j)
			spec := j.backup.Spec
			g.Expect([2][]string{spec.IncludedResources, spec.ExcludedResources}).To(Equal(c.old))
			g.Expect([2][]string{spec.IncludedClusterScopedResources, spec.ExcludedClusterScopedResources}).To(Equal(c.cluster))
			g.Expect([2][]string{spec.IncludedNamespaceScopedResources, spec.ExcludedNamespaceScopedResources}).To(Equal(c.perSpace))
		})
	}

	t.Run("refused filters stay as they are", func(t *testing.T) {
		j := newHarness(t).prepare(t, specced(velerov1.BackupSpec{IncludedResources: []string{"*", vs}}))
		NewWithT(t).Expect(j.backup.Spec.IncludedResources).To(Equal([]string{"*", vs}))
	})
}
