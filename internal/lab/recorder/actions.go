// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Annotations of Velero's contract with plugins.
const (
	skipAnnotation        = "velero.io/skip-from-backup"
	mustIncludeAnnotation = "backup.velero.io/must-include-additional-items"
)

// action is what the item actions have in common.
type action struct {
	recorder *recorder
	name     string
}

func (a action) Name() string { return a.name }

// behaviour reads what this action is to do now.
func (a action) behaviour() (Action, error) {
	all, err := loadBehaviour(a.recorder.dir)
	_, short, _ := strings.Cut(a.name, "/")
	return all.Actions[short], err
}

// AppliesTo answers and records nothing: how often it is asked is the framework's own matter.
func (a action) AppliesTo() (velero.ResourceSelector, error) {
	behaviour, err := a.behaviour()
	if err != nil {
		return velero.ResourceSelector{}, err
	}
	if behaviour.AppliesToError != "" {
		return velero.ResourceSelector{}, errors.New(behaviour.AppliesToError)
	}
	s := behaviour.AppliesTo
	return velero.ResourceSelector{
		IncludedNamespaces: s.IncludedNamespaces, ExcludedNamespaces: s.ExcludedNamespaces,
		IncludedResources: s.IncludedResources, ExcludedResources: s.ExcludedResources, LabelSelector: s.LabelSelector,
	}, nil
}

// answer is what a call gives back.
type answer struct {
	item      runtime.Unstructured
	items     []velero.ResourceIdentifier
	operation string
	postItems []velero.ResourceIdentifier
}

// call records a call about an item and does what the rule says.
func (a action) call(method string, input runtime.Unstructured, backup *velerov1.Backup) (answer, error) {
	inFlight := a.recorder.inFlight.Add(1)
	defer a.recorder.inFlight.Add(-1)
	behaviour, err := a.behaviour()
	if err != nil {
		return answer{}, err
	}
	item := &unstructured.Unstructured{Object: input.UnstructuredContent()}
	rule := behaviour.rule(itemKey(item))
	out, err := rule.answer(item)
	if err != nil {
		return answer{}, err
	}
	record := Call{
		Plugin: a.name, Method: method, Item: itemKey(item), Input: input.UnstructuredContent(), Backup: backup,
		Answer: map[string]any{"items": out.items, "operation": out.operation, "postItems": out.postItems},
		Error:  rule.failure(), InFlight: int(inFlight),
	}
	if err := a.recorder.write(record); err != nil {
		return answer{}, err
	}
	return out, rule.fail()
}

// failure names what happens instead of an answer.
func (r Rule) failure() string {
	switch {
	case r.Crash:
		return "crash"
	case r.Panic != "":
		return "panic: " + r.Panic
	default:
		return r.Error
	}
}

// fail does what is done instead of an answer, if anything.
func (r Rule) fail() error {
	if r.Hang > 0 {
		<-time.After(time.Duration(r.Hang))
	}
	switch {
	case r.Crash:
		os.Exit(3)
	case r.Panic != "":
		panic(r.Panic)
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// answer prepares what is returned when nothing fails.
func (r Rule) answer(input *unstructured.Unstructured) (answer, error) {
	var out answer
	var err error
	if out.items, err = identifiers(r.Items); err != nil {
		return out, err
	}
	if out.postItems, err = identifiers(r.PostItems); err != nil {
		return out, err
	}
	out.operation = r.Operation
	if !r.Nil {
		out.item = r.changed(input)
	}
	return out, nil
}

// changed is the item as the rule wants it.
func (r Rule) changed(input *unstructured.Unstructured) *unstructured.Unstructured {
	item := input.DeepCopy()
	if len(r.Labels) > 0 {
		item.SetLabels(with(item.GetLabels(), r.Labels))
	}
	annotations := with(nil, r.Annotations)
	if r.Skip {
		annotations[skipAnnotation] = "true"
	}
	if r.MustInclude {
		annotations[mustIncludeAnnotation] = "true"
	}
	if len(annotations) > 0 {
		item.SetAnnotations(with(item.GetAnnotations(), annotations))
	}
	if r.Name != "" {
		item.SetName(r.Name)
	}
	if r.Namespace != "" {
		item.SetNamespace(r.Namespace)
	}
	if r.Kind != "" {
		item.SetKind(r.Kind)
	}
	return item
}

func with(base, more map[string]string) map[string]string {
	out := map[string]string{}
	for _, values := range []map[string]string{base, more} {
		for key, value := range values {
			out[key] = value
		}
	}
	return out
}

// identifiers reads "resource.group namespace/name".
func identifiers(texts []string) ([]velero.ResourceIdentifier, error) {
	var out []velero.ResourceIdentifier
	for _, text := range texts {
		resource, name, ok := strings.Cut(text, " ")
		if !ok {
			return nil, fmt.Errorf("item %q in the behaviour of the recorder is not like \"configmaps a/x\"", text)
		}
		id := velero.ResourceIdentifier{GroupResource: schema.ParseGroupResource(resource), Name: name}
		if namespace, short, namespaced := strings.Cut(name, "/"); namespaced {
			id.Namespace, id.Name = namespace, short
		}
		out = append(out, id)
	}
	return out, nil
}

// actionV1 is a BackupItemAction of version 1.
type actionV1 struct{ action }

func (a actionV1) Execute(item runtime.Unstructured, backup *velerov1.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, error) {
	out, err := a.call("Execute", item, backup)
	return out.item, out.items, err
}

// actionV2 is a BackupItemAction of version 2.
type actionV2 struct{ action }

func (a actionV2) Execute(item runtime.Unstructured, backup *velerov1.Backup) (
	runtime.Unstructured, []velero.ResourceIdentifier, string, []velero.ResourceIdentifier, error,
) {
	out, err := a.call("Execute", item, backup)
	return out.item, out.items, out.operation, out.postItems, err
}

// Progress answers as the rule that started the operation says. Only the answer that ends it is recorded: how often one
// asks is a matter of time.
func (a actionV2) Progress(id string, _ *velerov1.Backup) (velero.OperationProgress, error) {
	behaviour, err := a.behaviour()
	if err != nil {
		return velero.OperationProgress{}, err
	}
	rule, ok := behaviour.operation(id)
	if !ok || rule.NoProgress {
		return velero.OperationProgress{}, fmt.Errorf("no operation %q", id)
	}
	polls, err := a.recorder.poll(id)
	if err != nil {
		return velero.OperationProgress{}, err
	}
	progress := velero.OperationProgress{OperationUnits: "units", NTotal: 2, NCompleted: 1, Started: time.Unix(1, 0)}
	if polls <= rule.Unfinished {
		return progress, nil
	}
	progress.Completed, progress.NCompleted, progress.Err = true, 2, rule.OperationError
	return progress, a.recorder.write(Call{Plugin: a.name, Method: "Progress", Item: id, Error: rule.OperationError})
}

func (a actionV2) Cancel(id string, _ *velerov1.Backup) error {
	return a.recorder.write(Call{Plugin: a.name, Method: "Cancel", Item: id})
}

// blockAction is an ItemBlockAction.
type blockAction struct{ action }

func (a blockAction) GetRelatedItems(item runtime.Unstructured, backup *velerov1.Backup) ([]velero.ResourceIdentifier, error) {
	out, err := a.call("GetRelatedItems", item, backup)
	return out.items, err
}
