// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	"github.com/vmware-tanzu/velero/pkg/test"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	internal "github.com/velero-clipper/clipper/internal/velero"
	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/filter"
)

// cluster is an API server in memory that lists objects in the order they were given, in pages when asked, and keeps
// count. client-go's fake does none of this: it has no order and forgets the page size.
type cluster struct {
	dynamic.Interface
	helper  discovery.Helper
	objects map[schema.GroupVersionResource][]*unstructured.Unstructured
	lists   []listCall
	// fail, if set, gives the error of a list request, or nil.
	fail func(listCall) error
	// forgets, if set, is called before a page that goes on with a list, which then has expired.
	forgets func()
	// policies of the backups that are collected, or nil.
	policies *internal.Policies
}

// listCall is one list request as the cluster saw it.
type listCall struct{ resource, namespace, selector string }

// newCluster serves these resource types, discovered in this order.
func newCluster(t *testing.T, resources ...*test.APIResource) *cluster {
	t.Helper()
	server := test.NewAPIServer(t)
	for _, resource := range resources {
		server.DiscoveryClient.WithAPIResource(resource)
	}
	helper, err := discovery.NewHelper(server.DiscoveryClient, logrus.New())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &cluster{
		helper:  stableDiscovery{helper, resources},
		objects: map[schema.GroupVersionResource][]*unstructured.Unstructured{},
	}
}

// stableDiscovery returns groups in the order in which the cluster was given their resource types: the fake discovery
// client shuffles them, a real one doesn't. Inside a group the order stays random, as it is with a real one.
type stableDiscovery struct {
	discovery.Helper
	resources []*test.APIResource
}

func (d stableDiscovery) Resources() []*metav1.APIResourceList {
	rank := func(list *metav1.APIResourceList) int {
		return slices.IndexFunc(d.resources, func(r *test.APIResource) bool {
			return r.GVR().GroupVersion().String() == list.GroupVersion
		})
	}
	lists := slices.Clone(d.Helper.Resources())
	slices.SortStableFunc(lists, func(a, b *metav1.APIResourceList) int { return rank(a) - rank(b) })
	return lists
}

// add puts an object into the cluster.
func (c *cluster) add(resource *test.APIResource, namespace, name string, objectLabels ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(resource.GVR().GroupVersion().WithKind(resource.Kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	if len(objectLabels) > 0 {
		set, _ := labels.ConvertSelectorToLabelsMap(objectLabels[0])
		u.SetLabels(set)
	}
	c.objects[resource.GVR()] = append(c.objects[resource.GVR()], u)
	return u
}

// addNamespace adds a namespace object in the given phase.
func (c *cluster) addNamespace(name string, phase corev1.NamespacePhase, objectLabels ...string) {
	u := c.add(test.Namespaces(), "", name, objectLabels...)
	_ = unstructured.SetNestedField(u.Object, string(phase), "status", "phase")
}

// Resource implements dynamic.Interface.
func (c *cluster) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return endpoint{cluster: c, gvr: gvr}
}

// endpoint is one resource type of the cluster, all namespaces or one.
type endpoint struct {
	dynamic.NamespaceableResourceInterface
	cluster   *cluster
	gvr       schema.GroupVersionResource
	namespace string
}

func (e endpoint) Namespace(namespace string) dynamic.ResourceInterface {
	e.namespace = namespace
	return e
}

func (e endpoint) List(_ context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	call := listCall{e.gvr.GroupResource().String(), e.namespace, opts.LabelSelector}
	e.cluster.lists = append(e.cluster.lists, call)
	if e.cluster.fail != nil {
		if err := e.cluster.fail(call); err != nil {
			return nil, err
		}
	}
	if opts.Continue != "" && e.cluster.forgets != nil {
		e.cluster.forgets()
		return nil, apierrors.NewResourceExpired("the continue token is too old")
	}
	selector, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return nil, err
	}
	var matching []*unstructured.Unstructured
	for _, object := range e.cluster.objects[e.gvr] {
		if (e.namespace == "" || object.GetNamespace() == e.namespace) && selector.Matches(labels.Set(object.GetLabels())) {
			matching = append(matching, object)
		}
	}
	return page(matching, opts), nil
}

func (e endpoint) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	for _, object := range e.cluster.objects[e.gvr] {
		if object.GetNamespace() == e.namespace && object.GetName() == name {
			return object, nil
		}
	}
	return nil, apierrors.NewNotFound(e.gvr.GroupResource(), name)
}

// page cuts one page out of a list; the continue token is the index to go on with.
func page(objects []*unstructured.Unstructured, opts metav1.ListOptions) *unstructured.UnstructuredList {
	start, _ := strconv.Atoi(opts.Continue)
	end := len(objects)
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	if opts.Limit > 0 && start+int(opts.Limit) < end {
		end = start + int(opts.Limit)
		list.SetContinue(strconv.Itoa(end))
	}
	for _, object := range objects[start:end] {
		list.Items = append(list.Items, *object)
	}
	return list
}

// deps resolves the filter of spec against the cluster's namespaces and returns what Collect needs, and the log.
func (c *cluster) deps(t *testing.T, spec velerov1.BackupSpec) (collect.Deps, *logrustest.Hook) {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	client := crfake.NewClientBuilder().WithScheme(scheme)
	for _, ns := range c.objects[test.Namespaces().GVR()] {
		client.WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.GetName(), Labels: ns.GetLabels()}})
	}
	log, hook := logrustest.NewNullLogger()
	set, err := filter.Resolve(t.Context(), log, filter.Deps{Client: client.Build(), Discovery: c.helper, Policies: c.policies}, spec)
	g.Expect(err).NotTo(HaveOccurred())
	return collect.Deps{Log: log, Discovery: c.helper, Dynamic: c, Filter: set, Spec: spec}, hook
}

// collect runs Collect and returns the items' names and the log.
func (c *cluster) collect(t *testing.T, spec velerov1.BackupSpec) ([]string, *logrustest.Hook) {
	t.Helper()
	deps, hook := c.deps(t, spec)
	items, err := collect.Collect(t.Context(), deps)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return names(items), hook
}

func names(items []collect.Item) []string {
	out := make([]string, 0, len(items))
	for _, item := range items {
		out = append(out, item.String())
	}
	return out
}

// entries returns the log's messages of one level.
func entries(hook *logrustest.Hook, level logrus.Level) []*logrus.Entry {
	var out []*logrus.Entry
	for _, entry := range hook.AllEntries() {
		if entry.Level == level {
			out = append(out, entry)
		}
	}
	return out
}
