// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shown returns a function that returns the progress that was patched into the Backup so far.
func (c *cluster) shown() func() []velerov1.BackupProgress {
	var mu sync.Mutex
	var list []velerov1.BackupProgress
	c.onPatch = func(object client.Object, body map[string]any) error {
		if _, ok := object.(*velerov1.Backup); ok {
			total, _, _ := unstructured.NestedFloat64(body, "status", "progress", "totalItems")
			done, _, _ := unstructured.NestedFloat64(body, "status", "progress", "itemsBackedUp")
			mu.Lock()
			defer mu.Unlock()
			list = append(list, velerov1.BackupProgress{TotalItems: int(total), ItemsBackedUp: int(done)})
		}
		return nil
	}
	return func() []velerov1.BackupProgress {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

func TestProgressDoesNotCountAClaimWhoseSnapshotIsPending(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data")
		c.add(pod("db", "data"), builder.ForConfigMap("app", "settings").Result())
		c.taker.hold = holdAll
		shown := c.shown()
		r := c.start()
		c.Expect(shown()).To(Equal([]velerov1.BackupProgress{{TotalItems: 4}}), "what was collected: the volume comes in with its claim")

		<-time.After(5 * time.Second)
		synctest.Wait()
		c.Expect(shown()[1:]).To(Equal([]velerov1.BackupProgress{{TotalItems: 4, ItemsBackedUp: 2}}), "the namespace and the settings; nothing new, no patch")

		c.taker.cut("data")
		r.wait()
		c.Expect(shown()[2:]).To(Equal([]velerov1.BackupProgress{{TotalItems: 8, ItemsBackedUp: 8}}))
		c.Expect(r.result.Progress).To(Equal(velerov1.BackupProgress{TotalItems: 8, ItemsBackedUp: 8}))
	})
}

func TestPluginsSeeHowManyItemsThereAre(t *testing.T) { // 199
	inCluster(t, func(c *cluster) {
		c.add(builder.ForConfigMap("app", "settings").Result())
		c.plugin("asks", func(*unstructured.Unstructured) (*answer, error) {
			c.events.add(fmt.Sprint("items ", c.backup.Status.Progress))
			return nil, nil
		}, "configmaps")
		c.take()
		c.Expect(c.events.all("items")).To(Equal([]string{fmt.Sprint("items ", &velerov1.BackupProgress{TotalItems: 2})}))
	})
}

func TestProgressThatCannotBeShownIsAWarning(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.add(builder.ForConfigMap("app", "settings").Result())
		c.onPatch = func(client.Object, map[string]any) error { return errors.New("no such role") }
		r := c.take()
		c.Expect(r.files()).To(ContainElement("configmaps app/settings"))
		c.Expect(c.errors()).To(BeEmpty())
		c.Expect(c.warnings()).To(ConsistOf(ContainSubstring("velero/nightly: no such role")), "one for all that fail in a row")
	})
}

// definition is the CRD of a resource type, as the cluster serves it.
func definition(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1beta1", Kind: "CustomResourceDefinition"})
	u.SetName(name)
	return u
}

func widget(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	u.SetNamespace("app")
	u.SetName(name)
	return u
}

func TestDefinitionsOfBackedUpTypes(t *testing.T) {
	const crd = "customresourcedefinitions widgets.example.com"
	cases := map[string]struct {
		prepare func(*cluster)
		crds    []string
	}{
		"of a type with an item": {
			prepare: func(c *cluster) { c.add(widget("one"), widget("two")) },
			crds:    []string{crd},
		},
		"not of a type without an item": {},
		"not of a type whose only item was taken out": {
			prepare: func(c *cluster) {
				c.add(widget("one"))
				c.plugin("skip", func(item *unstructured.Unstructured) (*answer, error) {
					annotate(item, velerov1.SkipFromBackupAnnotation, "")
					return &answer{item: item}, nil
				}, "widgets.example.com")
			},
		},
		"not of a type that only plugins brought in": {
			prepare: func(c *cluster) {
				c.replace(func(b *velerov1.Backup) {
					b.Spec.ExcludedNamespaceScopedResources = append(b.Spec.ExcludedNamespaceScopedResources, "widgets.example.com")
				})
				c.add(widget("one"), builder.ForConfigMap("app", "settings").Result())
				c.plugin("asks", func(item *unstructured.Unstructured) (*answer, error) {
					annotate(item, velerov1.MustIncludeAdditionalItemAnnotation, "true")
					return &answer{item: item, additional: []velero.ResourceIdentifier{named("widgets.example.com", "app", "one")}}, nil
				}, "configmaps")
			},
		},
		"not when the filters exclude them": {
			prepare: func(c *cluster) {
				c.replace(func(b *velerov1.Backup) {
					b.Spec.ExcludedClusterScopedResources = append(b.Spec.ExcludedClusterScopedResources, "customresourcedefinitions")
				})
				c.add(widget("one"))
			},
		},
		"all of them when the filters include them": {
			prepare: func(c *cluster) {
				c.replace(func(b *velerov1.Backup) {
					b.Spec.IncludedClusterScopedResources = []string{"customresourcedefinitions"}
				})
				c.add(widget("one"))
			},
			crds: []string{crd, "customresourcedefinitions gadgets.example.com"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.add(definition("widgets.example.com"), definition("gadgets.example.com"))
				if test.prepare != nil {
					test.prepare(c)
				}
				var found []string
				for _, file := range c.take().files() {
					if strings.HasPrefix(file, "customresourcedefinitions ") {
						found = append(found, file)
					}
				}
				c.Expect(found).To(ConsistOf(test.crds))
				c.Expect(c.errors()).To(BeEmpty())
			})
		})
	}
}
