// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/discovery"
)

// errHook is what the fake executor returns for a command that fails.
var errHook = errors.New("command terminated with exit code 1")

// podOption changes a test pod.
type podOption func(*unstructured.Unstructured)

// newPod is a running pod app/name with the containers main and side.
func newPod(name string, options ...podOption) *unstructured.Unstructured {
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata":   map[string]any{"namespace": "app", "name": name, "uid": "uid-" + name},
		"spec": map[string]any{"containers": []any{
			map[string]any{"name": "main"}, map[string]any{"name": "side"},
		}},
		"status": map[string]any{"phase": "Running"},
	}}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func annotated(keysAndValues ...string) podOption {
	return func(pod *unstructured.Unstructured) {
		annotations := map[string]string{}
		for pair := range slices.Chunk(keysAndValues, 2) {
			annotations[pair[0]] = pair[1]
		}
		pod.SetAnnotations(annotations)
	}
}

func labelled(key, value string) podOption {
	return func(pod *unstructured.Unstructured) { pod.SetLabels(map[string]string{key: value}) }
}

func inNamespace(namespace string) podOption {
	return func(pod *unstructured.Unstructured) { pod.SetNamespace(namespace) }
}

func inPhase(phase string) podOption {
	return func(pod *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(pod.Object, phase, "status", "phase")
	}
}

func withoutContainers(pod *unstructured.Unstructured) {
	unstructured.RemoveNestedField(pod.Object, "spec", "containers")
}

// exec is a hook of a spec that runs a one-word command.
func exec(command string, mode velerov1.HookErrorMode) velerov1.BackupResourceHook {
	return velerov1.BackupResourceHook{Exec: &velerov1.ExecHook{Command: []string{command}, OnError: mode}}
}

// specOf is one spec entry for all pods.
func specOf(name string, pre, post []velerov1.BackupResourceHook) velerov1.BackupResourceHookSpec {
	return velerov1.BackupResourceHookSpec{Name: name, PreHooks: pre, PostHooks: post}
}

// fakeDiscovery resolves the names of pods and deployments; nothing else of discovery is used.
type fakeDiscovery struct {
	discovery.Helper
}

func (fakeDiscovery) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, metav1.APIResource, error) {
	switch input.Resource {
	case "po", "pod", "pods":
		return schema.GroupVersionResource{Version: "v1", Resource: "pods"}, metav1.APIResource{Name: "pods"}, nil
	case "deployments":
		return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
			metav1.APIResource{Name: "deployments"}, nil
	default:
		return schema.GroupVersionResource{}, metav1.APIResource{}, fmt.Errorf("no resource %s", input.Resource)
	}
}

func helper() discovery.Helper { return fakeDiscovery{} }

func mustResolve(specs ...velerov1.BackupResourceHookSpec) *Set {
	set, err := Resolve(specs, helper())
	if err != nil {
		panic(err)
	}
	return set
}

// newLog returns a log and what was written to it.
func newLog() (logrus.FieldLogger, *logrustest.Hook) {
	logger, hook := logrustest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	return logger, hook
}

// lines returns the messages of a level, each followed by its error.
func lines(hook *logrustest.Hook, level logrus.Level) []string {
	var out []string
	for _, entry := range hook.AllEntries() {
		if entry.Level != level {
			continue
		}
		line := entry.Message
		if err, ok := entry.Data[logrus.ErrorKey].(error); ok {
			line += ": " + err.Error()
		}
		out = append(out, line)
	}
	return out
}

// fakeExecutor records what it is asked to run. behaviour, by command, says how a command ends; without one it succeeds.
type fakeExecutor struct {
	behaviour map[string]func() error

	mu       sync.Mutex
	calls    []string
	commands []Command
}

func (f *fakeExecutor) Run(ctx context.Context, _ logrus.FieldLogger, c Command) error {
	command := strings.Join(c.Argv, " ")
	f.mu.Lock()
	f.calls = append(f.calls, c.Namespace+"/"+c.Pod+" "+command)
	f.commands = append(f.commands, c)
	f.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if behave, ok := f.behaviour[command]; ok {
		return behave()
	}
	return nil
}

// ran returns what was run so far, without the pods' names.
func (f *fakeExecutor) ran() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []string{}
	for _, call := range f.calls {
		_, command, _ := strings.Cut(call, " ")
		out = append(out, command)
	}
	return out
}

// fakePods answers whether a pod is still the same, and notes that it was asked.
type fakePods struct {
	executor *fakeExecutor
	err      error
}

func (f fakePods) Check(_ context.Context, c Command) error {
	f.executor.mu.Lock()
	defer f.executor.mu.Unlock()
	f.executor.calls = append(f.executor.calls, "- look at "+string(c.UID))
	return f.err
}

func fails() error { return errHook }

// fakeRecorder notes its calls in the executor's list, so that their order is seen.
type fakeRecorder struct {
	executor  *fakeExecutor
	frozenErr error
	thawedErr error
	thaw      []Hook
	owed      []Hook
	ctxErr    error
}

func (f *fakeRecorder) note(what string) {
	f.executor.mu.Lock()
	defer f.executor.mu.Unlock()
	f.executor.calls = append(f.executor.calls, "- "+what)
}

func (f *fakeRecorder) Frozen(_ context.Context, _ *unstructured.Unstructured, thaw []Hook) error {
	f.thaw = thaw
	f.note("record")
	return f.frozenErr
}

func (f *fakeRecorder) Thawed(ctx context.Context, _ *unstructured.Unstructured, owed []Hook) error {
	f.ctxErr, f.owed = ctx.Err(), owed
	f.note("clear")
	return f.thawedErr
}
