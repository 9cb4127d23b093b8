// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// groupWayOut ends the sentences about clusters that can't take groups.
const groupWayOut = "install the group snapshot CRDs of external-snapshotter and have its feature CSIVolumeGroupSnapshot on, or take the group label off the claims"

// volumeGroups knows each volume group once per backup. The zero value is ready.
type volumeGroups struct {
	mu    sync.Mutex
	known map[types.NamespacedName]*volumeGroup
}

// volumeGroup is the claims of a namespace that have the same value of the group label (302).
type volumeGroup struct {
	version, class string
	// refused are the claims that are snapshotted with the group and not wanted in the backup. It is emptied by the first claim that
	// tells of them.
	refused []string
	err     error
}

// groupName is the volume group that a claim belongs to; empty when it belongs to none.
func (p *Planner) groupName(pvc *corev1.PersistentVolumeClaim) string {
	key := p.Backup.Spec.VolumeGroupSnapshotLabelKey
	if key == "" {
		return ""
	}
	return pvc.Labels[key]
}

// group returns how a claim's group is to be taken; nil when it is in none. The warning is about the group and is given once.
func (p *Planner) group(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) (_ *snapshot.Group, warning string, _ error) {
	name := p.groupName(pvc)
	if name == "" {
		return nil, "", nil
	}
	p.groups.mu.Lock()
	defer p.groups.mu.Unlock()
	key := types.NamespacedName{Namespace: pvc.Namespace, Name: name}
	found := p.groups.known[key]
	if found == nil {
		found = &volumeGroup{}
		found.err = p.readGroup(ctx, key, pv.Spec.CSI.Driver, found)
		if p.groups.known == nil {
			p.groups.known = map[types.NamespacedName]*volumeGroup{}
		}
		p.groups.known[key] = found
	}
	if found.err != nil {
		return nil, "", fmt.Errorf("claim %s/%s can't be snapshotted with its volume group %s (label %s): %w",
			pvc.Namespace, pvc.Name, name, p.Backup.Spec.VolumeGroupSnapshotLabelKey, found.err)
	}
	if len(found.refused) > 0 {
		warning = fmt.Sprintf("volume group %s in namespace %s has claims that are left out of the backup's snapshots: %s", name, pvc.Namespace, strings.Join(found.refused, ", "))
		found.refused = nil
	}
	return &snapshot.Group{
		LabelKey: p.Backup.Spec.VolumeGroupSnapshotLabelKey, Name: name, Version: found.version, Class: found.class,
		VolumeHandle: pv.Spec.CSI.VolumeHandle,
	}, warning, nil
}

// readGroup looks at the whole group: what its VolumeGroupSnapshot selects must be of one driver, and of one mind about the
// class (304, 305).
func (p *Planner) readGroup(ctx context.Context, key types.NamespacedName, driver string, into *volumeGroup) (err error) {
	if p.GroupVersion == nil {
		return errors.New("group snapshots aren't available")
	}
	if into.version, err = p.GroupVersion(); err != nil {
		return fmt.Errorf("the cluster has no CRD %s.%s: %w; %s", snapshot.GroupResource, snapshot.GroupAPI, err, groupWayOut)
	}
	var claims corev1.PersistentVolumeClaimList
	err = p.Objects.List(ctx, &claims, client.InNamespace(key.Namespace), client.MatchingLabels{p.Backup.Spec.VolumeGroupSnapshotLabelKey: key.Name})
	if err != nil {
		return fmt.Errorf("listing the claims of the group: %w", err)
	}
	named := map[string]bool{}
	for i := range claims.Items {
		wanted, err := p.checkMember(ctx, &claims.Items[i], driver)
		if err != nil {
			return err
		}
		if !wanted {
			into.refused = append(into.refused, claims.Items[i].Name)
		}
		if annotation := claims.Items[i].Annotations[velerov1.VolumeGroupSnapshotClassAnnotationPVC]; wanted && annotation != "" {
			named[annotation] = true
		}
	}
	into.class, err = p.groupClass(ctx, into.version, driver, named)
	return err
}

// checkMember says whether a claim of a group is wanted in the backup, and why it can't be.
func (p *Planner) checkMember(ctx context.Context, pvc *corev1.PersistentVolumeClaim, driver string) (wanted bool, err error) {
	if !isBound(pvc) {
		return false, fmt.Errorf("claim %s of the group isn't bound to a volume, and external-snapshotter takes no group with such a claim; take the label off it", pvc.Name)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pvc)
	if err != nil {
		return false, fmt.Errorf("encoding claim %s: %w", pvc.Name, err)
	}
	if _, reason, err := unwanted(p.Decider, &unstructured.Unstructured{Object: content}, kuberesource.PersistentVolumeClaims); err != nil || reason != "" {
		return false, err
	}
	pv, err := p.volumeOf(ctx, pvc)
	if err != nil {
		return false, err
	}
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != driver {
		return false, fmt.Errorf("claim %s of the group has a volume that isn't of CSI driver %s; a group has one driver", pvc.Name, driver)
	}
	return true, nil
}

// groupClass picks the VolumeGroupSnapshotClass: that of the claims' annotations, else of the backup's, else the driver's one with
// Velero's label (305). A named class must be there and be the driver's, as for single snapshots.
func (p *Planner) groupClass(ctx context.Context, version, driver string, named map[string]bool) (string, error) {
	if len(named) == 0 {
		if name := p.Backup.Annotations[velerov1.VolumeGroupSnapshotClassAnnotationBackupPrefix+driver]; name != "" {
			named[name] = true
		}
	}
	if len(named) > 1 {
		return "", fmt.Errorf("the claims' annotations %s name different classes; a group has one class", velerov1.VolumeGroupSnapshotClassAnnotationPVC)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: snapshot.GroupAPI, Version: version, Kind: "VolumeGroupSnapshotClassList"})
	if err := p.Objects.List(ctx, list); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return "", fmt.Errorf("the cluster has no CRD %s.%s; %s", snapshot.GroupClassResource, snapshot.GroupAPI, groupWayOut)
	} else if err != nil {
		return "", fmt.Errorf("listing VolumeGroupSnapshotClasses: %w", err)
	}
	var labelled []string
	for _, class := range list.Items {
		of, _, _ := unstructured.NestedString(class.Object, "driver")
		switch {
		case of != driver:
		case named[class.GetName()]:
			return class.GetName(), nil
		case class.GetLabels()[velerov1.VolumeGroupSnapshotClassDefaultLabel] == "true":
			labelled = append(labelled, class.GetName())
		}
	}
	for name := range named {
		return "", fmt.Errorf("there is no VolumeGroupSnapshotClass %s for CSI driver %s; correct or remove the annotation", name, driver)
	}
	if len(labelled) != 1 {
		slices.Sort(labelled)
		return "", fmt.Errorf("of the VolumeGroupSnapshotClasses of CSI driver %s exactly one must have the label %s=true; these have it: [%s]",
			driver, velerov1.VolumeGroupSnapshotClassDefaultLabel, strings.Join(labelled, " "))
	}
	return labelled[0], nil
}
