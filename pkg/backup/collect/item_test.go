// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/test"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
)

var podType = &collect.Type{
	GroupResource: test.Pods().GVR().GroupResource(), PreferredGVR: test.Pods().GVR(), APIVersion: "v1", Kind: "Pod",
}

func TestAnItemGivesTheObjectBack(t *testing.T) {
	g := NewWithT(t)
	const text = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a"},` +
		`"spec":{"big":9007199254740993,"empty":{},"few":null,"list":[1,2.5,true,"\u003cx\u003e\n"]}}`
	object := &unstructured.Unstructured{}
	g.Expect(object.UnmarshalJSON([]byte(text))).To(Succeed())
	before := object.DeepCopy()

	item, err := collect.NewItem(podType, object)
	g.Expect(err).NotTo(HaveOccurred())
	object.SetName("changed")
	g.Expect(item.Object()).To(Equal(before))
	g.Expect(string(item.JSON())).To(Equal(text))
	tarball, err := json.Marshal(before.Object)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(item.JSON()).To(Equal(tarball), "what the archive would write")

	item.Object().SetName("mine")
	g.Expect(item.Object()).To(Equal(before), "each caller has a copy")
}

func TestAnItemOfAnUnencodableObject(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "a", "name": "p"}, "bad": make(chan int)}}
	_, err := collect.NewItem(podType, object)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("encoding pods a/p as JSON")))
}

func TestAListThatExpiresIsReadAnew(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t, test.Pods(), test.Namespaces())
	for i := range 5 {
		c.add(test.Pods(), "a", fmt.Sprint(i))
	}
	c.forgets = func() {
		c.objects[test.Pods().GVR()] = c.objects[test.Pods().GVR()][1:] // the first page is no longer true
		c.add(test.Pods(), "b", "new")
	}
	deps, _ := c.deps(t, velerov1.BackupSpec{IncludedResources: []string{"pods"}})
	deps.PageSize = 2
	items, err := collect.Collect(t.Context(), deps)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(items)).To(Equal([]string{"pods a/1", "pods a/2", "pods a/3", "pods a/4", "pods b/new"}))
	g.Expect(c.lists).To(HaveLen(3), "a page, the one that failed, and everything at once")
}

// Twenty thousand objects must not be held as maps: that is what made the server larger than with Velero's own engine.
func TestItemsAreSmall(t *testing.T) {
	g := NewWithT(t)
	const count = 2000
	items := make([]collect.Item, 0, count)
	size := 0
	before := heap()
	for i := range count {
		item, err := collect.NewItem(podType, manyFields(i))
		g.Expect(err).NotTo(HaveOccurred())
		size += len(item.JSON())
		items = append(items, item)
	}
	grown := heap() - before
	g.Expect(grown).To(BeNumerically("<", size*3/2+count*100))
	g.Expect(items).To(HaveLen(count))
	runtime.KeepAlive(items)
}

func heap() int {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// manyFields is an object of about a pod's shape.
func manyFields(i int) *unstructured.Unstructured {
	fields := map[string]any{}
	for f := range 40 {
		fields[fmt.Sprintf("f:field%d", f)] = map[string]any{"f:name": map[string]any{}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "a", "name": fmt.Sprint(i)}, "spec": fields,
	}}
}
