// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"

	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Decider answers what the backup's spec and its volume policies want for a volume; Velero's volume helper is one.
type Decider interface {
	// ShouldPerformSnapshot says whether a snapshot is wanted. For a claim that isn't bound only a policy can tell; without
	// one for it that is an error (230, 240).
	ShouldPerformSnapshot(obj runtime.Unstructured, groupResource schema.GroupResource) (bool, error)
	// GetActionParameters returns the action of the volume policy that decides about a volume. There is none when no policy
	// matches, and for a claim that isn't bound.
	GetActionParameters(obj runtime.Unstructured, groupResource schema.GroupResource) (found bool, action string, parameters map[string]any, err error)
}

// Actions of volume policies beside the snapshot (239).
const (
	skipAction     = "skip"
	fsBackupAction = "fs-backup"
	customAction   = "custom"
)

// ReasonSkippedByPolicy is why a volume policy leaves a volume out.
const ReasonSkippedByPolicy = "a volume policy says that the volume is skipped"

// unwanted says why no snapshot of a volume is wanted; without a reason one is.
func unwanted(decider Decider, object runtime.Unstructured, gr schema.GroupResource) (approach Approach, reason string, err error) {
	wanted, err := decider.ShouldPerformSnapshot(object, gr)
	if err != nil || wanted {
		return "", "", err
	}
	_, action, _, err := decider.GetActionParameters(object, gr)
	if err != nil {
		return "", "", err
	}
	switch action {
	case skipAction:
		return ApproachAny, ReasonSkippedByPolicy, nil
	case fsBackupAction:
		return ApproachSnapshot, "a volume policy asks for a file-system backup of the volume", nil
	case customAction:
		return ApproachSnapshot, "a volume policy leaves the volume to a custom action", nil
	default:
		return ApproachSnapshot, "a snapshot of this volume isn't wanted by the backup's spec or a file-system backup of it", nil
	}
}

// SkippedByPolicy says whether a volume policy skips a claim. The error fails the claim's item (184).
func (p *Planner) SkippedByPolicy(ctx context.Context, claim *unstructured.Unstructured) (bool, error) {
	pvc, err := toClaim(claim)
	if err != nil {
		return false, err
	}
	if !isBound(pvc) {
		return p.policyKnows(claim), nil
	}
	if _, err := p.volumeOf(ctx, pvc); err != nil {
		return false, err
	}
	_, action, _, err := p.Decider.GetActionParameters(claim, kuberesource.PersistentVolumeClaims)
	if err != nil {
		return false, fmt.Errorf("finding the volume policy for claim %s/%s: %w", pvc.Namespace, pvc.Name, err)
	}
	return action == skipAction, nil
}

// policyKnows says whether a volume policy says for a claim that isn't bound that it gets no snapshot (240).
func (p *Planner) policyKnows(claim *unstructured.Unstructured) bool {
	wanted, err := p.Decider.ShouldPerformSnapshot(claim, kuberesource.PersistentVolumeClaims)
	return err == nil && !wanted
}

func (p *Planner) volumeOf(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	pv, err := p.Objects.Volume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return nil, fmt.Errorf("finding the volume of claim %s/%s: %w", pvc.Namespace, pvc.Name, err)
	}
	return pv, nil
}

func isBound(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Status.Phase == corev1.ClaimBound && pvc.Spec.VolumeName != ""
}
