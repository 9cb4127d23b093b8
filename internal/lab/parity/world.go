// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testFinalizer keeps an object that is Deleting.
const testFinalizer = "parity.clipper.dev/keep"

// noFinalizers is the patch that lets an object go.
var noFinalizers = client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))

// world is the objects of one case that exist in the cluster, in the order of their creation.
type world struct {
	client     client.Client
	clientset  kubernetes.Interface
	node       string
	objects    []*unstructured.Unstructured
	namespaces map[string]bool
}

// create makes the objects of the items. On an error the caller still calls remove.
func (w *world) create(ctx context.Context, items []Item) error {
	for _, group := range items {
		for _, item := range group.expand() {
			if err := w.createItem(ctx, item); err != nil {
				return fmt.Errorf("creating %q: %w", item.Object, err)
			}
		}
	}
	return nil
}

func (w *world) createItem(ctx context.Context, item Item) error {
	if item.namespace != "" {
		if err := w.createNamespace(ctx, Item{kind: "Namespace", name: item.namespace}); err != nil {
			return err
		}
	}
	switch item.kind {
	case "Namespace":
		return w.createNamespace(ctx, item)
	case "PersistentVolumeClaim":
		return w.createClaim(ctx, item)
	case "Pod":
		return w.createPod(ctx, item)
	}
	made, err := item.object()
	if err != nil {
		return err
	}
	return w.add(ctx, made, item.Deleting)
}

// createNamespace makes a namespace unless it is there already.
func (w *world) createNamespace(ctx context.Context, item Item) error {
	if w.namespaces[item.name] {
		return nil
	}
	made, err := item.object()
	if err != nil {
		return err
	}
	w.namespaces[item.name] = true
	err = w.add(ctx, made, false)
	if apierrors.IsAlreadyExists(err) {
		return nil // one of the cluster's own
	}
	if err != nil || item.Phase != string(corev1.NamespaceTerminating) {
		return err
	}
	// Nobody empties it here, so that it stays so.
	return w.client.Delete(ctx, made)
}

// add creates an object and remembers it.
func (w *world) add(ctx context.Context, made *unstructured.Unstructured, deleting bool) error {
	if deleting {
		made.SetFinalizers(append(made.GetFinalizers(), testFinalizer))
	}
	if err := w.client.Create(ctx, made); err != nil {
		return err
	}
	w.objects = append(w.objects, made)
	if deleting {
		return w.client.Delete(ctx, made)
	}
	return nil
}

// setStatus writes the status of an object that was added.
func (w *world) setStatus(ctx context.Context, made *unstructured.Unstructured, status object) error {
	made.Object["status"] = status
	return w.client.Status().Update(ctx, made)
}

// remove deletes everything, last things first. It goes on after errors.
func (w *world) remove(ctx context.Context) error {
	var errs []error
	for i := len(w.objects) - 1; i >= 0; i-- {
		if err := w.removeObject(ctx, w.objects[i]); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("removing %s %s/%s: %w", w.objects[i].GetKind(), w.objects[i].GetNamespace(), w.objects[i].GetName(), err))
		}
	}
	w.objects, w.namespaces = nil, map[string]bool{}
	return errors.Join(errs...)
}

func (w *world) removeObject(ctx context.Context, made *unstructured.Unstructured) error {
	if made.GetKind() != "Namespace" {
		if err := w.client.Patch(ctx, made, noFinalizers); err != nil {
			return err
		}
		return w.client.Delete(ctx, made, client.GracePeriodSeconds(0))
	}
	if err := w.empty(ctx, made.GetName()); err != nil {
		return err
	}
	if err := w.client.Delete(ctx, made); err != nil && !apierrors.IsConflict(err) {
		return err
	}
	namespace, err := w.clientset.CoreV1().Namespaces().Get(ctx, made.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	namespace.Spec.Finalizers = nil
	_, err = w.clientset.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	return err
}

// empty removes the events of a namespace; everything else in it is the case's own.
func (w *world) empty(ctx context.Context, namespace string) error {
	return w.client.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace(namespace))
}

// object is the API object of an item without special treatment.
func (i Item) object() (*unstructured.Unstructured, error) {
	known := kinds[i.kind]
	made := &unstructured.Unstructured{Object: object{}}
	merge(made.Object, known.minimal)
	made.SetGroupVersionKind(known.gvk)
	i.identify(made)
	if i.kind == "ConfigMap" && i.Data != nil {
		data, err := i.data()
		if err != nil {
			return nil, err
		}
		made.Object["data"] = data
	}
	if i.kind == "Event" {
		made.Object["involvedObject"] = object{"kind": "Pod", "namespace": i.namespace, "name": "none"}
	}
	merge(made.Object, i.Patch)
	return made, nil
}

func (i Item) identify(made *unstructured.Unstructured) {
	made.SetNamespace(i.namespace)
	made.SetName(i.name)
	if len(i.labels) > 0 {
		made.SetLabels(i.labels)
	}
	if len(i.Annotations) > 0 {
		made.SetAnnotations(i.Annotations)
	}
}

// merge is a JSON merge patch: maps are merged, everything else is replaced, null removes.
func merge(into, patch object) {
	for key, value := range patch {
		change, isMap := value.(object)
		if value == nil {
			delete(into, key)
			continue
		}
		if !isMap {
			into[key] = value
			continue
		}
		below, ok := into[key].(object)
		if !ok {
			below = object{}
		} else {
			below = copyMap(below)
		}
		merge(below, change)
		into[key] = below
	}
}

func copyMap(in object) object {
	out := make(object, len(in))
	for key, value := range in {
		out[key] = value
	}
	return out
}
