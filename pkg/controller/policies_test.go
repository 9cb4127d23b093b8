// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// policies returns a ConfigMap with one document, without its version.
func policies(name, document string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{"policies.yaml": "version: v1\n" + document},
	}
}

func withGlobalPolicies(name string) func(*setup) {
	return func(s *setup) { s.options.GlobalVolumePolicies = name }
}

func reference(kind, name string) *corev1.TypedLocalObjectReference {
	return &corev1.TypedLocalObjectReference{Kind: kind, Name: name}
}

const (
	skipAll       = "volumePolicies: [{action: {type: skip}}]"
	typeLists     = "includeExcludePolicy: {excludedNamespaceScopedResources: [secrets]}"
	perNamespace  = "namespacedFilterPolicies: [{namespaces: [app], resourceFilters: [{kinds: [pods]}]}]"
	clusterScoped = "clusterScopedFilterPolicy: {resourceFilters: [{kinds: [nodes]}]}"
)

func TestPoliciesReachTheEngine(t *testing.T) { // 49, 50
	const annotation = velerov1.GlobalBackupVolumePolicyConfigMapAnnotation
	for name, tc := range map[string]struct {
		own    *corev1.TypedLocalObjectReference
		global string
		// Whether there are any, those of the server among them, and filters of the backup's own.
		any, server, filters bool
	}{
		"none":                            {},
		"own":                             {own: reference("configmap", "own"), any: true, filters: true},
		"own, written another way":        {own: reference("ConfigMap", "own"), any: true, filters: true},
		"another kind":                    {own: reference("secret", "own")},
		"another kind beside global ones": {own: reference("secret", "own"), global: "global", any: true, server: true},
		"global":                          {global: "global", any: true, server: true},
		"both":                            {own: reference("configmap", "own"), global: "global", any: true, server: true, filters: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := ready("b", func(b *velerov1.Backup) { b.Spec.ResourcePolicy = tc.own })
			h := newHarness(t, with(b, policies("own", typeLists), policies("global", skipAll)), withGlobalPolicies(tc.global))
			done := h.reconcile(t, "b")
			g.Expect(done.Status.ValidationErrors).To(BeEmpty())
			g.Expect(h.engine.requests).To(HaveLen(1))

			handed := h.engine.requests[0].Policies
			g.Expect(handed != nil).To(Equal(tc.any))
			_, given := handed.TypeLists()
			g.Expect(given).To(Equal(tc.filters))
			if tc.server {
				g.Expect(done.Annotations).To(HaveKeyWithValue(annotation, "global"))
			} else {
				g.Expect(done.Annotations).NotTo(HaveKey(annotation))
			}
		})
	}
}

func TestRefusedPolicies(t *testing.T) { // 51, 52
	const own, server = "spec.resourcePolicy: ", "--global-backup-volume-policies-configmap"
	old := velerov1.BackupSpec{IncludedResources: []string{"pods"}}
	for name, tc := range map[string]struct {
		document string
		spec     velerov1.BackupSpec
		global   string
		want     [][]string
	}{
		"not there":                         {want: [][]string{{own, "no ConfigMap velero/own", "or none"}}},
		"bad":                               {document: "volumePolicies: [{action: {type: sikp}}]", want: [][]string{{own, "velero/own", "correct the ConfigMap"}}},
		"an unknown key":                    {document: "volumePolicy: []", want: [][]string{{own, "velero/own", "volumePolicy"}}},
		"the server's isn't there":          {document: skipAll, global: "gone", want: [][]string{{server, "no ConfigMap velero/gone", "without the flag"}}},
		"the server's is bad":               {document: skipAll, global: "bad", want: [][]string{{server, "velero/bad", "correct the ConfigMap"}}},
		"both":                              {document: "version: v1", global: "bad", want: [][]string{{own}, {server}}},
		"type lists with old filters":       {document: typeLists, spec: old, want: [][]string{{"velero/own", "includeExcludePolicy,", "spec.includedResources", "instead"}}},
		"namespaced with old filters":       {document: perNamespace, spec: velerov1.BackupSpec{IncludeClusterResources: ptr.To(true)}, want: [][]string{{"velero/own", "namespacedFilterPolicies,"}}},
		"cluster filter with old ones":      {document: clusterScoped, spec: velerov1.BackupSpec{ExcludedResources: []string{"pods"}}, want: [][]string{{"velero/own", "clusterScopedFilterPolicy,"}}},
		"all of them":                       {document: typeLists + "\n" + perNamespace + "\n" + clusterScoped, spec: old, want: [][]string{{"includeExcludePolicy and namespacedFilterPolicies and clusterScopedFilterPolicy"}}},
		"volume policies with old ones":     {document: skipAll, spec: old},
		"filters of the server don't count": {document: skipAll, spec: old, global: "with-filters"},
		"filters with scoped ones":          {document: typeLists + "\n" + perNamespace, spec: velerov1.BackupSpec{IncludedNamespaceScopedResources: []string{"pods"}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			objects := []client.Object{policies("bad", "version: again"), policies("with-filters", skipAll+"\n"+typeLists)}
			if tc.document != "" {
				objects = append(objects, policies("own", tc.document))
			}
			tc.spec.ResourcePolicy = reference("configmap", "own")
			j := newHarness(t, with(objects...), withGlobalPolicies(tc.global)).prepare(t, specced(tc.spec))
			g.Expect(j.backup.Status.ValidationErrors).To(HaveLen(len(tc.want)))
			for i, words := range tc.want {
				for _, word := range words {
					g.Expect(j.backup.Status.ValidationErrors[i]).To(ContainSubstring(word))
				}
			}
		})
	}
}

func TestPoliciesThatCannotBeRead(t *testing.T) { // 51
	h := newHarness(t, intercepting(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if _, ok := object.(*corev1.ConfigMap); ok {
				return errBoom
			}
			return c.Get(ctx, key, object, opts...)
		},
	}))
	expectRefusals(t, h.prepare(t, specced(velerov1.BackupSpec{ResourcePolicy: reference("configmap", "own")})),
		"spec.resourcePolicy: reading ConfigMap velero/own: boom")
}

func TestFiltersOfTheServersPoliciesAreAWarningOfTheServer(t *testing.T) { // 244
	for document, warnings := range map[string]int{
		skipAll: 0, skipAll + "\n" + typeLists: 1, skipAll + "\n" + perNamespace: 1, skipAll + "\n" + clusterScoped: 1,
	} {
		t.Run(document, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(policies("global", document), ready("b")), withGlobalPolicies("global"))
			done := h.reconcile(t, "b")
			found := 0
			for _, entry := range h.log.AllEntries() {
				if entry.Level == logrus.WarnLevel {
					g.Expect(entry.Message).To(ContainSubstring("only volumePolicies"))
					g.Expect(entry.Data).To(HaveKeyWithValue("configmap", "velero/global"))
					found++
				}
			}
			g.Expect(found).To(Equal(warnings))
			g.Expect(done.Status.Warnings).To(BeZero(), "it isn't the backup's doing")
		})
	}
}
