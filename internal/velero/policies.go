// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package velero

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerobackup "github.com/vmware-tanzu/velero/pkg/backup"
	"github.com/vmware-tanzu/velero/pkg/plugin/utils/volumehelper"
	"github.com/vmware-tanzu/velero/pkg/podvolume"
	"github.com/vmware-tanzu/velero/pkg/util/collections"
	helper "github.com/vmware-tanzu/velero/pkg/util/volumehelper"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Policies are a backup's resource policies, validated. A nil *Policies is none. It doesn't change and is safe for
// concurrent use.
type Policies struct {
	// holder has the policies in its field ResPolicies, whose type has no name here.
	holder velerobackup.Request
}

// LoadPolicies reads the policies of a backup (own) and those of the whole installation (global); either may be nil, and
// without both there are none. Of the global ones only the volume policies count; they come after the backup's own, so
// that these win (50, 244).
func LoadPolicies(own, global *corev1.ConfigMap) (*Policies, error) {
	if own == nil && global == nil {
		return nil, nil
	}
	p := new(Policies)
	p.holder.ResPolicies = newOf(p.holder.ResPolicies)
	document := argumentOf(p.holder.ResPolicies.BuildPolicy)
	if own != nil {
		if err := decode(own, document); err != nil {
			return nil, err
		}
	}
	if global != nil {
		common := argumentOf(p.holder.ResPolicies.BuildPolicy)
		if err := decode(global, common); err != nil {
			return nil, err
		}
		if own == nil {
			document.Version = common.Version
		}
		document.VolumePolicies = append(document.VolumePolicies, common.VolumePolicies...)
	}
	err := p.holder.ResPolicies.BuildPolicy(document)
	if err == nil {
		err = p.holder.ResPolicies.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("resource policies %s: %w", namesOf(own, global), err)
	}
	return p, nil
}

// OnlyVolumePolicies says whether a ConfigMap of policies, which must be valid, has nothing but volume policies: in a global
// one everything else is without effect.
func OnlyVolumePolicies(global *corev1.ConfigMap) (bool, error) {
	p, err := LoadPolicies(global, nil)
	if err != nil {
		return false, err
	}
	policies := p.holder.ResPolicies
	return policies.GetIncludeExcludePolicy() == nil && policies.GetClusterScopedFilterPolicy() == nil &&
		len(policies.GetNamespacedFilterPolicies()) == 0, nil
}

func namesOf(maps ...*corev1.ConfigMap) string {
	var names []string
	for _, m := range maps {
		if m != nil {
			names = append(names, "ConfigMap "+m.Namespace+"/"+m.Name)
		}
	}
	return strings.Join(names, " and ")
}

// newOf makes a value of the type that a pointer points to; nil will do.
func newOf[T any](*T) *T { return new(T) }

// argumentOf makes a value for the only parameter of a function.
func argumentOf[T any](func(*T) error) *T { return new(T) }

// decode reads the one document of a ConfigMap. A key that Velero doesn't know is an error.
func decode(from *corev1.ConfigMap, into any) error {
	if len(from.Data) != 1 {
		return fmt.Errorf("ConfigMap %s/%s has %d keys under data instead of one: put all policies into one document", from.Namespace, from.Name, len(from.Data))
	}
	for key, text := range from.Data {
		err := decodeText(text, into)
		if err != nil {
			return fmt.Errorf("ConfigMap %s/%s, key %s: %w", from.Namespace, from.Name, key, err)
		}
	}
	return nil
}

func decodeText(text string, into any) error {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return checkConditions(text)
}

// checkConditions finds conditions of a wrong type, which would be taken for ones that aren't there.
func checkConditions(text string) error {
	var document struct {
		VolumePolicies []struct {
			Conditions map[string]any `yaml:"conditions"`
		} `yaml:"volumePolicies"`
	}
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return err
	}
	for i, policy := range document.VolumePolicies {
		for name, isRight := range map[string]func(any) bool{
			"pvcLabels":      func(v any) bool { _, ok := v.(map[string]any); return ok },
			"pvcVolumeMode":  func(v any) bool { _, ok := v.(string); return ok },
			"pvcAccessModes": isListOfStrings,
		} {
			if value, given := policy.Conditions[name]; given && !isRight(value) {
				return fmt.Errorf("volumePolicies[%d].conditions.%s has the value %v of a wrong type: it is %s", i, name, value, rightType[name])
			}
		}
	}
	return nil
}

var rightType = map[string]string{
	"pvcLabels": "a map of labels", "pvcVolumeMode": "a string, Filesystem or Block", "pvcAccessModes": "a list of strings",
}

func isListOfStrings(value any) bool {
	list, ok := value.([]any)
	return ok && !slices.ContainsFunc(list, func(element any) bool { _, ok := element.(string); return !ok })
}

// TypeLists are lists of resource types, as in a backup's spec.
type TypeLists struct {
	IncludedClusterScoped, ExcludedClusterScoped, IncludedNamespaced, ExcludedNamespaced []string
}

// TypeLists are those of the includeExcludePolicy; false when there is none.
func (p *Policies) TypeLists() (TypeLists, bool) {
	if p == nil || p.holder.ResPolicies.GetIncludeExcludePolicy() == nil {
		return TypeLists{}, false
	}
	policy := p.holder.ResPolicies.GetIncludeExcludePolicy()
	return TypeLists{
		IncludedClusterScoped: policy.IncludedClusterScopedResources, ExcludedClusterScoped: policy.ExcludedClusterScopedResources,
		IncludedNamespaced: policy.IncludedNamespaceScopedResources, ExcludedNamespaced: policy.ExcludedNamespaceScopedResources,
	}, true
}

// AddTypeLists adds the includeExcludePolicy to what the spec says about types; the spec wins (99).
func (p *Policies) AddTypeLists(to *collections.ScopeIncludesExcludes) {
	if p != nil {
		to.CombineWithPolicy(p.holder.ResPolicies.GetIncludeExcludePolicy())
	}
}

// KindFilter narrows what is backed up of some kinds. Without kinds, or with "*", it is for all that no other one is for.
type KindFilter struct {
	Kinds []string
	// Selectors are joined by or; none means every object.
	Selectors            []metav1.LabelSelector
	Names, ExcludedNames []string
}

// IsCatchAll says whether it is for all kinds that no other filter is for.
func (f KindFilter) IsCatchAll() bool {
	return len(f.Kinds) == 0 || len(f.Kinds) == 1 && f.Kinds[0] == "*"
}

// NamespacedFilter narrows what is backed up in some namespaces, which may be globs.
type NamespacedFilter struct {
	Namespaces []string
	Filters    []KindFilter
}

// ClusterFilters are those of the clusterScopedFilterPolicy; none means that it doesn't say anything.
func (p *Policies) ClusterFilters() []KindFilter {
	if p == nil || p.holder.ResPolicies.GetClusterScopedFilterPolicy() == nil {
		return nil
	}
	return kindFilters(p.holder.ResPolicies.GetClusterScopedFilterPolicy().ResourceFilters)
}

// NamespacedFilters are the namespacedFilterPolicies, in their order.
func (p *Policies) NamespacedFilters() []NamespacedFilter {
	if p == nil {
		return nil
	}
	var all []NamespacedFilter
	for _, policy := range p.holder.ResPolicies.GetNamespacedFilterPolicies() {
		all = append(all, NamespacedFilter{Namespaces: policy.Namespaces, Filters: kindFilters(policy.ResourceFilters)})
	}
	return all
}

// kindFilters reads a list of Velero's filters by the keys that they have in a document: their type can't be named.
func kindFilters(list any) []KindFilter {
	type selector struct {
		MatchLabels      map[string]string `yaml:"matchLabels"`
		MatchExpressions []struct {
			Key      string   `yaml:"key"`
			Operator string   `yaml:"operator"`
			Values   []string `yaml:"values"`
		} `yaml:"matchExpressions"`
	}
	var documents []struct {
		Kinds            []string   `yaml:"kinds"`
		LabelSelector    selector   `yaml:"labelSelector"`
		OrLabelSelectors []selector `yaml:"orLabelSelectors"`
		Names            []string   `yaml:"names"`
		ExcludedNames    []string   `yaml:"excludedNames"`
	}
	text, err := yaml.Marshal(list)
	if err == nil {
		err = yaml.Unmarshal(text, &documents)
	}
	if err != nil {
		panic(fmt.Sprintf("resource filters that were decoded can't be encoded again: %v", err))
	}
	var filters []KindFilter
	for _, d := range documents {
		f := KindFilter{Kinds: d.Kinds, Names: d.Names, ExcludedNames: d.ExcludedNames}
		for _, s := range append([]selector{d.LabelSelector}, d.OrLabelSelectors...) {
			if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
				continue // an empty one counts as absent
			}
			made := metav1.LabelSelector{MatchLabels: s.MatchLabels}
			for _, e := range s.MatchExpressions {
				made.MatchExpressions = append(made.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values,
				})
			}
			f.Selectors = append(f.Selectors, made)
		}
		filters = append(filters, f)
	}
	return filters
}

// VolumeHelperOptions are what a volume helper goes by beside the policies.
type VolumeHelperOptions struct {
	// SnapshotVolumes and DefaultVolumesToFsBackup are those of the backup's spec.
	SnapshotVolumes          *bool
	DefaultVolumesToFsBackup bool
	// ExcludesClaims: PersistentVolumeClaims are not part of the backup.
	ExcludesClaims bool
	// Namespaces whose pods count.
	Namespaces []string
	Client     client.Client
	Log        logrus.FieldLogger
}

// VolumeHelper makes Velero's own helper, which decides how a volume is protected (P).
func (p *Policies) VolumeHelper(o VolumeHelperOptions) (helper.VolumeHelper, error) {
	return volumehelper.NewVolumeHelperWithNamespaces(p.policies().ResPolicies, o.SnapshotVolumes, o.Log, o.Client,
		o.DefaultVolumesToFsBackup, o.ExcludesClaims, o.Namespaces)
}

// BackupPodVolumes has Velero's backupper make the PodVolumeBackups of a pod (251 to 254).
func (p *Policies) BackupPodVolumes(
	backupper podvolume.Backupper, backup *velerov1.Backup, pod *corev1.Pod, volumes []string, log logrus.FieldLogger,
) ([]*velerov1.PodVolumeBackup, *podvolume.PVCBackupSummary, []error) {
	return backupper.BackupPodVolumes(backup, pod, volumes, p.policies().ResPolicies, log)
}

// policies returns the holder, an empty one for nil.
func (p *Policies) policies() *velerobackup.Request {
	if p == nil {
		return new(velerobackup.Request)
	}
	return &p.holder
}
