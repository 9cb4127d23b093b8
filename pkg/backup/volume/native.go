// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"sync"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerobackup "github.com/vmware-tanzu/velero/pkg/backup"
	"github.com/vmware-tanzu/velero/pkg/features"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	vsv1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/volumesnapshotter/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Native finds out which volumes ask for a native snapshot, one that a VolumeSnapshotter plugin takes. It is safe for
// concurrent use once its fields are set.
type Native struct {
	// Decider says whether a snapshot is wanted.
	Decider Decider
	// Claims finds the volumes' claims, about which volume policies may have conditions. Nil: there are no policies.
	Claims client.Reader
	// Log is the backup's log.
	Log logrus.FieldLogger

	locations []*velerov1.VolumeSnapshotLocation
	mu        sync.Mutex
	plugins   snapshotterCache
}

// snapshotterCache gives one initialised plugin per location; Velero's is one.
type snapshotterCache interface {
	SetNX(location *velerov1.VolumeSnapshotLocation) (vsv1.VolumeSnapshotter, error)
}

// NewNative returns a Native for the snapshot locations of a backup.
func NewNative(locations []*velerov1.VolumeSnapshotLocation, plugins velerobackup.VolumeSnapshotterGetter) *Native {
	return &Native{locations: locations, plugins: velerobackup.NewVolumeSnapshotterCache(plugins)}
}

// Check returns why a volume isn't protected by a native snapshot, or nothing when that needs no mention because the volume
// is one for CSI snapshots. The error fails the volume's item: a plugin claims the volume, and the engine can't take
// native snapshots yet (259, 260, 265).
func (n *Native) Check(ctx context.Context, object runtime.Unstructured, pv *corev1.PersistentVolume) (skip string, err error) {
	_, skip, err = unwanted(n.Decider, object, kuberesource.PersistentVolumes)
	if err != nil {
		return "", fmt.Errorf("deciding whether volume %s is to be snapshotted: %w", pv.Name, err)
	}
	if skip != "" {
		return skip, nil
	}
	if features.IsEnabled(velerov1.CSIFeatureFlag) && pv.Spec.CSI != nil {
		return "", nil
	}
	skipped, err := n.skippedByClaim(ctx, pv)
	if err != nil {
		return "", err
	}
	if skipped {
		return ReasonSkippedByPolicy, nil
	}
	if location := n.claimedBy(object, pv.Name); location != "" {
		return "", fmt.Errorf("volume %s would be snapshotted by the plugin of snapshot location %s, and native snapshots aren't available with the "+
			"parallel engine yet; run the server with --csi-snapshot-parallelism=0, or set spec.snapshotVolumes to false", pv.Name, location)
	}
	return "no volume snapshotter plugin claims this volume", nil
}

// skippedByClaim says whether a volume policy skips the volume by its claim: when a volume is judged alone, conditions about
// claims don't match (262). A claim that is gone is none; the volume's object is worth having all the same.
func (n *Native) skippedByClaim(ctx context.Context, pv *corev1.PersistentVolume) (bool, error) {
	if n.Claims == nil || pv.Spec.ClaimRef == nil {
		return false, nil
	}
	pvc := new(corev1.PersistentVolumeClaim)
	err := n.Claims.Get(ctx, client.ObjectKey{Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}, pvc)
	if err != nil {
		return false, wrap(client.IgnoreNotFound(err), pv.Name)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pvc)
	if err != nil {
		return false, wrap(err, pv.Name)
	}
	_, action, _, err := n.Decider.GetActionParameters(&unstructured.Unstructured{Object: content}, kuberesource.PersistentVolumeClaims)
	return action == skipAction, wrap(err, pv.Name)
}

func wrap(err error, volume string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("finding the volume policy for the claim of volume %s: %w", volume, err)
}

// claimedBy returns the first snapshot location whose plugin knows the volume. A plugin that can't tell is an error line,
// one that doesn't know it a warning, and the next is asked (264).
func (n *Native) claimedBy(object runtime.Unstructured, volume string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, location := range n.locations {
		log := n.Log.WithFields(logrus.Fields{"persistentVolume": volume, "volumeSnapshotLocation": location.Name})
		plugin, err := n.plugins.SetNX(location)
		if err != nil {
			log.WithError(err).Error("The snapshot location's plugin can't be started")
			continue
		}
		id, err := plugin.GetVolumeID(object)
		switch {
		case err != nil:
			log.WithError(err).Error("The snapshot location's plugin can't tell whether the volume is one of its own")
		case id == "":
			log.Warn("The snapshot location's plugin doesn't know the volume")
		default:
			return location.Name
		}
	}
	return ""
}
