// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	ibav1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/itemblockaction/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// hanging is the process of a plugin whose calls hang until it is stopped.
type hanging struct {
	mu    sync.Mutex
	ended chan struct{}
	// stops are the times at which it was stopped, from the start of the test.
	stops []time.Duration
}

var errEnded = errors.New("the process has ended")

// hang lets calls wait.
func (h *hanging) hang() error {
	h.mu.Lock()
	ended := h.ended
	h.mu.Unlock()
	<-ended
	return errEnded
}

// withHanging has the engine stop the plugin. Calls of a backup may take four hours.
func (c *cluster) withHanging() *hanging {
	h := &hanging{ended: make(chan struct{})}
	begin := time.Now()
	c.stopPlugins = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.stops = append(h.stops, time.Since(begin))
		close(h.ended)
		h.ended = make(chan struct{})
	}
	c.backup.Spec.ItemOperationTimeout = metav1.Duration{Duration: 4 * time.Hour}
	return h
}

// hangs is a plugin action that hangs with items of one name.
func (h *hanging) hangs(name string) func(*unstructured.Unstructured) (*answer, error) {
	return func(item *unstructured.Unstructured) (*answer, error) {
		if item.GetName() == name {
			return nil, h.hang()
		}
		return nil, nil
	}
}

func TestAPluginThatHangsFailsItsItemOnly(t *testing.T) {
	inCluster(t, func(c *cluster) {
		h := c.withHanging()
		c.add(builder.ForConfigMap("app", "a").Result(), builder.ForConfigMap("app", "b").Result(), builder.ForConfigMap("app", "c").Result())
		c.plugin("example.com/slow", h.hangs("b"), "configmaps")
		r := c.take()
		c.Expect(h.stops).To(Equal([]time.Duration{4 * time.Hour}))
		c.Expect(r.files()).To(ConsistOf("namespaces app", "configmaps app/a", "configmaps app/c"))
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("b: "), ContainSubstring("example.com/slow"), ContainSubstring("no answer for 4h0m0s"))))
	})
}

func TestAPluginThatHangsWhenTheBackupIsEnded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		h := c.withHanging()
		c.add(builder.ForConfigMap("app", "a").Result(), builder.ForConfigMap("app", "b").Result())
		c.plugin("example.com/slow", h.hangs("a"), "configmaps")
		r := c.start()
		c.Expect(r.isOver()).To(BeFalse())
		shutdown := errors.New("shutting down")
		c.cancel(shutdown)
		c.Expect(r.wait().err).To(MatchError(shutdown))
		c.Expect(h.stops).To(Equal([]time.Duration{5 * time.Second}))
	})
}

func TestACallThatEndsInTimeIsLeftAlone(t *testing.T) {
	inCluster(t, func(c *cluster) {
		h := c.withHanging()
		c.add(builder.ForConfigMap("app", "a").Result())
		c.plugin("example.com/slow", func(*unstructured.Unstructured) (*answer, error) {
			time.Sleep(4 * time.Second) //nolint:forbidigo // the clock of the bubble
			return nil, nil
		}, "configmaps")
		r := c.start()
		c.cancel(errors.New("shutting down"))
		r.wait()
		c.Expect(h.stops).To(BeEmpty())
	})
}

// slowDisks hang with one volume.
type slowDisks struct {
	*disks
	*hanging
	volume string
}

func (d *slowDisks) CreateSnapshot(id, zone string, tags map[string]string) (string, error) {
	if id == d.volume {
		return "", d.hang()
	}
	return d.disks.CreateSnapshot(id, zone, tags)
}

// withSlowDisks is a frozen pod with three volumes, the plugin for the second of which hangs.
func (c *cluster) withSlowDisks() *hanging {
	h := c.withHanging()
	d := c.withDisks()
	c.snapshotters = snapshotters{"aws": &slowDisks{disks: d, hanging: h, volume: "vol-two"}}
	c.claim("one", nativeVolume)
	c.claim("two", nativeVolume)
	c.claim("three", nativeVolume)
	c.add(hooked("db", "one", "two", "three"), pod("other"))
	return h
}

// stopped is a snapshotter whose process was stopped before it was first used.
type stopped struct {
	*disks
	err error
}

func (s stopped) Init(map[string]string) error { return s.err }

func TestASnapshotterWhoseProcessWasStoppedIsStartedByItsNextCall(t *testing.T) {
	for err, works := range map[error]bool{
		status.Error(codes.Canceled, "grpc: the client connection is closing"):           true,
		status.Error(codes.Unavailable, `connection error: desc = "connection refused"`): true,
		errors.New("no credentials"): false,
	} {
		inCluster(t, func(c *cluster) {
			d := c.withDisks()
			c.snapshotters = snapshotters{"aws": stopped{disks: d, err: err}}
			c.claim("disk", nativeVolume)
			c.add(pod("db", "disk"))
			c.take()
			if works {
				c.Expect(c.events.all("native")).To(Equal([]string{"native vol-disk"}))
			} else {
				c.Expect(c.events.all("native")).To(BeEmpty())
			}
		})
	}
}

func TestAPodIsThawedWhenAPluginHangsWhileItIsFrozen(t *testing.T) {
	inCluster(t, func(c *cluster) {
		h := c.withSlowDisks()
		r := c.take()
		c.Expect(h.stops).To(Equal([]time.Duration{time.Second + testTimeout}), "not only after the hours that a call may take otherwise")
		c.Expect(c.events.all("freeze", "native", "thaw")).To(Equal([]string{"freeze app/db", "native vol-one", "native vol-three", "thaw app/db"}))
		c.Expect(r.files()).To(ContainElement("pods app/other"))
		c.Expect(r.files()).NotTo(ContainElement("pods app/db"))
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("db: "), ContainSubstring("vol-two"))))
	})
}

func TestAPodIsThawedWhenTheBackupIsEndedWhileAPluginHangs(t *testing.T) {
	inCluster(t, func(c *cluster) {
		h := c.withSlowDisks()
		r := c.start()
		time.Sleep(2 * time.Second) //nolint:forbidigo // the clock of the bubble
		c.cancel(errors.New("shutting down"))
		c.Expect(r.wait().err).To(MatchError(ContainSubstring("shutting down")))
		c.Expect(h.stops).To(Equal([]time.Duration{7 * time.Second}))
		c.Expect(c.events.all("freeze", "native", "thaw")).To(Equal([]string{"freeze app/db", "native vol-one", "thaw app/db"}))
	})
}

// hangingBlockAction hangs with the item of one name.
type hangingBlockAction struct {
	ibav1.ItemBlockAction
	*hanging
	applies bool
}

func (hangingBlockAction) Name() string { return "example.com/related" }

func (a hangingBlockAction) AppliesTo() (velero.ResourceSelector, error) {
	if a.applies {
		return velero.ResourceSelector{}, a.hang()
	}
	return velero.ResourceSelector{IncludedResources: []string{"configmaps"}}, nil
}

func (a hangingBlockAction) GetRelatedItems(item runtime.Unstructured, _ *velerov1.Backup) ([]velero.ResourceIdentifier, error) {
	if (&unstructured.Unstructured{Object: item.UnstructuredContent()}).GetName() == "a" {
		return nil, a.hang()
	}
	return nil, nil
}

func TestABlockActionThatHangs(t *testing.T) {
	inCluster(t, func(c *cluster) {
		h := c.withHanging()
		c.moreBlockActions = []ibav1.ItemBlockAction{hangingBlockAction{hanging: h}}
		c.add(builder.ForConfigMap("app", "a").Result(), builder.ForConfigMap("app", "b").Result())
		c.Expect(c.take().files()).To(ConsistOf("namespaces app", "configmaps app/a", "configmaps app/b"), "153")
		c.Expect(h.stops).To(Equal([]time.Duration{4 * time.Hour}))
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("a: "), ContainSubstring("no answer for 4h0m0s"))))
	})
}

func TestAnActionThatHangsWhenAskedWhatItAppliesTo(t *testing.T) {
	inCluster(t, func(c *cluster) {
		h := c.withHanging()
		c.moreBlockActions = []ibav1.ItemBlockAction{hangingBlockAction{hanging: h, applies: true}}
		c.Expect(c.start().wait().err).To(MatchError(ContainSubstring("no answer for 4h0m0s")))
	})
}

// dying is a plugin whose process dies with an item, and isn't there for some calls after that.
type dying struct {
	on   string
	away int
	// missed counts the calls that reached nobody.
	missed int
}

func (d *dying) call(item *unstructured.Unstructured) (*answer, error) {
	switch {
	case d.missed > 0 && d.missed < d.away:
		d.missed++
		why := []string{"transport: error while dialing: connect: connection refused", "error reading server preface: connection reset by peer"}
		return nil, status.Errorf(codes.Unavailable, "connection error: desc = %q", why[d.missed%2])
	case item.GetName() == d.on:
		d.missed++
		return nil, status.Error(codes.Unavailable, "error reading from server: EOF")
	default:
		return nil, nil
	}
}

func TestAPluginThatDiesFailsTheItemOfThatCallOnly(t *testing.T) {
	inCluster(t, func(c *cluster) {
		for _, name := range []string{"a", "b", "c", "d"} {
			c.add(builder.ForConfigMap("app", name).Result())
		}
		d := &dying{on: "b", away: 7}
		c.plugin("example.com/mortal", d.call, "configmaps")
		begin := time.Now()
		c.Expect(c.take().files()).To(ConsistOf("namespaces app", "configmaps app/a", "configmaps app/c", "configmaps app/d"))
		c.Expect(d.missed).To(Equal(7))
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("b: "), ContainSubstring("EOF"))), "the call in which it died isn't repeated")
		c.Expect(time.Since(begin)).To(BeNumerically("<", time.Second))
	})
}

func TestAPluginThatStaysAwayFailsItsItemsAfterAWhile(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.add(builder.ForConfigMap("app", "a").Result(), builder.ForConfigMap("app", "b").Result())
		d := &dying{away: 1000, missed: 1}
		c.plugin("example.com/mortal", d.call, "configmaps")
		begin := time.Now()
		c.Expect(c.take().files()).To(ConsistOf("namespaces app"))
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("a: "), ContainSubstring("connection error")), HavePrefix("b: ")))
		c.Expect(time.Since(begin)).To(BeNumerically("<", 15*time.Second))
	})
}

func TestWhatALyingPluginReturns(t *testing.T) {
	renamed := func(namespace, name string) func(*unstructured.Unstructured) (*answer, error) {
		return func(item *unstructured.Unstructured) (*answer, error) {
			item.SetNamespace(namespace)
			item.SetName(name)
			return &answer{item: item}, nil
		}
	}
	for name, tc := range map[string]struct {
		do    func(*unstructured.Unstructured) (*answer, error)
		files []string
		fails string
	}{
		"nothing at all": {
			do: func(*unstructured.Unstructured) (*answer, error) { return &answer{}, nil }, files: []string{"configmaps app/lied"}},
		"another name (172)":  {do: renamed("app", "new"), files: []string{"configmaps app/new"}},
		"a path":              {do: renamed("app", "../../../secrets/namespaces/app/x"), fails: "can't be the name"},
		"a path as namespace": {do: renamed("../..", "x"), fails: "can't be the name"},
		"no name":             {do: renamed("app", ""), fails: "no name"},
		"an item that can't be encoded": {
			do: func(item *unstructured.Unstructured) (*answer, error) {
				item.Object["data"] = make(chan int)
				return &answer{item: item}, nil
			}, fails: "encoding"},
		"no content": {
			do: func(*unstructured.Unstructured) (*answer, error) {
				return &answer{item: &unstructured.Unstructured{}}, nil
			}, fails: "no name"},
		"another kind": { // as Velero does; where it is stored follows from what was collected
			do: func(item *unstructured.Unstructured) (*answer, error) {
				item.SetKind("Secret")
				return &answer{item: item}, nil
			}, files: []string{"configmaps app/lied"}},
		"the same item twice": {
			do:    bringsIn("lied", named("secrets", "app", "other"), named("secrets", "app", "other")),
			files: []string{"configmaps app/lied"}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.add(builder.ForConfigMap("app", "lied").Result(), builder.ForConfigMap("app", "plain").Result(), builder.ForSecret("app", "other").Result())
				c.plugin("example.com/liar", func(item *unstructured.Unstructured) (*answer, error) {
					if item.GetName() != "lied" {
						return nil, nil
					}
					return tc.do(item)
				}, "configmaps")
				r := c.take()
				c.Expect(r.files()).To(ConsistOf(append(tc.files, "namespaces app", "configmaps app/plain", "secrets app/other")))
				if tc.fails == "" {
					c.Expect(c.errors()).To(BeEmpty())
				} else {
					c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("lied: "), ContainSubstring(tc.fails))))
				}
			})
		})
	}
}

func TestACycleOfItems(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.add(builder.ForConfigMap("app", "a").Result(), builder.ForConfigMap("app", "b").Result(), builder.ForConfigMap("app", "c").Result())
		next := map[string]string{"a": "b", "b": "c", "c": "a"}
		c.plugin("example.com/cycle", func(item *unstructured.Unstructured) (*answer, error) {
			return &answer{additional: []velero.ResourceIdentifier{named("configmaps", "app", next[item.GetName()])}}, nil
		}, "configmaps")
		c.Expect(c.take().files()).To(ConsistOf("namespaces app", "configmaps app/a", "configmaps app/b", "configmaps app/c"))
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestActionsOfFrozenBlocksAreCalledByNoMoreGoroutinesThanThereAreWorkers(t *testing.T) {
	for _, workers := range []int{1, 4} {
		inCluster(t, func(c *cluster) {
			c.workers = workers
			crowd := &crowd{gate: make(chan struct{})}
			c.plugin("example.com/crowd", crowd.pass, "pods", "configmaps")
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				c.add(hooked("hooked-"+name), pod("plain-"+name), builder.ForConfigMap("app", name).Result())
			}
			r := c.start()
			inside, _, _ := crowd.count()
			c.Expect(inside).To(Equal(workers), "of the hooked ones, which come first")
			close(crowd.gate)
			r.wait()
			_, most, passed := crowd.count()
			c.Expect(most).To(Equal(workers))
			c.Expect(passed).To(Equal(18))
		})
	}
}
