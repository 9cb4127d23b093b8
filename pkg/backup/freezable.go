// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
)

// worthFreezing leaves out pods that can't be in the backup because a claim of theirs can't be protected as asked, such as with
// a snapshot class that isn't there: an application isn't stopped for nothing. The claim's own error says what is wrong.
func (r *run) worthFreezing(pods []collect.Item) []collect.Item {
	var found []collect.Item
	for _, pod := range pods {
		if claim := r.unprotectable(pod.Object()); claim != "" {
			r.log.WithField("resource", kuberesource.Pods.String()).WithField("namespace", pod.Namespace).WithField("name", pod.Name).
				Infof("The pod's hooks are not run: claim %s can't be protected, so the pod will not be in the backup", claim)
			continue
		}
		found = append(found, pod)
	}
	return found
}

// unprotectable returns the first claim of a pod whose plan is an error; empty when there is none.
func (r *run) unprotectable(pod *unstructured.Unstructured) string {
	volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
	for _, v := range volumes {
		fields, ok := v.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(fields, "persistentVolumeClaim", "claimName")
		if name != "" && r.claims.failed(types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}) {
			return name
		}
	}
	return ""
}

// failed says whether a claim was planned and that gave an error.
func (c *claims) failed(name types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := c.byName[name]
	return claim != nil && claim.err != nil
}
