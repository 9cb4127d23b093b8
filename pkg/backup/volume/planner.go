// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	veleroplugin "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	veleroutil "github.com/vmware-tanzu/velero/pkg/util/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// Method is how a volume is protected.
type Method string

const (
	// CSISnapshot: by a VolumeSnapshot.
	CSISnapshot Method = "CSISnapshot"
	// Skipped: not at all; the claim's object is still part of the backup.
	Skipped Method = "Skipped"
)

// Approach names, for the skipped-volume summary, the way of protection that was not taken (BEHAVIOURS 344).
type Approach string

const (
	// ApproachAny is used when the volume was left out altogether.
	ApproachAny Approach = "any"
	// ApproachCSI is used when the volume isn't a CSI volume.
	ApproachCSI Approach = "csiSnapshot"
	// ApproachPodVolume is used when a file-system backup isn't wanted or isn't possible.
	ApproachPodVolume Approach = "podvolume"
	// ApproachSnapshot is used when a snapshot isn't wanted or isn't possible.
	ApproachSnapshot Approach = "volumeSnapshot"
)

// Plan is the decision for one claim.
type Plan struct {
	// Method of protection.
	Method Method
	// Request for the snapshot; set when Method is CSISnapshot. Priority is left for the caller.
	Request snapshot.Request
	// Approach and Reason say why the volume is skipped, when Method is Skipped.
	Approach Approach
	Reason   string
	// Warning, if not empty, is for the backup's log: a skip, or one of a claim's group, that the user should know of.
	Warning string
	// Volume is the claim's PersistentVolume name; empty for an unbound claim.
	Volume string
}

// Planner makes plans for the claims of one backup. It is safe for concurrent use.
type Planner struct {
	// Backup the plans are for.
	Backup *velerov1.Backup
	// Owner is put into each request.
	Owner snapshot.Owner
	// Objects finds volumes and snapshot classes.
	Objects *Objects
	// Decider says whether a snapshot is wanted.
	Decider Decider
	// Mover moves the snapshots' data to the backup storage location; nil when they stay where they are.
	Mover *Mover
	// GroupVersion returns the version of the API groupsnapshot.storage.k8s.io that the cluster serves, or why there is none.
	GroupVersion func() (string, error)

	groups volumeGroups
}

// Plan decides for one claim. An error means that the claim can't be protected as asked; it names the claim, the cause
// and the way out, and fails the claim's item (BEHAVIOURS 186, 276).
func (p *Planner) Plan(ctx context.Context, claim *unstructured.Unstructured) (Plan, error) {
	pvc, err := toClaim(claim)
	if err != nil {
		return Plan{}, err
	}
	name := pvc.Namespace + "/" + pvc.Name

	if !isBound(pvc) {
		return p.unboundPlan(claim, pvc), nil
	}
	pv, err := p.volumeOf(ctx, pvc)
	if err != nil {
		return Plan{}, err
	}
	approach, reason, err := unwanted(p.Decider, claim, kuberesource.PersistentVolumeClaims)
	if err != nil {
		return Plan{}, fmt.Errorf("deciding whether claim %s is to be snapshotted: %w", name, err)
	}
	if reason != "" {
		return Plan{Method: Skipped, Volume: pv.Name, Approach: approach, Reason: reason}, nil
	}
	return p.csiPlan(ctx, pvc, pv)
}

// unboundPlan leaves out what isn't there. That is worth a warning, unless a volume policy has spoken.
func (p *Planner) unboundPlan(claim *unstructured.Unstructured, pvc *corev1.PersistentVolumeClaim) Plan {
	plan := Plan{Method: Skipped, Approach: ApproachAny, Reason: "the claim is not bound to a volume"}
	if !p.policyKnows(claim) {
		plan.Warning = fmt.Sprintf("claim %s/%s is %s and not bound to a volume: its object is backed up, there is no data to snapshot",
			pvc.Namespace, pvc.Name, phaseOf(pvc))
	}
	return plan
}

// csiPlan makes the request for a CSI volume; other volumes are skipped.
func (p *Planner) csiPlan(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) (Plan, error) {
	if pv.Spec.CSI == nil {
		return Plan{
			Method: Skipped, Volume: pv.Name, Approach: ApproachCSI, Reason: "the volume isn't provided by a CSI driver",
		}, nil
	}
	if err := p.Mover.check(ctx, pvc); err != nil {
		return Plan{}, err
	}
	// Only a volume that would be snapshotted can ask for being snapshotted with its group (302).
	group, warning, err := p.group(ctx, pvc, pv)
	if err != nil {
		return Plan{}, err
	}
	class, err := p.class(ctx, pvc, pv.Spec.CSI.Driver)
	if err != nil {
		return Plan{}, err
	}
	return Plan{
		Method:  CSISnapshot,
		Volume:  pv.Name,
		Warning: warning,
		Request: snapshot.Request{
			Owner:        p.Owner,
			Namespace:    pvc.Namespace,
			PVC:          pvc.Name,
			PVCUID:       pvc.UID,
			Driver:       pv.Spec.CSI.Driver,
			Class:        class,
			Group:        group,
			StorageClass: storageClassOf(pvc),
			Labels:       snapshotLabels(pvc),
			Annotations:  p.Mover.annotations(),
			Timeout:      p.Backup.Spec.CSISnapshotTimeout.Duration,
		},
	}, nil
}

// class picks the VolumeSnapshotClass: the claim's annotation, else the backup's, else the class with Velero's label,
// else the driver's default, else its only one (BEHAVIOURS 276). An explicit choice that can't be honoured is an error:
// another class in its place would be a surprise at restore (field case F24).
func (p *Planner) class(ctx context.Context, pvc *corev1.PersistentVolumeClaim, driver string) (string, error) {
	classes, err := p.Objects.SnapshotClasses(ctx)
	if err != nil {
		return "", fmt.Errorf("choosing a VolumeSnapshotClass for claim %s/%s: %w", pvc.Namespace, pvc.Name, err)
	}
	class, err := veleroutil.GetVolumeSnapshotClassFromPVCAnnotationsForDriver(pvc, driver, classes)
	if err == nil && class == nil {
		class, err = veleroutil.GetVolumeSnapshotClassFromBackupAnnotationsForDriver(p.Backup, driver, classes)
	}
	if err != nil {
		return "", fmt.Errorf("claim %s/%s: %w; correct or remove the annotation", pvc.Namespace, pvc.Name, err)
	}
	if class != nil {
		return class.Name, nil
	}
	class, err = veleroutil.GetVolumeSnapshotClassForStorageClass(driver, classes)
	if err != nil || class == nil {
		return "", fmt.Errorf("claim %s/%s: no VolumeSnapshotClass can be chosen for CSI driver %s; create one whose driver is %s, "+
			"and if there are several put the label %s on the one to use", pvc.Namespace, pvc.Name, driver, driver, velerov1.VolumeSnapshotClassSelectorLabel)
	}
	return class.Name, nil
}

// snapshotLabels returns the labels that a VolumeSnapshot takes over from its claim (BEHAVIOURS 277), without those
// that an earlier backup or restore left on the claim (202).
func snapshotLabels(pvc *corev1.PersistentVolumeClaim) map[string]string {
	labels := make(map[string]string, len(pvc.Labels))
	for key, value := range pvc.Labels {
		switch key {
		case velerov1.RestoreNameLabel, velerov1.VolumeSnapshotLabel, velerov1.BackupNameLabel, velerov1.BackupUIDLabel:
		default:
			labels[key] = value
		}
	}
	return labels
}

func storageClassOf(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Spec.StorageClassName == nil {
		return ""
	}
	return *pvc.Spec.StorageClassName
}

func phaseOf(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Status.Phase == "" {
		return string(corev1.ClaimPending)
	}
	return string(pvc.Status.Phase)
}

func toClaim(obj runtime.Unstructured) (*corev1.PersistentVolumeClaim, error) {
	pvc := new(corev1.PersistentVolumeClaim)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.UnstructuredContent(), pvc); err != nil {
		return nil, fmt.Errorf("reading a PersistentVolumeClaim: %w", err)
	}
	return pvc, nil
}

// identifier names an object for Velero's additional items.
func identifier(gr schema.GroupResource, namespace, name string) veleroplugin.ResourceIdentifier {
	return veleroplugin.ResourceIdentifier{GroupResource: gr, Namespace: namespace, Name: name}
}
