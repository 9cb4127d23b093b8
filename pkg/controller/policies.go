// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/util/collections"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/velero"
)

const globalPoliciesFlag = "--global-backup-volume-policies-configmap"

// loadPolicies reads the backup's resource policies and those of the server, anew for each backup, and puts them into the job
// (49 to 51).
func (r *BackupReconciler) loadPolicies(ctx context.Context, j *job, log logrus.FieldLogger) {
	own, ownErr := r.ownPolicies(ctx, j.backup)
	if ownErr != nil {
		j.refuse("spec.resourcePolicy: %v; correct the ConfigMap, or name another one, or none", ownErr)
	}
	global, globalErr := r.globalPolicies(ctx, j.backup.Namespace, log)
	if globalErr != nil {
		j.refuse("the server's volume policies (flag %s): %v; correct the ConfigMap, or start the server without the flag", globalPoliciesFlag, globalErr)
	}
	if ownErr != nil || globalErr != nil {
		return
	}
	var err error
	if j.policies, err = velero.LoadPolicies(own, global); err != nil {
		j.refuse("spec.resourcePolicy together with the server's volume policies: %v", err)
		return
	}
	if global != nil {
		j.backup.Annotations[velerov1.GlobalBackupVolumePolicyConfigMapAnnotation] = global.Name
	}
}

// ownPolicies returns the ConfigMap that the spec names, or nil: references of other kinds have no effect (49).
func (r *BackupReconciler) ownPolicies(ctx context.Context, b *velerov1.Backup) (*corev1.ConfigMap, error) {
	reference := b.Spec.ResourcePolicy
	if reference == nil || !strings.EqualFold(reference.Kind, "configmap") {
		return nil, nil
	}
	config, err := r.policyConfig(ctx, b.Namespace, reference.Name)
	if err != nil {
		return nil, err
	}
	_, err = velero.LoadPolicies(config, nil)
	return config, err
}

// globalPolicies returns the ConfigMap that the server was started with, or nil.
func (r *BackupReconciler) globalPolicies(ctx context.Context, namespace string, log logrus.FieldLogger) (*corev1.ConfigMap, error) {
	if r.opts.GlobalVolumePolicies == "" {
		return nil, nil
	}
	config, err := r.policyConfig(ctx, namespace, r.opts.GlobalVolumePolicies)
	if err != nil {
		return nil, err
	}
	only, err := velero.OnlyVolumePolicies(config)
	if err != nil {
		return nil, err
	}
	if !only { // (244)
		log.WithField("configmap", namespace+"/"+config.Name).
			Warn("Of the server's resource policies only volumePolicies have an effect; filters can be set by backup only")
	}
	return config, nil
}

func (r *BackupReconciler) policyConfig(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	config := new(corev1.ConfigMap)
	// Not from the cache: that would have to hold every ConfigMap of the namespace, and might be older than the Backup.
	err := r.deps.Uncached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, config)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no ConfigMap %s/%s", namespace, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, name, err)
	}
	return config, nil
}

// validatePolicies refuses filters in policies beside old ones in the spec: the old ones know nothing of scopes (52).
func validatePolicies(j *job) {
	if !collections.UseOldResourceFilters(j.backup.Spec) {
		return
	}
	var sections []string
	if _, given := j.policies.TypeLists(); given {
		sections = append(sections, "includeExcludePolicy")
	}
	if len(j.policies.NamespacedFilters()) > 0 {
		sections = append(sections, "namespacedFilterPolicies")
	}
	if len(j.policies.ClusterFilters()) > 0 {
		sections = append(sections, "clusterScopedFilterPolicy")
	}
	if len(sections) > 0 {
		j.refuse("ConfigMap %s/%s of spec.resourcePolicy has %s, which can't be mixed with spec.includedResources, excludedResources and "+
			"includeClusterResources; use the included and excluded cluster-scoped and namespace-scoped resources of the spec instead",
			j.backup.Namespace, j.backup.Spec.ResourcePolicy.Name, strings.Join(sections, " and "))
	}
}
