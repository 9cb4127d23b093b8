// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

// Phase says when a hook runs.
type Phase string

const (
	// PhasePre hooks run before the snapshots of the pod's volumes are created.
	PhasePre Phase = "pre"
	// PhasePost hooks run when the snapshots of the pod's volumes are cut.
	PhasePost Phase = "post"
)

// Source says where a hook was found. A backup counts hooks of different sources separately.
type Source string

const (
	// SourceAnnotation is a hook that the pod carries in its annotations.
	SourceAnnotation Source = "annotation"
	// SourceSpec is a hook of the backup's spec.hooks.resources.
	SourceSpec Source = "spec"
)

// Hook is one command that a pod asks for.
type Hook struct {
	// Source is where the hook was found.
	Source Source
	// Name is the name of the entry of spec.hooks.resources; empty for a hook from an annotation.
	Name string
	// Index is the hook's position in the pre or post list of its entry; 0 for a hook from an annotation.
	Index int
	// Exec is what to run, with OnError as the user wrote it: an unset value is not replaced by a default, because
	// only an explicit Fail keeps a pod out of the backup. A timeout of 0 means the executor's default of 30 seconds.
	Exec velerov1.ExecHook
}

// String names the hook in messages.
func (h Hook) String() string {
	if h.Source == SourceAnnotation {
		return "from the pod's annotation"
	}
	return fmt.Sprintf("%q (number %d)", h.Name, h.Index)
}

// finished reports whether the pod's containers have all ended for good, so that there is nothing to freeze and nothing
// to run a command in.
func finished(pod *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	return phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed)
}

// containers returns the names of the pod's ordinary containers; a hook can't run in an init container.
func containers(pod *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	names := make([]string, 0, len(list))
	for _, c := range list {
		if fields, ok := c.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(fields, "name")
			names = append(names, name)
		}
	}
	return names
}
