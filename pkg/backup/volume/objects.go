// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNoSnapshotCRDs says that the cluster can't take CSI snapshots at all.
var ErrNoSnapshotCRDs = errors.New("the cluster has no snapshot.storage.k8s.io API; install the snapshot CRDs, the snapshot-controller " +
	"and the csi-snapshotter sidecar of kubernetes-csi/external-snapshotter")

// Objects knows the volumes, claims and snapshot classes of a cluster for the length of one backup: what was collected anyway is
// never asked for again, and what was not is read once. It is safe for concurrent use.
//
// It is also a client.Client, so that Velero's volume helper reads volumes and claims through it.
type Objects struct {
	client.Client

	mu      sync.Mutex
	volumes map[string]*corev1.PersistentVolume
	claims  map[client.ObjectKey]*corev1.PersistentVolumeClaim
	classes *snapshotv1.VolumeSnapshotClassList
	// noCRDs: it was found out that there are no classes, which isn't asked for again for every claim.
	noCRDs bool
}

// NewObjects returns Objects that ask c for what they don't know yet.
func NewObjects(c client.Client) *Objects {
	return &Objects{Client: c, volumes: map[string]*corev1.PersistentVolume{}, claims: map[client.ObjectKey]*corev1.PersistentVolumeClaim{}}
}

// Know tells of a volume that was read anyway. pv must not be changed afterwards.
func (o *Objects) Know(pv *corev1.PersistentVolume) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.volumes[pv.Name] = pv
}

// KnowClaim tells of a claim that was read anyway. pvc must not be changed afterwards.
func (o *Objects) KnowClaim(pvc *corev1.PersistentVolumeClaim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claims[client.ObjectKeyFromObject(pvc)] = pvc
}

// IsUnbound says whether a claim is there and has no volume.
func (o *Objects) IsUnbound(ctx context.Context, namespace, name string) bool {
	pvc := new(corev1.PersistentVolumeClaim)
	return o.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pvc) == nil && !isBound(pvc)
}

// Volume returns a PersistentVolume by name. The caller must not change it.
func (o *Objects) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	o.mu.Lock()
	known := o.volumes[name]
	o.mu.Unlock()
	if known != nil {
		return known, nil
	}
	pv := new(corev1.PersistentVolume)
	if err := o.Client.Get(ctx, client.ObjectKey{Name: name}, pv); err != nil {
		return nil, fmt.Errorf("reading PersistentVolume %s: %w", name, err)
	}
	o.Know(pv)
	return pv, nil
}

// SnapshotClasses returns all VolumeSnapshotClasses. The caller must not change them.
func (o *Objects) SnapshotClasses(ctx context.Context) (*snapshotv1.VolumeSnapshotClassList, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.classes != nil {
		return o.classes, nil
	}
	if o.noCRDs {
		return nil, ErrNoSnapshotCRDs
	}
	classes := new(snapshotv1.VolumeSnapshotClassList)
	if err := o.List(ctx, classes); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			o.noCRDs = true
			return nil, ErrNoSnapshotCRDs
		}
		return nil, fmt.Errorf("listing VolumeSnapshotClasses: %w", err)
	}
	o.classes = classes
	return classes, nil
}

// Get answers for known volumes and claims from memory and passes everything else on.
func (o *Objects) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	switch into := obj.(type) {
	case *corev1.PersistentVolume:
		known, err := o.Volume(ctx, key.Name)
		if err != nil {
			return err
		}
		known.DeepCopyInto(into)
		return nil
	case *corev1.PersistentVolumeClaim:
		o.mu.Lock()
		known := o.claims[key]
		o.mu.Unlock()
		if known != nil {
			known.DeepCopyInto(into)
			return nil
		}
	}
	return o.Client.Get(ctx, key, obj, opts...)
}

// KnownClasses returns the VolumeSnapshotClasses that were read so far; it asks for nothing.
func (o *Objects) KnownClasses() []snapshotv1.VolumeSnapshotClass {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.classes == nil {
		return nil
	}
	return o.classes.Items
}
