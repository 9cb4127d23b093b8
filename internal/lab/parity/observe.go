// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/recorder"
)

// notTest selects the events that no case made.
var notTest = fields.OneTermNotEqualSelector("reason", "Test")

// Observation is all that was read after one backup. Sections is a tree of JSON values, in which a [Sequence] may stand,
// too; Notes are texts that are shown with a difference, but not compared.
type Observation struct {
	Sections map[string]any
	Notes    []string
	// Concurrent is the largest number of item action calls that a plugin process had at once.
	Concurrent int
}

// Sequence is a list whose order matters, and of which each element is known by its text.
type Sequence []string

// Unordered is a list whose order says nothing; it is put in order when the names in it are alike.
type Unordered []any

// observed is what an observation is made of.
type observed struct {
	lab    *Lab
	c      Case
	engine *engine
	world  *world
	backup *velerov1.Backup
	before before
}

// observe reads everything.
func (l *Lab) observe(ctx context.Context, o observed) (*Observation, error) {
	out := &Observation{Sections: map[string]any{}}
	for _, read := range []func(context.Context, *Observation) error{
		o.readBackup, o.readStore, o.readObjects, o.readHooks, o.readPlugins, o.readDrivers, o.readMetrics,
	} {
		if err := read(ctx, out); err != nil {
			return nil, fmt.Errorf("reading what the backup left: %w", err)
		}
	}
	n := normaliser{words: l.names.replacer(), namespace: o.engine.namespace}
	out.Sections = n.tree(out.Sections).(map[string]any)
	for i, note := range out.Notes {
		out.Notes[i] = n.text(note)
	}
	return out, nil
}

// toTree turns a value into plain JSON values.
func toTree(value any) (any, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var out any
	return out, json.Unmarshal(content, &out)
}

func (o observed) readBackup(_ context.Context, out *Observation) error {
	tree, err := toTree(o.backup)
	if err != nil {
		return err
	}
	withoutTexts(tree)
	out.Sections["backup"] = tree
	if o.backup.Status.FailureReason != "" {
		out.Notes = append(out.Notes, "failure reason: "+o.backup.Status.FailureReason)
	}
	for _, text := range o.backup.Status.ValidationErrors {
		out.Notes = append(out.Notes, "validation error: "+text)
	}
	return nil
}

// withoutTexts replaces the messages in a Backup's status: each engine has its own words. That there is one, and how many, is
// compared.
func withoutTexts(backup any) {
	status := asMap(asMap(backup)["status"])
	if _, ok := status["failureReason"]; ok {
		status["failureReason"] = "<text>"
	}
	if texts, ok := status["validationErrors"].([]any); ok {
		for i := range texts {
			texts[i] = "<text>"
		}
	}
}

// readObjects reads what the backup left on the case's objects, and the objects that it made.
func (o observed) readObjects(ctx context.Context, out *Observation) error {
	found := map[string]any{}
	for _, made := range o.world.objects {
		current := made.DeepCopy()
		err := o.world.client.Get(ctx, client.ObjectKeyFromObject(made), current)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		key := made.GetKind() + " " + strings.TrimPrefix(made.GetNamespace()+"/"+made.GetName(), "/")
		if err != nil {
			found[key] = "gone"
			continue
		}
		found[key] = map[string]any{
			"labels": text(current.GetLabels()), "annotations": text(current.GetAnnotations()),
			"finalizers": fmt.Sprint(current.GetFinalizers()), "changed": current.GetGeneration() != made.GetGeneration(),
		}
	}
	out.Sections["objects"] = found
	made := map[string]any{}
	for _, list := range leftKinds() {
		if err := o.readLeft(ctx, list, made); err != nil {
			return err
		}
	}
	out.Sections["left"] = made
	return nil
}

// readLeft adds the objects of one kind that are there after a backup; in the servers' namespaces only this engine's.
func (o observed) readLeft(ctx context.Context, list client.ObjectList, into map[string]any) error {
	if err := o.world.client.List(ctx, list); err != nil {
		return err
	}
	objects, err := itemsOf(list)
	if err != nil {
		return err
	}
	for _, one := range objects {
		namespace := one.GetNamespace()
		if namespace != "" && namespace != o.engine.namespace && !o.world.namespaces[namespace] {
			continue
		}
		if o.isOfCase(one) {
			continue
		}
		tree, err := toTree(one)
		if err != nil {
			return err
		}
		kind := strings.TrimSuffix(fmt.Sprintf("%T", list), "List")
		into[kind[strings.LastIndexByte(kind, '.')+1:]+" "+namespace+"/"+one.GetName()] = tree
	}
	return nil
}

// isOfCase says whether the case itself made an object; those are in the section objects.
func (o observed) isOfCase(one client.Object) bool {
	if slices.ContainsFunc(o.world.objects, func(made *unstructured.Unstructured) bool { return made.GetUID() == one.GetUID() }) {
		return true
	}
	return one.GetNamespace() == o.engine.namespace &&
		slices.ContainsFunc(o.c.Velero, func(item Item) bool { return item.name == one.GetName() })
}

func itemsOf(list client.ObjectList) ([]client.Object, error) {
	var out []client.Object
	err := meta.EachListItem(list, func(item runtime.Object) error {
		one, ok := item.(client.Object)
		if !ok {
			return errors.New("a list with an item that is no object")
		}
		out = append(out, one)
		return nil
	})
	return out, err
}

func text(values map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range values {
		out[key] = value
	}
	return out
}

// readHooks reads the commands that ran in containers, in the order of their start.
func (o observed) readHooks(_ context.Context, out *Observation) error {
	var calls Sequence
	for _, call := range o.lab.kubelet.Calls()[o.before.execs:] {
		if isServerNamespace(call.Namespace) {
			continue
		}
		calls = append(calls, fmt.Sprintf("%s/%s %s %q exit %d %s", call.Namespace, call.Pod, call.Container, call.Command, call.ExitCode, call.Err))
	}
	out.Sections["hooks"] = calls
	return nil
}

// readDrivers reads the snapshots that the CSI drivers were asked for.
func (o observed) readDrivers(_ context.Context, out *Observation) error {
	var calls []string
	for i, d := range o.lab.drivers {
		for _, call := range d.Calls()[o.before.calls[i]:] {
			if strings.HasSuffix(call.Method, "CreateSnapshot") && call.Code == "OK" {
				calls = append(calls, d.Name()+" "+call.Volume)
			}
		}
	}
	slices.Sort(calls)
	out.Sections["storage"] = Sequence(slices.Compact(calls))
	return nil
}

// readPlugins reads the recorder's calls: their order for each kind of items, the arguments of each, and the Backups that
// came with them.
func (o observed) readPlugins(_ context.Context, out *Observation) error {
	calls, err := recorder.Take(o.engine.recorder)
	if err != nil {
		return err
	}
	order := ordered{}
	arguments := map[string]any{}
	backups := map[string]any{}
	for _, call := range calls {
		if o.isForeign(call.Item) {
			continue
		}
		_, plugin, _ := strings.Cut(call.Plugin, "/")
		kind, _, _ := strings.Cut(call.Item, " ")
		order.add(call.Method+" ", kind, plugin+" "+call.Item)
		arguments[strings.TrimSpace(plugin+" "+call.Method+" "+call.Item+" "+apiVersion(call.Input))] = map[string]any{
			"input": call.Input, "answer": call.Answer, "error": call.Error,
		}
		backups[plugin+" "+call.Method] = withoutProgress(call.Backup)
		out.Concurrent = max(out.Concurrent, call.InFlight)
	}
	out.Sections["plugins"] = map[string]any{"order": order.tree(), "arguments": arguments, "backups": backups}
	return nil
}

// withoutProgress takes out of a Backup how many items are done, which depends on when it was asked. So does how many there are, after
// the first second of a walk; it is kept when the walk is over.
func withoutProgress(backup any) any {
	status, ok, err := unstructured.NestedMap(asMap(backup), "status")
	if err != nil || !ok {
		return backup
	}
	unstructured.RemoveNestedField(status, "progress", "itemsBackedUp")
	if progress := asMap(status["progress"]); progress["totalItems"] != nil && status["phase"] == string(velerov1.BackupPhaseInProgress) {
		progress["totalItems"] = "<number>"
	}
	out := copyMap(asMap(backup))
	out["status"] = status
	return out
}

// apiVersion of an item: with all versions in a backup, plugins are called for each.
func apiVersion(input any) string {
	version, _ := asMap(input)["apiVersion"].(string)
	return version
}

func asMap(value any) map[string]any {
	out, _ := value.(map[string]any)
	return out
}

// isForeign says whether an item of a plugin call is one of the servers' own objects.
func (o observed) isForeign(item string) bool {
	_, name, _ := strings.Cut(item, " ")
	namespace, _, _ := strings.Cut(name, "/")
	return isServerNamespace(namespace)
}

// isServerNamespace says whether a namespace belongs to one of the servers, or is the one that the cluster comes with.
func isServerNamespace(name string) bool { return name == "velero-"+Stock || name == "velero-"+Ours }
