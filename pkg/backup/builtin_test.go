// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v1"
	ibav1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/itemblockaction/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/velero-clipper/clipper/pkg/backup"
)

const builtInName = "example.com/built-in"

// inProcess is a built-in action of both kinds.
type inProcess struct {
	biav1.BackupItemAction
	ibav1.ItemBlockAction
	item  func(item *unstructured.Unstructured) (runtime.Unstructured, []velero.ResourceIdentifier, error)
	block func(item *unstructured.Unstructured) ([]velero.ResourceIdentifier, error)
}

func (p inProcess) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{}, nil
}

func (p inProcess) Execute(item runtime.Unstructured, _ *velerov1.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, error) {
	return p.item(item.(*unstructured.Unstructured))
}

func (p inProcess) GetRelatedItems(item runtime.Unstructured, _ *velerov1.Backup) ([]velero.ResourceIdentifier, error) {
	return p.block(item.(*unstructured.Unstructured))
}

// builtIn makes an item action built in, for ConfigMaps. The plugin in whose place it is fails everything.
func (c *cluster) builtIn(do func(item *unstructured.Unstructured) (runtime.Unstructured, []velero.ResourceIdentifier, error)) (made *int) {
	made = new(int)
	c.plugin(builtInName, func(*unstructured.Unstructured) (*answer, error) { return nil, errors.New("the plugin was called") }, "configmaps")
	c.change = func(deps *backup.Deps) {
		deps.BuiltIn.ItemActions = map[string]func(logrus.FieldLogger) (biav1.BackupItemAction, error){
			builtInName: func(logrus.FieldLogger) (biav1.BackupItemAction, error) {
				*made++
				return inProcess{item: do}, nil
			},
		}
	}
	return made
}

func TestBuiltInActionsAreCalledInsteadOfTheirPlugins(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.add(builder.ForConfigMap("app", "a").Result(), builder.ForConfigMap("app", "b").Result(),
			builder.ForNamespace("elsewhere").Phase("Active").Result(), builder.ForSecret("elsewhere", "token").Result())
		made := c.builtIn(func(item *unstructured.Unstructured) (runtime.Unstructured, []velero.ResourceIdentifier, error) {
			item.SetLabels(map[string]string{"seen": "yes"})
			annotate(item, velerov1.MustIncludeAdditionalItemAnnotation, "true")
			return item, []velero.ResourceIdentifier{named("secrets", "elsewhere", "token")}, nil
		})
		r := c.take()
		c.Expect(r.files()).To(ConsistOf("namespaces app", "configmaps app/a", "configmaps app/b", "secrets elsewhere/token"))
		for _, path := range []string{"configmaps/namespaces/app/a", "configmaps/namespaces/app/b"} {
			c.Expect(r.object(path).GetLabels()).To(HaveKeyWithValue("seen", "yes"))
		}
		c.Expect(*made).To(Equal(1), "once for a backup")
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestBuiltInActionsGetACopy(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.add(builder.ForConfigMap("app", "a").Data("key", "value").Result())
		c.builtIn(func(item *unstructured.Unstructured) (runtime.Unstructured, []velero.ResourceIdentifier, error) {
			item.SetName("scribbled")
			item.Object["data"].(map[string]any)["key"] = "scribbled"
			return nil, nil, nil // nil: unchanged (188)
		})
		r := c.take()
		c.Expect(r.object("configmaps/namespaces/app/a").Object).To(HaveKeyWithValue("data", HaveKeyWithValue("key", "value")))
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestABuiltInActionThatFailsFailsItsItemOnly(t *testing.T) {
	for name, do := range map[string]func() error{
		"error": func() error { return errors.New("broken") },
		"panic": func() error { panic("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.add(builder.ForConfigMap("app", "a").Result(), builder.ForConfigMap("app", "b").Result())
				c.builtIn(func(item *unstructured.Unstructured) (runtime.Unstructured, []velero.ResourceIdentifier, error) {
					if item.GetName() == "a" {
						return nil, nil, do()
					}
					return nil, nil, nil
				})
				c.Expect(c.take().files()).To(ConsistOf("namespaces app", "configmaps app/b"))
				c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("a: "), ContainSubstring("broken"))))
			})
		})
	}
}

// builtInBlocks puts a built-in block action in the place of Velero's for pods.
func (c *cluster) builtInBlocks(make func(logrus.FieldLogger) (ibav1.ItemBlockAction, error)) string {
	name := c.blockActions()[0].Name()
	c.change = func(deps *backup.Deps) {
		deps.BuiltIn.BlockActions = map[string]func(logrus.FieldLogger) (ibav1.ItemBlockAction, error){name: make}
	}
	return name
}

func TestABuiltInBlockActionThatPanicsIsAnErrorOfItsItem(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.add(pod("a"), pod("b"), builder.ForConfigMap("app", "with-b").Result())
		name := c.builtInBlocks(func(logrus.FieldLogger) (ibav1.ItemBlockAction, error) {
			return inProcess{block: func(item *unstructured.Unstructured) ([]velero.ResourceIdentifier, error) {
				if item.GetName() == "a" {
					panic("broken")
				}
				return []velero.ResourceIdentifier{named("configmaps", "app", "with-b")}, nil
			}}, nil
		})
		files := c.take().files()
		c.Expect(files).To(ContainElements("pods app/a", "pods app/b", "configmaps app/with-b"), "it is backed up all the same")
		c.Expect(position(files, "configmaps app/with-b")).To(Equal(position(files, "pods app/b")+1), "in one block")
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("a: "), ContainSubstring("panic in "+name), ContainSubstring("broken"))))
	})
}

func TestABuiltInActionThatCannotBeMadeFailsTheBackup(t *testing.T) {
	broken := errors.New("no client")
	t.Run("item action", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			c.builtIn(nil)
			c.change = func(deps *backup.Deps) {
				deps.BuiltIn.ItemActions = map[string]func(logrus.FieldLogger) (biav1.BackupItemAction, error){
					builtInName: func(logrus.FieldLogger) (biav1.BackupItemAction, error) { return nil, broken },
				}
			}
			c.Expect(c.start().wait().err).To(And(MatchError(broken), MatchError(ContainSubstring(builtInName))))
		})
	})
	t.Run("block action", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			name := c.builtInBlocks(func(logrus.FieldLogger) (ibav1.ItemBlockAction, error) { return nil, broken })
			c.Expect(c.start().wait().err).To(And(MatchError(broken), MatchError(ContainSubstring(name))))
		})
	})
}
