// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("no"))

var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, snapshotv1.AddToScheme, velerov1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

// cluster is a Cluster that gives lists in pages, as an API server does, and can refuse kinds.
type cluster struct {
	client.Client
	// refused kinds of lists and objects, as their Go types without the package, such as "PersistentVolumeList".
	refused map[string]error
	// volumes are given in pages; the fake client knows no pages.
	volumes []corev1.PersistentVolume

	mu    sync.Mutex
	pages []int
}

func newCluster(objects ...client.Object) *cluster {
	return &cluster{Client: fake.NewClientBuilder().WithScheme(scheme()).WithObjects(objects...).Build(), refused: map[string]error{}}
}

func kind(object runtime.Object) string {
	kinds, _, err := scheme().ObjectKinds(object)
	if err != nil {
		panic(err)
	}
	return kinds[0].Kind
}

func (c *cluster) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if err := c.refused[kind(into)]; err != nil {
		return err
	}
	return c.Client.Get(ctx, key, into, opts...)
}

func (c *cluster) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if err := c.refused[kind(into)]; err != nil {
		return err
	}
	list, ok := into.(*corev1.PersistentVolumeList)
	if !ok || c.volumes == nil {
		return c.Client.List(ctx, into, opts...)
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	from := 0
	if options.Continue != "" {
		from = int(options.Continue[0]-'a') * int(options.Limit)
	}
	to := min(from+int(options.Limit), len(c.volumes))
	list.Items = append(list.Items, c.volumes[from:to]...)
	list.Continue = ""
	if to < len(c.volumes) {
		list.Continue = string(rune('a' + to/int(options.Limit)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pages = append(c.pages, meta.LenList(list))
	return nil
}

// discovery serves the resources of group versions.
type discovery struct {
	served map[string][]string
	err    error
}

func (d discovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	if d.err != nil {
		return nil, d.err
	}
	names, ok := d.served[groupVersion]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	list := &metav1.APIResourceList{}
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

var servesAll = discovery{served: map[string][]string{"snapshot.storage.k8s.io/v1": snapshotResources}}

func snapshotCRD(name, storage string, stored ...string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name + ".snapshot.storage.k8s.io"},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: storage, Storage: true}}},
		Status:     apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: stored},
	}
}

func volume(name, driver string) corev1.PersistentVolume {
	pv := corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Name: name}},
		Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	if driver != "" {
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
	}
	return pv
}

// access allows all but some.
type access struct {
	denied func(Permission) bool
	err    error
}

func (a access) Allowed(_ context.Context, p Permission) (bool, error) {
	return a.denied == nil || !a.denied(p), a.err
}

func (access) Who(context.Context) (string, bool) { return "user me", true }

// reasons lists what was found, as "severity Reason".
func reasons(findings []Finding) []string {
	var out []string
	for _, finding := range findings {
		out = append(out, string(finding.Severity)+" "+finding.Reason)
	}
	return out
}
