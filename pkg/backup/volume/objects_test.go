// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"github.com/vmware-tanzu/velero/pkg/builder"
	velerotest "github.com/vmware-tanzu/velero/pkg/test"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/backup/volume"
)

// countingClient counts requests, and refuses lists when told to.
type countingClient struct {
	client.Client
	gets, lists atomic.Int32
	refuse      error
}

func (c *countingClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	c.gets.Add(1)
	return c.Client.Get(ctx, key, obj, opts...)
}

func (c *countingClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.lists.Add(1)
	if c.refuse != nil {
		return c.refuse
	}
	return c.Client.List(ctx, list, opts...)
}

func newClient(t *testing.T, objects ...runtime.Object) *countingClient {
	t.Helper()
	return &countingClient{Client: velerotest.NewFakeControllerRuntimeClient(t, objects...)}
}

func TestVolumesAreReadOnce(t *testing.T) {
	g := NewWithT(t)
	c := newClient(t, builder.ForPersistentVolume("read").Result(), builder.ForConfigMap("app", "settings").Result())
	objects := volume.NewObjects(c)
	objects.Know(builder.ForPersistentVolume("known").CSI(driver, "x").Result())

	known, err := objects.Volume(t.Context(), "known")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(known.Spec.CSI.Driver).To(Equal(driver))
	g.Expect(c.gets.Load()).To(BeZero())

	for range 2 {
		copied := new(corev1.PersistentVolume)
		g.Expect(objects.Get(t.Context(), client.ObjectKey{Name: "read"}, copied)).To(Succeed())
		copied.Name = "changed by the caller"
		read, err := objects.Volume(t.Context(), "read")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read.Name).To(Equal("read"))
	}
	g.Expect(c.gets.Load()).To(Equal(int32(1)))

	_, err = objects.Volume(t.Context(), "gone")
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring("gone")))
	g.Expect(objects.Get(t.Context(), client.ObjectKey{Name: "gone"}, new(corev1.PersistentVolume))).NotTo(Succeed())
	g.Expect(objects.Get(t.Context(), client.ObjectKey{Namespace: "app", Name: "settings"}, new(corev1.ConfigMap))).To(Succeed(), "anything else is passed on")
}

func TestSnapshotClassesAreListedOnce(t *testing.T) {
	g := NewWithT(t)
	c := newClient(t, class("fast", driver))
	objects := volume.NewObjects(c)
	g.Expect(objects.KnownClasses()).To(BeEmpty())
	for range 2 {
		found, err := objects.SnapshotClasses(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Items).To(HaveLen(1))
	}
	g.Expect(c.lists.Load()).To(Equal(int32(1)))
	g.Expect(objects.KnownClasses()).To(HaveLen(1))
}

func TestSnapshotClassesThatCannotBeListed(t *testing.T) {
	for name, test := range map[string]struct {
		refuse error
		noCRDs bool
	}{
		"the type is unknown":     {refuse: &meta.NoKindMatchError{}, noCRDs: true},
		"the resource is unknown": {refuse: apierrors.NewNotFound(snapshotv1.Resource("volumesnapshotclasses"), ""), noCRDs: true},
		"anything else":           {refuse: errors.New("etcd is away")},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(t, class("fast", driver))
			c.refuse = test.refuse
			objects := volume.NewObjects(c)
			_, err := objects.SnapshotClasses(t.Context())
			g.Expect(err).To(HaveOccurred())
			g.Expect(errors.Is(err, volume.ErrNoSnapshotCRDs)).To(Equal(test.noCRDs))
			if !test.noCRDs {
				g.Expect(err).To(MatchError(test.refuse))
			}
			c.refuse = nil
			_, err = objects.SnapshotClasses(t.Context())
			if test.noCRDs {
				g.Expect(err).To(MatchError(volume.ErrNoSnapshotCRDs))
				g.Expect(c.lists.Load()).To(Equal(int32(1)), "one request, not one for each claim")
				return
			}
			g.Expect(err).NotTo(HaveOccurred(), "a passing failure isn't remembered")
		})
	}
}
