// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestItemsThatPluginsBringIn(t *testing.T) {
	cases := map[string]struct {
		wanted velero.ResourceIdentifier
		// in is the file that must be there, out the one that must not.
		in, out         string
		parentIsOut     bool
		warning, errors []any
	}{
		"one of the block's own type": {wanted: named("configmaps", "app", "other"), in: "configmaps app/other"},
		"cluster-scoped, not listed":  {wanted: named("persistentvolumes", "", "pv-alone"), in: "persistentvolumes pv-alone"},
		"in another namespace":        {wanted: named("secrets", "elsewhere", "token"), out: "secrets elsewhere/token"},
		"not in the cluster": {
			wanted:  named("secrets", "app", "gone"),
			warning: []any{And(HavePrefix("gone: "), ContainSubstring("isn't in the cluster"))},
		},
		"of a type that isn't served": {
			wanted: named("gadgets.example.com", "app", "x"), parentIsOut: true,
			errors: []any{And(HavePrefix("settings: "), ContainSubstring("gadgets.example.com"))},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.add(
					builder.ForConfigMap("app", "settings").Result(), builder.ForConfigMap("app", "other").Result(),
					builder.ForPersistentVolume("pv-alone").CSI(driver, "x").Result(),
					builder.ForNamespace("elsewhere").Phase("Active").Result(), builder.ForSecret("elsewhere", "token").Result(),
				)
				c.plugin("asks", bringsIn("settings", test.wanted), "configmaps")
				files := c.take().files()
				if test.in != "" {
					c.Expect(files).To(ContainElement(test.in))
					c.Expect(position(files, test.in)).To(BeNumerically("<", position(files, "configmaps app/settings")))
				}
				c.Expect(files).NotTo(ContainElement(test.out))
				c.Expect(position(files, "configmaps app/settings") < 0).To(Equal(test.parentIsOut))
				c.Expect(c.warnings()).To(ConsistOf(test.warning...))
				c.Expect(c.errors()).To(ConsistOf(test.errors...))
			})
		})
	}
}

func TestMustIncludePassesTheFiltersAndStays(t *testing.T) {
	for value, in := range map[string]bool{"true": true, "false": false} {
		inCluster(t, func(c *cluster) {
			c.add(
				builder.ForConfigMap("app", "settings").ObjectMeta(builder.WithAnnotations("kept", "yes")).Result(),
				builder.ForNamespace("elsewhere").Phase("Active").Result(), builder.ForSecret("elsewhere", "token").Result(),
			)
			c.plugin("asks", func(item *unstructured.Unstructured) (*answer, error) {
				annotate(item, velerov1.MustIncludeAdditionalItemAnnotation, value)
				return &answer{item: item, additional: []velero.ResourceIdentifier{named("secrets", "elsewhere", "token")}}, nil
			}, "configmaps")
			r := c.take()
			c.Expect(position(r.files(), "secrets elsewhere/token") >= 0).To(Equal(in), value)
			c.Expect(r.object("configmaps/namespaces/app/settings").GetAnnotations()).To(Equal(map[string]string{
				"kept": "yes", velerov1.MustIncludeAdditionalItemAnnotation: value,
			}), "as in stock, whose removal has no effect (191)")
		})
	}
}

func TestActionsHandTheObjectOn(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.add(builder.ForConfigMap("app", "settings").Result())
		label := func(key string) func(item *unstructured.Unstructured) (*answer, error) {
			return func(item *unstructured.Unstructured) (*answer, error) {
				labels := item.GetLabels()
				if labels == nil {
					labels = map[string]string{}
				}
				labels[key] = "seen with " + map[bool]string{true: "first", false: "nothing"}[labels["first"] != ""]
				item.SetLabels(labels)
				return &answer{item: item}, nil
			}
		}
		c.plugin("a", label("first"), "configmaps")
		c.plugin("b", func(*unstructured.Unstructured) (*answer, error) { return nil, nil }, "configmaps") // nil: unchanged (188)
		c.plugin("c", label("second"), "configmaps")
		c.plugin("d", func(item *unstructured.Unstructured) (*answer, error) {
			item.SetName("renamed")
			return &answer{item: item}, nil
		}, "configmaps")
		r := c.take()
		c.Expect(r.object("configmaps/namespaces/app/renamed").GetLabels()).To(Equal(map[string]string{
			"first": "seen with nothing", "second": "seen with first",
		}))
		c.Expect(r.result.Resources["v1/ConfigMap"]).To(Equal([]string{"app/settings"}), "the old name (172)")
	})
}

func TestAPluginTakesAnItemOut(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.add(builder.ForConfigMap("app", "settings").Result(), builder.ForConfigMap("app", "other").Result())
		c.plugin("skip", func(item *unstructured.Unstructured) (*answer, error) {
			if item.GetName() != "settings" {
				return nil, nil
			}
			annotate(item, velerov1.SkipFromBackupAnnotation, "")
			annotate(item, velerov1.MustIncludeAdditionalItemAnnotation, "true")
			return &answer{item: item, additional: []velero.ResourceIdentifier{named("secrets", "app", "gone")}}, nil
		}, "configmaps")
		c.plugin("later", func(item *unstructured.Unstructured) (*answer, error) {
			c.events.add("later " + item.GetName())
			return nil, nil
		}, "configmaps")
		r := c.take()
		c.Expect(r.files()).To(ConsistOf("namespaces app", "configmaps app/other"))
		c.Expect(c.events.all("later")).To(Equal([]string{"later other"}), "the rest of its actions don't run")
		c.Expect(r.result.Resources["v1/ConfigMap"]).To(Equal([]string{"app/other"}))
		c.Expect(r.result.Progress).To(Equal(velerov1.BackupProgress{TotalItems: 2, ItemsBackedUp: 2}))
		c.Expect(c.errors()).To(BeEmpty())
		c.Expect(c.warnings()).To(BeEmpty())
	})
}

func TestAPluginThatFailsFailsItsItemOnly(t *testing.T) {
	for name, do := range map[string]func(*unstructured.Unstructured) (*answer, error){
		"error": func(*unstructured.Unstructured) (*answer, error) { return nil, errors.New("broken") },
		"panic": func(*unstructured.Unstructured) (*answer, error) { panic("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.add(builder.ForConfigMap("app", "settings").Result(), builder.ForSecret("app", "other").Result())
				c.plugin("example.com/broken", do, "configmaps")
				r := c.take()
				c.Expect(r.files()).To(ConsistOf("namespaces app", "secrets app/other"))
				c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("settings: "), ContainSubstring("configmaps app/settings"), ContainSubstring("broken"))))
			})
		})
	}
}

func TestOperationsThatGoOnAreRecorded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data")
		c.add(builder.ForConfigMap("app", "settings").Result())
		post := []velero.ResourceIdentifier{named("secrets", "app", "later")}
		c.plugin("example.com/mover", func(*unstructured.Unstructured) (*answer, error) {
			return &answer{operationID: "op-1", postItems: post}, nil
		}, "configmaps")
		started := time.Now()
		operations := c.take().result.Operations
		c.Expect(operations).To(HaveLen(2))

		byAction := map[string]*itemoperation.BackupOperation{}
		for _, operation := range operations {
			byAction[operation.Spec.BackupItemAction] = operation
			c.Expect(operation.Spec.BackupName).To(Equal("nightly"))
			c.Expect(operation.Spec.BackupUID).To(Equal("backup-uid"))
			c.Expect(operation.Status.Phase).To(Equal(itemoperation.OperationPhaseNew))
			c.Expect(operation.Status.Created.Time).To(BeTemporally("==", started))
		}
		c.Expect(byAction["example.com/mover"].Spec).To(And(
			HaveField("OperationID", "op-1"), HaveField("ResourceIdentifier", named("configmaps", "app", "settings")), HaveField("PostOperationItems", post),
		))
		vs := named("volumesnapshots.snapshot.storage.k8s.io", "app", snapshotOf("data"))
		c.Expect(byAction["velero.io/csi-volumesnapshot-backupper"].Spec).To(And(
			HaveField("OperationID", "app/"+snapshotOf("data")+"/"+started.Format(time.RFC3339)),
			HaveField("ResourceIdentifier", vs),
			HaveField("PostOperationItems", []velero.ResourceIdentifier{vs, named("volumesnapshotcontents.snapshot.storage.k8s.io", "", contentOf("data"))}),
		))
	})
}

func TestBlocksThatWantEachOthersItemsDoNotWaitForEver(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.workers = 2
		c.add(builder.ForConfigMap("app", "a").Result(), builder.ForConfigMap("app", "b").Result())
		both := &crowd{gate: make(chan struct{})}
		c.plugin("meet", both.pass, "configmaps") // so that both are being visited before either asks for the other
		other := map[string]string{"a": "b", "b": "a"}
		c.plugin("cycle", func(item *unstructured.Unstructured) (*answer, error) {
			return &answer{additional: []velero.ResourceIdentifier{named("configmaps", "app", other[item.GetName()])}}, nil
		}, "configmaps")
		r := c.start()
		// One of the workers may still be at the namespace; it passes the plugin by.
		inside, _, _ := both.count()
		c.Expect(inside).To(Equal(2))
		close(both.gate)
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(r.files()).To(ConsistOf("namespaces app", "configmaps app/a", "configmaps app/b"))
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestAnItemThatBringsItselfIn(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.add(builder.ForConfigMap("app", "a").Result())
		c.plugin("cycle", bringsIn("a", named("configmaps", "app", "a")), "configmaps")
		c.Expect(c.take().files()).To(ConsistOf("namespaces app", "configmaps app/a"))
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestASecondVisitorWaitsForTheFirst(t *testing.T) {
	for name, fails := range map[string]bool{"and has its item": false, "and fails with it": true} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.workers = 2
				c.add(builder.ForConfigMap("app", "a").Result(), builder.ForConfigMap("app", "b").Result())
				entered, gate := make(chan struct{}), make(chan struct{})
				c.plugin("slow", func(item *unstructured.Unstructured) (*answer, error) {
					if item.GetName() != "a" {
						<-entered // or b would be the first visitor
						return nil, nil
					}
					close(entered)
					<-gate
					if fails {
						return nil, errors.New("broken")
					}
					return nil, nil
				}, "configmaps")
				c.plugin("asks", bringsIn("b", named("configmaps", "app", "a")), "configmaps")
				r := c.start()
				c.Expect(r.isOver()).To(BeFalse())
				close(gate)
				c.Expect(r.wait().err).NotTo(HaveOccurred())
				if fails {
					c.Expect(r.files()).To(ConsistOf("namespaces app"))
					c.Expect(c.errors()).To(ConsistOf(HavePrefix("a: "), HavePrefix("b: ")))
					return
				}
				c.Expect(without(r.files(), "namespaces app")).To(Equal([]string{"configmaps app/a", "configmaps app/b"}))
			})
		})
	}
}

func TestASecondVisitorOfAClaimInFlightWaitsForTheSameSnapshot(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data")
		c.add(builder.ForConfigMap("app", "settings").Result(), pod("db", "data"))
		c.plugin("asks", bringsIn("settings", named("persistentvolumeclaims", "app", "data")), "configmaps")
		c.taker.hold = holdAll
		r := c.start()
		synctest.Wait()
		c.Expect(r.isOver()).To(BeFalse())
		c.taker.cut("data")
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(c.taker.requests()).To(HaveLen(1))
		c.Expect(r.files()).To(ContainElements("configmaps app/settings", "pods app/db", "persistentvolumeclaims app/data"))
	})
}

func TestASnapshotOfSomebodyElse(t *testing.T) {
	for name, bound := range map[string]bool{"bound": true, "not bound": false} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				vs := builder.ForVolumeSnapshot("app", "theirs").SourcePVC("data").VolumeSnapshotClass("fast").Status()
				if bound {
					vs.BoundVolumeSnapshotContentName("their-content")
				}
				content := builder.ForVolumeSnapshotContent("their-content").Driver(driver).Result()
				c.add(vs.Result(), content, builder.ForConfigMap("app", "settings").Result())
				c.plugin("asks", func(item *unstructured.Unstructured) (*answer, error) {
					annotate(item, velerov1.MustIncludeAdditionalItemAnnotation, "true")
					return &answer{item: item, additional: []velero.ResourceIdentifier{named("volumesnapshots.snapshot.storage.k8s.io", "app", "theirs")}}, nil
				}, "configmaps")
				r := c.take()
				c.Expect(r.result.Snapshots.VolumeSnapshots).To(BeEmpty(), "it isn't one that this backup took")
				if bound {
					c.Expect(r.files()).To(ContainElements("volumesnapshots app/theirs", "volumesnapshotcontents their-content", "configmaps app/settings"))
					return
				}
				c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("settings: "), ContainSubstring("no content yet"))))
				c.Expect(r.files()).NotTo(ContainElement("volumesnapshots app/theirs"))
				c.get("app", "theirs", vs.Result()) // it isn't ours to remove
				c.Expect(r.result.SnapshotsAttempted).To(BeZero())
			})
		})
	}
}
