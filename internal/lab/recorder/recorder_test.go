// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"testing"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func configMap(namespace, name string) *unstructured.Unstructured {
	item := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	item.SetNamespace(namespace)
	item.SetName(name)
	return item
}

func TestActionDoesWhatItIsTold(t *testing.T) {
	cases := map[string]struct {
		rule    Rule
		changed func(*unstructured.Unstructured)
		items   []velero.ResourceIdentifier
		err     string
		isNil   bool
	}{
		"nothing": {rule: Rule{}},
		"other":   {rule: Rule{Match: "ConfigMap b/*", Error: "not for this one"}},
		"error":   {rule: Rule{Match: "ConfigMap a/x", Error: "broken"}, err: "broken"},
		"nil":     {rule: Rule{Match: "ConfigMap a/*", Nil: true}, isNil: true},
		"skip": {rule: Rule{Match: "ConfigMap a/x", Skip: true}, changed: func(item *unstructured.Unstructured) {
			item.SetAnnotations(map[string]string{skipAnnotation: "true"})
		}},
		"items": {
			rule: Rule{Match: "* a/x", Items: []string{"secrets a/s", "storageclasses.storage.k8s.io fast"}},
			items: []velero.ResourceIdentifier{
				{GroupResource: schema.GroupResource{Resource: "secrets"}, Namespace: "a", Name: "s"},
				{GroupResource: schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}, Name: "fast"},
			},
		},
		"bad item": {rule: Rule{Match: "* a/x", Items: []string{"secrets"}}, err: "is not like"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			g.Expect(SetBehaviour(dir, Behaviour{Actions: map[string]Action{"recorder-v1": {Rules: []Rule{tc.rule}}}})).To(Succeed())
			action := actionV1{action{recorder: newRecorder(dir), name: ActionV1}}
			item, items, err := action.Execute(configMap("a", "x"), &velerov1.Backup{})
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(items).To(Equal(tc.items))
			if !tc.isNil {
				want := configMap("a", "x")
				if tc.changed != nil {
					tc.changed(want)
				}
				g.Expect(item.UnstructuredContent()).To(Equal(want.Object))
			}
			calls, err := Take(dir)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(calls).To(HaveLen(1))
			g.Expect(calls[0].Item).To(Equal("ConfigMap a/x"))
			g.Expect(Take(dir)).To(BeEmpty(), "the record starts anew")
		})
	}
}

func TestOperationEndsAfterSoManyQuestions(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	rule := Rule{Match: "*", Operation: "op", Unfinished: 2, OperationError: "it went wrong"}
	g.Expect(SetBehaviour(dir, Behaviour{Actions: map[string]Action{"recorder-v2": {Rules: []Rule{rule}}}})).To(Succeed())
	for n := range 3 {
		// Velero starts a new process each time that it asks.
		action := actionV2{action{recorder: newRecorder(dir), name: ActionV2}}
		progress, err := action.Progress("op", nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(progress.Completed).To(Equal(n == 2))
	}
	action := actionV2{action{recorder: newRecorder(dir), name: ActionV2}}
	_, err := action.Progress("none", nil)
	g.Expect(err).To(MatchError(ContainSubstring("none")))
}

func TestNativeSnapshots(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	volumes := []NativeVolume{{Match: "foreign", Foreign: true}, {Match: "full", SnapshotError: "no space"}}
	g.Expect(SetBehaviour(dir, Behaviour{Snapshotter: Native{Volumes: volumes}})).To(Succeed())
	n := &native{recorder: newRecorder(dir)}
	g.Expect(n.GetVolumeID(configMap("", "foreign"))).To(BeEmpty())
	g.Expect(n.GetVolumeID(configMap("", "full"))).To(Equal("vol-full"))
	_, err := n.CreateSnapshot("vol-full", "z", nil)
	g.Expect(err).To(MatchError("no space"))
	g.Expect(n.CreateSnapshot("vol-good", "z", map[string]string{"b": "2", "a": "1"})).To(Equal("snap-good"))
	calls, err := Take(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(calls).To(HaveLen(4))
	g.Expect(calls[3].Input).To(Equal(map[string]any{"zone": "z", "tags": []any{"a=1", "b=2"}}))
}
