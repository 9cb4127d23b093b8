// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/typed/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// api is an API server in memory, as far as this package can tell: resource versions, watches that replay from one, label
// selectors, preconditions and finalizers. Its methods in controllers_test.go act as the snapshot-controller and the
// driver's sidecar would.
type api struct {
	mu      sync.Mutex
	version int
	uids    int
	objects map[string]map[string]object // by resource and namespace/name
	history map[string][]change
	watches map[*apiWatch]struct{}
	// requests counts what was asked, as "verb resource".
	requests map[string]int
	// answer may give an error instead of doing what is asked; nil does it.
	answer func(verb, resource, name string) error
	// lost makes creations happen whose answer is an error all the same.
	lost func(name string) error
	// onCreate and onDelete stand for the controllers: called, unlocked, after a VolumeSnapshot was created or its
	// deletion was asked for.
	onCreate, onDelete func(types.NamespacedName)
}

type object interface {
	runtime.Object
	metav1.Object
}

type change struct {
	version int
	event   watch.Event
}

type apiWatch struct {
	api      *api
	resource string
	selector labels.Selector
	events   chan watch.Event
	once     sync.Once
}

func newAPI() *api {
	return &api{
		objects:  map[string]map[string]object{snapshotsResource: {}, contentsResource: {}},
		history:  map[string][]change{},
		watches:  map[*apiWatch]struct{}{},
		requests: map[string]int{},
	}
}

func (a *api) VolumeSnapshots(namespace string) snapshotclient.VolumeSnapshotInterface {
	return &apiSnapshots{api: a, namespace: namespace}
}

func (a *api) VolumeSnapshotContents() snapshotclient.VolumeSnapshotContentInterface {
	return &apiContents{api: a}
}

// ask counts a request and gives the error that was arranged for it.
func (a *api) ask(ctx context.Context, verb, resource, name string) error {
	a.mu.Lock()
	a.requests[verb+" "+resource]++
	answer := a.answer
	a.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if answer == nil {
		return nil
	}
	return answer(verb, resource, name)
}

func (a *api) asked(request string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests[request]
}

func (a *api) setAnswer(f func(verb, resource, name string) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = f
}

// store writes an object and tells the watches; kind Deleted takes it out. The caller holds the lock.
func (a *api) store(resource string, o object, kind watch.EventType) {
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	key := o.GetNamespace() + "/" + o.GetName()
	if kind == watch.Deleted {
		delete(a.objects[resource], key)
	} else {
		a.objects[resource][key] = o
	}
	c := change{version: a.version, event: watch.Event{Type: kind, Object: o.DeepCopyObject()}}
	a.history[resource] = append(a.history[resource], c)
	for w := range a.watches {
		if w.resource == resource {
			w.send(c.event)
		}
	}
}

func (a *api) create(resource string, o object) (object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.objects[resource][o.GetNamespace()+"/"+o.GetName()] != nil {
		return nil, apierrors.NewAlreadyExists(gr(resource), o.GetName())
	}
	o = o.DeepCopyObject().(object)
	a.uids++
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", a.uids)))
	o.SetCreationTimestamp(metav1.Now())
	a.store(resource, o, watch.Added)
	return o.DeepCopyObject().(object), nil
}

func (a *api) get(resource, namespace, name string) (object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[resource][namespace+"/"+name]
	if o == nil {
		return nil, apierrors.NewNotFound(gr(resource), name)
	}
	return o.DeepCopyObject().(object), nil
}

func (a *api) delete(resource, namespace, name string, opts metav1.DeleteOptions) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[resource][namespace+"/"+name]
	if o == nil {
		return apierrors.NewNotFound(gr(resource), name)
	}
	if p := opts.Preconditions; p != nil && p.UID != nil && *p.UID != o.GetUID() {
		return apierrors.NewConflict(gr(resource), name, fmt.Errorf("the UID in the precondition is %s", *p.UID))
	}
	o = o.DeepCopyObject().(object)
	if len(o.GetFinalizers()) == 0 {
		a.store(resource, o, watch.Deleted)
	} else if o.GetDeletionTimestamp() == nil {
		o.SetDeletionTimestamp(ptr.To(metav1.Now()))
		a.store(resource, o, watch.Modified)
	}
	return nil
}

func (a *api) list(resource string, opts metav1.ListOptions) ([]object, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	selector, _ := labels.Parse(opts.LabelSelector)
	var found []object
	for _, key := range slices.Sorted(maps.Keys(a.objects[resource])) {
		if o := a.objects[resource][key]; selector.Matches(labels.Set(o.GetLabels())) {
			found = append(found, o.DeepCopyObject().(object))
		}
	}
	return found, strconv.Itoa(a.version)
}

func (a *api) watch(resource string, opts metav1.ListOptions) watch.Interface {
	a.mu.Lock()
	defer a.mu.Unlock()
	selector, _ := labels.Parse(opts.LabelSelector)
	w := &apiWatch{api: a, resource: resource, selector: selector, events: make(chan watch.Event, 1<<14)}
	from, _ := strconv.Atoi(opts.ResourceVersion)
	for _, c := range a.history[resource] {
		if c.version > from {
			w.send(c.event)
		}
	}
	a.watches[w] = struct{}{}
	return w
}

func (w *apiWatch) send(e watch.Event) {
	if w.selector.Matches(labels.Set(e.Object.(object).GetLabels())) {
		w.events <- watch.Event{Type: e.Type, Object: e.Object.DeepCopyObject()}
	}
}

func (w *apiWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *apiWatch) Stop() {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	w.end()
}

func (w *apiWatch) end() {
	delete(w.api.watches, w)
	w.once.Do(func() { close(w.events) })
}

// closeWatches ends all watches as an API server does from time to time.
func (a *api) closeWatches() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.watches {
		w.end()
	}
}

// expire ends all watches as an API server does that has forgotten where they were.
func (a *api) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.watches {
		status := apierrors.NewResourceExpired("too old").Status()
		w.events <- watch.Event{Type: watch.Error, Object: &status}
		w.end()
	}
}

// repeat sends the last state of every object, and everything that was ever seen before it, once more to all watches.
func (a *api) repeat() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.watches {
		history := a.history[w.resource]
		for _, c := range slices.Backward(history) {
			if c.event.Type != watch.Deleted {
				w.send(watch.Event{Type: watch.Modified, Object: c.event.Object})
			}
		}
		for _, c := range history {
			w.send(c.event)
		}
	}
}

func gr(resource string) schema.GroupResource {
	return schema.GroupResource{Group: snapshotGroup, Resource: resource}
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(gr(resource), "", fmt.Errorf("no permission"))
}

func missingResource(resource string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{Group: snapshotGroup, Kind: resource},
	}}
}

type apiSnapshots struct {
	snapshotclient.VolumeSnapshotInterface // what isn't used panics
	api                                    *api
	namespace                              string
}

func (s *apiSnapshots) Create(ctx context.Context, vs *snapshotv1.VolumeSnapshot, _ metav1.CreateOptions) (*snapshotv1.VolumeSnapshot, error) {
	if err := s.api.ask(ctx, "create", snapshotsResource, vs.Name); err != nil {
		return nil, err
	}
	o, err := s.api.create(snapshotsResource, vs)
	if err != nil {
		return nil, err
	}
	if s.api.onCreate != nil {
		s.api.onCreate(types.NamespacedName{Namespace: vs.Namespace, Name: vs.Name})
	}
	if s.api.lost != nil {
		if err := s.api.lost(vs.Name); err != nil {
			return nil, err
		}
	}
	return o.(*snapshotv1.VolumeSnapshot), nil
}

func (s *apiSnapshots) Get(ctx context.Context, name string, _ metav1.GetOptions) (*snapshotv1.VolumeSnapshot, error) {
	if err := s.api.ask(ctx, "get", snapshotsResource, name); err != nil {
		return nil, err
	}
	o, err := s.api.get(snapshotsResource, s.namespace, name)
	if err != nil {
		return nil, err
	}
	return o.(*snapshotv1.VolumeSnapshot), nil
}

func (s *apiSnapshots) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	if err := s.api.ask(ctx, "delete", snapshotsResource, name); err != nil {
		return err
	}
	if err := s.api.delete(snapshotsResource, s.namespace, name, opts); err != nil {
		return err
	}
	if s.api.onDelete != nil {
		s.api.onDelete(types.NamespacedName{Namespace: s.namespace, Name: name})
	}
	return nil
}

func (s *apiSnapshots) List(ctx context.Context, opts metav1.ListOptions) (*snapshotv1.VolumeSnapshotList, error) {
	if err := s.api.ask(ctx, "list", snapshotsResource, ""); err != nil {
		return nil, err
	}
	found, version := s.api.list(snapshotsResource, opts)
	list := &snapshotv1.VolumeSnapshotList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, o := range found {
		list.Items = append(list.Items, *o.(*snapshotv1.VolumeSnapshot))
	}
	return list, nil
}

func (s *apiSnapshots) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := s.api.ask(ctx, "watch", snapshotsResource, ""); err != nil {
		return nil, err
	}
	return s.api.watch(snapshotsResource, opts), nil
}

type apiContents struct {
	snapshotclient.VolumeSnapshotContentInterface
	api *api
}

func (s *apiContents) Get(ctx context.Context, name string, _ metav1.GetOptions) (*snapshotv1.VolumeSnapshotContent, error) {
	if err := s.api.ask(ctx, "get", contentsResource, name); err != nil {
		return nil, err
	}
	o, err := s.api.get(contentsResource, "", name)
	if err != nil {
		return nil, err
	}
	return o.(*snapshotv1.VolumeSnapshotContent), nil
}

func (s *apiContents) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	if err := s.api.ask(ctx, "delete", contentsResource, name); err != nil {
		return err
	}
	return s.api.delete(contentsResource, "", name, opts)
}

func (s *apiContents) Patch(ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*snapshotv1.VolumeSnapshotContent, error) {
	if err := s.api.ask(ctx, "patch", contentsResource, name); err != nil {
		return nil, err
	}
	var patch snapshotv1.VolumeSnapshotContent
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	err := s.api.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) {
		if bytes.Contains(data, []byte(`"volumeGroupSnapshotHandle":null`)) && c.Status != nil {
			c.Status.VolumeGroupSnapshotHandle = nil
		}
		if patch.Spec.DeletionPolicy != "" {
			c.Spec.DeletionPolicy = patch.Spec.DeletionPolicy
		}
		for key, value := range patch.Annotations {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value)
		}
	})
	return nil, err
}

func (s *apiContents) List(ctx context.Context, opts metav1.ListOptions) (*snapshotv1.VolumeSnapshotContentList, error) {
	if err := s.api.ask(ctx, "list", contentsResource, ""); err != nil {
		return nil, err
	}
	found, version := s.api.list(contentsResource, opts)
	list := &snapshotv1.VolumeSnapshotContentList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, o := range found {
		list.Items = append(list.Items, *o.(*snapshotv1.VolumeSnapshotContent))
	}
	return list, nil
}

func (s *apiContents) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := s.api.ask(ctx, "watch", contentsResource, ""); err != nil {
		return nil, err
	}
	return s.api.watch(contentsResource, opts), nil
}
