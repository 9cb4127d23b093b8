// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// This file acts on the objects of the API in memory as the controllers and the driver do.

func (a *api) snapshot(key types.NamespacedName) *snapshotv1.VolumeSnapshot {
	o, err := a.get(snapshotsResource, key.Namespace, key.Name)
	if err != nil {
		return nil
	}
	return o.(*snapshotv1.VolumeSnapshot)
}

func (a *api) count(resource string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.objects[resource])
}

func contentName(vs *snapshotv1.VolumeSnapshot) string { return "snapcontent-" + string(vs.UID) }

// bind makes the content of a VolumeSnapshot, as the snapshot-controller does, without telling the VolumeSnapshot.
func (a *api) bind(key types.NamespacedName, policy snapshotv1.DeletionPolicy) string {
	vs := a.snapshot(key)
	if vs == nil {
		return ""
	}
	content := &snapshotv1.VolumeSnapshotContent{}
	content.Name = contentName(vs)
	content.Spec.Driver = "driver"
	content.Spec.Source.VolumeHandle = ptr.To("volume")
	content.Spec.DeletionPolicy = policy
	content.Spec.VolumeSnapshotRef = corev1.ObjectReference{Namespace: vs.Namespace, Name: vs.Name, UID: vs.UID}
	_, _ = a.create(contentsResource, content)
	return content.Name
}

func (a *api) changeContent(name string, f func(*snapshotv1.VolumeSnapshotContent)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[contentsResource]["/"+name]
	if o == nil {
		return apierrors.NewNotFound(gr(contentsResource), name)
	}
	content := o.DeepCopyObject().(*snapshotv1.VolumeSnapshotContent)
	f(content)
	if content.DeletionTimestamp != nil && len(content.Finalizers) == 0 {
		a.store(contentsResource, content, watch.Deleted)
		return nil
	}
	a.store(contentsResource, content, watch.Modified)
	return nil
}

func (a *api) changeSnapshot(key types.NamespacedName, f func(*snapshotv1.VolumeSnapshot)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[snapshotsResource][key.String()]
	if o == nil {
		return
	}
	vs := o.DeepCopyObject().(*snapshotv1.VolumeSnapshot)
	f(vs)
	if vs.DeletionTimestamp != nil && len(vs.Finalizers) == 0 {
		a.store(snapshotsResource, vs, watch.Deleted)
		return
	}
	a.store(snapshotsResource, vs, watch.Modified)
}

func contentStatus(c *snapshotv1.VolumeSnapshotContent) *snapshotv1.VolumeSnapshotContentStatus {
	if c.Status == nil {
		c.Status = &snapshotv1.VolumeSnapshotContentStatus{ReadyToUse: ptr.To(false)}
	}
	return c.Status
}

// cut binds where needed, and sets the handle.
func (a *api) cut(key types.NamespacedName) {
	name := a.bind(key, snapshotv1.VolumeSnapshotContentDelete)
	_ = a.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) {
		contentStatus(c).SnapshotHandle = ptr.To("handle-of-" + key.Name)
	})
}

// report puts an error on the content; a nil message is an error without one.
func (a *api) report(key types.NamespacedName, message *string) {
	name := a.bind(key, snapshotv1.VolumeSnapshotContentDelete)
	_ = a.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) {
		contentStatus(c).Error = &snapshotv1.VolumeSnapshotError{Message: message}
	})
}

func (a *api) contentReady(key types.NamespacedName) {
	_ = a.changeContent(contentName(a.snapshot(key)), func(c *snapshotv1.VolumeSnapshotContent) {
		contentStatus(c).ReadyToUse = ptr.To(true)
	})
}

func (a *api) snapshotReady(key types.NamespacedName) {
	a.changeSnapshot(key, func(vs *snapshotv1.VolumeSnapshot) {
		vs.Status = &snapshotv1.VolumeSnapshotStatus{
			ReadyToUse: ptr.To(true), BoundVolumeSnapshotContentName: ptr.To(contentName(vs)),
		}
	})
}

// cutAfter makes every VolumeSnapshot be cut that long after its creation.
func (a *api) cutAfter(d time.Duration) {
	a.onCreate = func(key types.NamespacedName) { time.AfterFunc(d, func() { a.cut(key) }) }
}

// collect makes the deletion of a VolumeSnapshot take its content along when its policy says so.
func (a *api) collect() {
	a.onDelete = func(key types.NamespacedName) {
		a.mu.Lock()
		var names []string
		for _, o := range a.objects[contentsResource] {
			c := o.(*snapshotv1.VolumeSnapshotContent)
			if refOf(c) == key && c.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete {
				names = append(names, c.Name)
			}
		}
		a.mu.Unlock()
		for _, name := range names {
			_ = a.delete(contentsResource, "", name, metav1.DeleteOptions{})
		}
	}
}

// Create implements the client's interface.
func (s *apiContents) Create(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, _ metav1.CreateOptions) (*snapshotv1.VolumeSnapshotContent, error) {
	if err := s.api.ask(ctx, "create", contentsResource, content.Name); err != nil {
		return nil, err
	}
	o, err := s.api.create(contentsResource, content)
	if err != nil {
		return nil, err
	}
	return o.(*snapshotv1.VolumeSnapshotContent), nil
}
