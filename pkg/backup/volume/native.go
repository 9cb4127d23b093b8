// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerobackup "github.com/vmware-tanzu/velero/pkg/backup"
	"github.com/vmware-tanzu/velero/pkg/features"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	vsv1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/volumesnapshotter/v1"
	"github.com/vmware-tanzu/velero/pkg/util/boolptr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/velero"
)

// Native takes native snapshots, those of VolumeSnapshotter plugins, one for each volume of a backup that wants one. It
// is safe for concurrent use once its fields are set. It calls plugins in the goroutine of its caller, so that the caller
// decides how many calls there are at once.
type Native struct {
	// Decider says whether a snapshot is wanted.
	Decider Decider
	// Claims finds the volumes' claims, about which volume policies may have conditions. Nil: there are no policies.
	Claims client.Reader
	// Log is the backup's log.
	Log logrus.FieldLogger

	backup    *velerov1.Backup
	locations []*velerov1.VolumeSnapshotLocation
	plugins   snapshotterCache
	ledger    *Ledger

	mu   sync.Mutex
	done map[string]func() error
}

// snapshotterCache gives one initialised plugin per location; Velero's is one (270).
type snapshotterCache interface {
	SetNX(location *velerov1.VolumeSnapshotLocation) (vsv1.VolumeSnapshotter, error)
}

// NewNative returns a Native for the snapshot locations of a backup. What it takes and skips is entered into the ledger.
func NewNative(backup *velerov1.Backup, locations []*velerov1.VolumeSnapshotLocation, plugins velerobackup.VolumeSnapshotterGetter, ledger *Ledger) *Native {
	return &Native{
		backup: backup, locations: locations, plugins: velerobackup.NewVolumeSnapshotterCache(plugins), ledger: ledger,
		done: map[string]func() error{},
	}
}

// Protect takes a native snapshot of a volume if it is to have one, and enters into the ledger what came of it. A volume
// is looked at once; who comes later gets the same result, and waits for it. The error fails the volume's item. A panic
// of a plugin is an error, too (369). A snapshot that isn't taken when ctx ends fails with the cause, also when the plugin
// takes it all the same: calls to plugins can't be ended.
func (n *Native) Protect(ctx context.Context, object runtime.Unstructured, pv *corev1.PersistentVolume) error {
	n.mu.Lock()
	result := n.done[pv.Name]
	if result == nil {
		result = sync.OnceValue(func() (err error) {
			defer func() {
				if cause := recover(); cause != nil {
					err = fmt.Errorf("panic while taking a native snapshot of volume %s: %v\n%s", pv.Name, cause, debug.Stack())
				}
			}()
			return n.protect(ctx, object, pv)
		})
		n.done[pv.Name] = result
	}
	n.mu.Unlock()
	return result()
}

func (n *Native) protect(ctx context.Context, object runtime.Unstructured, pv *corev1.PersistentVolume) error {
	skip, left, err := n.leftToOthers(ctx, object, pv)
	if err != nil || left {
		return err
	}
	if skip != "" {
		n.ledger.Skip(pv.Name, ApproachSnapshot, skip)
		return nil
	}
	found := n.find(object, pv)
	if found.plugin == nil {
		n.ledger.Skip(pv.Name, ApproachSnapshot, "no volume snapshotter plugin claims this volume")
		return nil
	}
	return n.take(ctx, found, pv)
}

// leftToOthers says whether a volume gets no native snapshot, and why, unless that needs no mention because the volume is
// one for CSI snapshots (259 to 262).
func (n *Native) leftToOthers(ctx context.Context, object runtime.Unstructured, pv *corev1.PersistentVolume) (skip string, left bool, err error) {
	_, skip, err = unwanted(n.Decider, object, kuberesource.PersistentVolumes)
	if err != nil {
		return "", false, fmt.Errorf("deciding whether volume %s is to be snapshotted: %w", pv.Name, err)
	}
	if skip != "" {
		return skip, false, nil
	}
	csi := features.IsEnabled(velerov1.CSIFeatureFlag)
	if csi && pv.Spec.CSI != nil {
		return "", true, nil
	}
	if boolptr.IsSetToTrue(n.backup.Spec.SnapshotMoveData) { // (261)
		log := n.log(pv)
		log.Warn("The data of a native snapshot can't be moved to the backup storage location (spec.snapshotMoveData); the snapshot stays where it is taken")
		if csi {
			log.Warn("The volume isn't provided by a CSI driver: it gets a native snapshot, if there is a plugin for it, instead of a CSI snapshot")
		}
	}
	skipped, err := n.skippedByClaim(ctx, pv)
	if err == nil && skipped {
		skip = ReasonSkippedByPolicy
	}
	return skip, false, err
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

// log is for lines about a volume. With an empty namespace they stand in the results file among those of the cluster, as in stock (56).
func (n *Native) log(pv *corev1.PersistentVolume) logrus.FieldLogger {
	return n.Log.WithFields(logrus.Fields{"resource": kuberesource.PersistentVolumes.String(), "namespace": "", "name": pv.Name})
}

// claimed is a volume that a location's plugin knows.
type claimed struct {
	location string
	plugin   vsv1.VolumeSnapshotter
	volumeID string
}

// find returns the first snapshot location whose plugin knows the volume. A plugin that can't tell is an error line, one
// that doesn't know it a warning, and the next is asked (264).
func (n *Native) find(object runtime.Unstructured, pv *corev1.PersistentVolume) claimed {
	for _, location := range n.locations {
		log := n.log(pv).WithField("volumeSnapshotLocation", location.Name)
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
			return claimed{location: location.Name, plugin: plugin, volumeID: id}
		}
	}
	return claimed{}
}

// take has the plugin take the snapshot. What can be found wrong before that leaves no trace (267); after that the record
// is kept, also of a snapshot that failed (268, 269).
func (n *Native) take(ctx context.Context, found claimed, pv *corev1.PersistentVolume) error {
	zone := zoneOf(pv)
	kind, iops, err := found.plugin.GetVolumeInfo(found.volumeID, zone)
	if err != nil {
		return fmt.Errorf("asking the plugin of snapshot location %s about volume %s (%s): %w", found.location, pv.Name, found.volumeID, err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("no native snapshot of volume %s is taken: %w", pv.Name, context.Cause(ctx))
	}
	tags := maps.Clone(n.backup.Labels) // (266)
	if tags == nil {
		tags = map[string]string{}
	}
	tags["velero.io/backup"], tags["velero.io/pv"] = n.backup.Name, pv.Name

	n.ledger.Taken(pv.Name)
	record := velero.NativeSnapshot{
		Location: found.location, Volume: pv.Name, VolumeID: found.volumeID, Type: kind, Zone: zone, IOPS: iops, Failed: true,
	}
	defer func() { n.ledger.NativeSnapshot(record) }() // also when the plugin panics
	id, err := found.plugin.CreateSnapshot(found.volumeID, zone, tags)
	if err != nil {
		return fmt.Errorf("taking a snapshot of volume %s (%s) by the plugin of snapshot location %s: %w", pv.Name, found.volumeID, found.location, err)
	}
	record.SnapshotID, record.Failed = id, false
	n.Log.WithFields(logrus.Fields{"persistentVolume": pv.Name, "volumeSnapshotLocation": found.location}).Infof("Took native snapshot %s", id)
	if ctx.Err() != nil { // it is recorded, and so deleted with the backup
		return fmt.Errorf("native snapshot %s of volume %s was taken too late: %w", id, pv.Name, context.Cause(ctx))
	}
	return nil
}
