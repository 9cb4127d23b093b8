// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package velero

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func config(name, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name}, Data: map[string]string{"policies.yaml": text}}
}

const skipFast = `
version: v1
volumePolicies:
- conditions: {storageClass: [fast]}
  action: {type: skip}
`

const snapshotAll = `
version: v1
volumePolicies:
- conditions: {storageClass: [fast, slow]}
  action: {type: snapshot}
includeExcludePolicy: {excludedNamespaceScopedResources: [secrets]}
`

func TestNoPolicies(t *testing.T) {
	g := NewWithT(t)
	p, err := LoadPolicies(nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p).To(BeNil())
	g.Expect(p.ClusterFilters()).To(BeEmpty())
	g.Expect(p.NamespacedFilters()).To(BeEmpty())
	_, given := p.TypeLists()
	g.Expect(given).To(BeFalse())
	p.AddTypeLists(nil)
	g.Expect(wants(g, p, "slow")).To(BeTrue(), "the spec's default")
}

// wants asks the volume helper about a volume of a storage class.
func wants(g *WithT, p *Policies, class string) bool {
	pv := &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}},
		},
	}
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	helper, err := p.VolumeHelper(VolumeHelperOptions{Log: logrus.New(), Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pv).Build()})
	g.Expect(err).NotTo(HaveOccurred())
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pv)
	g.Expect(err).NotTo(HaveOccurred())
	wanted, err := helper.ShouldPerformSnapshot(&unstructured.Unstructured{Object: content}, kuberesource.PersistentVolumes)
	g.Expect(err).NotTo(HaveOccurred())
	return wanted
}

func TestOwnPoliciesWinOverGlobalOnes(t *testing.T) {
	g := NewWithT(t)
	p, err := LoadPolicies(config("own", skipFast), config("global", snapshotAll))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(wants(g, p, "fast")).To(BeFalse())
	g.Expect(wants(g, p, "slow")).To(BeTrue())
	_, given := p.TypeLists()
	g.Expect(given).To(BeFalse(), "of the global ones only volume policies count")

	reversed, err := LoadPolicies(config("own", snapshotAll), config("global", skipFast))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(wants(g, reversed, "fast")).To(BeTrue())
	lists, given := reversed.TypeLists()
	g.Expect(given).To(BeTrue())
	g.Expect(lists).To(Equal(TypeLists{ExcludedNamespaced: []string{"secrets"}}))

	alone, err := LoadPolicies(nil, config("global", skipFast))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(wants(g, alone, "fast")).To(BeFalse())
}

func TestOnlyVolumePolicies(t *testing.T) {
	g := NewWithT(t)
	g.Expect(OnlyVolumePolicies(config("g", skipFast))).To(BeTrue())
	g.Expect(OnlyVolumePolicies(config("g", snapshotAll))).To(BeFalse())
	_, err := OnlyVolumePolicies(config("g", "version: v2"))
	g.Expect(err).To(HaveOccurred())
}

func TestFiltersInOurOwnTypes(t *testing.T) {
	g := NewWithT(t)
	p, err := LoadPolicies(config("own", `
version: v1
clusterScopedFilterPolicy:
  resourceFilters:
  - kinds: [storageclasses]
    names: [fast-*]
    excludedNames: [fast-old]
namespacedFilterPolicies:
- namespaces: [app, "db-*"]
  resourceFilters:
  - kinds: [configmaps, secrets]
    labelSelector: {matchLabels: {tier: web}, matchExpressions: [{key: old, operator: DoesNotExist}]}
  - kinds: ["*"]
    orLabelSelectors: [{matchLabels: {a: b}}, {matchLabels: {c: d}}]
`), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.ClusterFilters()).To(Equal([]KindFilter{{Kinds: []string{"storageclasses"}, Names: []string{"fast-*"}, ExcludedNames: []string{"fast-old"}}}))
	filters := p.NamespacedFilters()
	g.Expect(filters).To(HaveLen(1))
	g.Expect(filters[0].Namespaces).To(Equal([]string{"app", "db-*"}))
	g.Expect(filters[0].Filters[0].Selectors).To(Equal([]metav1.LabelSelector{{
		MatchLabels: map[string]string{"tier": "web"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "old", Operator: metav1.LabelSelectorOpDoesNotExist}},
	}}))
	g.Expect(filters[0].Filters[0].IsCatchAll()).To(BeFalse())
	g.Expect(filters[0].Filters[1].Selectors).To(HaveLen(2))
	g.Expect(filters[0].Filters[1].IsCatchAll()).To(BeTrue())
}

func TestBadPolicies(t *testing.T) {
	for name, test := range map[string]struct {
		own  *corev1.ConfigMap
		says string
	}{
		"two keys":             {&corev1.ConfigMap{Data: map[string]string{"a": skipFast, "b": skipFast}}, "2 keys under data"},
		"no key":               {&corev1.ConfigMap{}, "0 keys under data"},
		"empty":                {config("own", ""), "velero/own"},
		"unknown key":          {config("own", "version: v1\nvolumePolicy: []"), "volumePolicy"},
		"version":              {config("own", "version: v2"), "v2"},
		"action":               {config("own", "version: v1\nvolumePolicies:\n- {action: {type: sikp}}"), "velero/own"},
		"labels of wrong type": {config("own", "version: v1\nvolumePolicies:\n- {conditions: {pvcLabels: x}, action: {type: skip}}"), "volumePolicies[0].conditions.pvcLabels"},
		"modes of wrong type":  {config("own", "version: v1\nvolumePolicies:\n- {conditions: {pvcAccessModes: [1]}, action: {type: skip}}"), "a list of strings"},
		"a star":               {config("own", "version: v1\nincludeExcludePolicy: {includedClusterScopedResources: ['*']}"), "*"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadPolicies(test.own, nil)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.says)))
		})
	}
}
