// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/features"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// crowd counts how many are inside at once.
type crowd struct {
	gate chan struct{}

	mu          sync.Mutex
	inside, max int
	passed      int
}

// pass is a plugin that stays inside until the gate opens.
func (c *crowd) pass(*unstructured.Unstructured) (*answer, error) {
	c.mu.Lock()
	c.inside++
	c.max = max(c.max, c.inside)
	c.mu.Unlock()
	<-c.gate
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside--
	c.passed++
	return nil, nil
}

func (c *crowd) count() (inside, most, passed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inside, c.max, c.passed
}

func TestPluginsAreCalledByNoMoreGoroutinesThanWorkers(t *testing.T) {
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.workers = workers
				for i := range 6 {
					claim := fmt.Sprintf("claim-%d", i)
					c.claims(claim)
					c.add(builder.ForConfigMap("app", fmt.Sprintf("settings-%d", i)).Result(), pod(fmt.Sprintf("web-%d", i), claim))
				}
				crowd := &crowd{gate: make(chan struct{})}
				c.plugin("crowd", crowd.pass, "pods", "configmaps", "persistentvolumeclaims", "persistentvolumes", "namespaces")
				r := c.start()
				inside, _, _ := crowd.count()
				c.Expect(inside).To(Equal(workers), "all workers are at it")
				close(crowd.gate)
				c.Expect(r.wait().err).NotTo(HaveOccurred())
				_, most, passed := crowd.count()
				c.Expect(most).To(Equal(workers))
				c.Expect(passed).To(Equal(6*4 + 1))
			})
		})
	}
}

func TestABlockThatWaitsForItsSnapshotHoldsNoWorker(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("a", "b", "c")
		c.add(pod("web-a", "a"), pod("web-b", "b"), pod("web-c", "c"), builder.ForConfigMap("app", "settings").Result())
		c.taker.hold = holdAll
		c.plugin("note", func(item *unstructured.Unstructured) (*answer, error) {
			c.events.add("write " + item.GetName())
			return nil, nil
		}, "pods", "configmaps", "namespaces")
		r := c.start()
		c.Expect(c.events.all("create")).To(HaveLen(3))
		c.Expect(c.taker.calls).To(HaveLen(1), "the batch is one call")
		c.Expect(c.events.all("write")).To(ConsistOf("write app", "write settings"), "what waits for nothing is written meanwhile")

		c.taker.cut("b")
		synctest.Wait()
		c.Expect(c.events.all("write")).To(HaveLen(3))
		c.Expect(c.events.all("write")).To(ContainElement("write web-b"), "a block is written when its own snapshots are there")
		c.Expect(r.isOver()).To(BeFalse())

		c.taker.cut("c")
		c.taker.fail("a", snapshot.ReasonTimedOut, "no answer")
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(r.files()).To(ContainElement("pods app/web-c"))
	})
}

func TestOrderedBlocksTakeTheirSnapshotsOneAfterTheOther(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.replace(func(b *velerov1.Backup) { b.Spec.OrderedResources = map[string]string{"pods": "app/second,app/first"} })
		c.claims("one", "two", "other")
		c.add(pod("first", "one"), pod("other", "other"), pod("second", "two"))
		c.taker.hold = holdAll
		r := c.start()
		for _, claim := range []string{"two", "one"} {
			events := c.events.all("create")
			c.Expect(events[len(events)-1]).To(Equal("create " + claim))
			c.taker.cut(claim)
			synctest.Wait()
		}
		c.Expect(c.events.all()).To(Equal([]string{"create two", "cut two", "create one", "cut one", "create other"}))
		c.taker.cut("other")
		r.wait()
		files := r.files()
		c.Expect(position(files, "pods app/second")).To(BeNumerically("<", position(files, "pods app/first")))
		c.Expect(position(files, "pods app/first")).To(BeNumerically("<", position(files, "pods app/other")))
	})
}

func position(list []string, wanted string) int {
	for i, s := range list {
		if s == wanted {
			return i
		}
	}
	return -1
}

func TestWithoutVelerosCSIFeatureThereAreNoSnapshots(t *testing.T) {
	inCluster(t, func(c *cluster) {
		features.NewFeatureFlagSet()
		c.claims("data")
		c.add(pod("db", "data"))
		r := c.take()
		c.Expect(c.taker.calls).To(BeEmpty())
		c.Expect(without(r.files(), "namespaces app")).To(Equal([]string{"persistentvolumes pv-data", "persistentvolumeclaims app/data", "pods app/db"}))
		c.Expect(r.object("persistentvolumeclaims/namespaces/app/data").GetLabels()).To(BeEmpty())
		c.Expect(c.errors()).To(BeEmpty())
		c.Expect(r.result.Operations).To(BeEmpty())
	})
}

func TestLimitOfABackup(t *testing.T) {
	cases := map[string]struct {
		server, annotation string
		limit              int
		refused            bool
	}{
		"the server's":                        {server: "3", limit: 3},
		"the server's percentage":             {server: "50%", limit: 2},
		"the server's, unlimited":             {server: "unlimited", limit: 0},
		"lower":                               {server: "3", annotation: "1", limit: 1},
		"a percentage":                        {server: "unlimited", annotation: "25%", limit: 1},
		"it can't be raised":                  {server: "3", annotation: "5", limit: 3},
		"it can't be lifted":                  {server: "3", annotation: "unlimited", limit: 3},
		"0 isn't a limit":                     {server: "3", annotation: "0", refused: true},
		"nor is a word":                       {server: "3", annotation: "many", refused: true},
		"nor is more than everything":         {server: "3", annotation: "101%", refused: true},
		"nor is nothing":                      {server: "3", annotation: "-1", refused: true},
		"an empty one is a mistake, not none": {server: "3", annotation: " ", refused: true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.claims("a", "b", "c", "d")
				parallelism, err := snapshot.ParseParallelism(test.server)
				c.Expect(err).NotTo(HaveOccurred())
				c.change = func(d *backup.Deps) { d.Parallelism = parallelism }
				if test.annotation != "" {
					c.replace(func(b *velerov1.Backup) {
						b.Annotations = map[string]string{backup.ParallelismAnnotation: test.annotation}
					})
				}
				r := c.start().wait()
				if test.refused {
					c.Expect(r.err).To(MatchError(And(ContainSubstring(backup.ParallelismAnnotation), ContainSubstring("10%"))))
					c.Expect(c.taker.calls).To(BeEmpty())
					return
				}
				c.Expect(r.err).NotTo(HaveOccurred())
				for _, request := range c.taker.requests() {
					c.Expect(request.Owner).To(Equal(snapshot.Owner{Name: "nightly", Namespace: "velero", UID: "backup-uid", Limit: test.limit}))
				}
				c.Expect(c.taker.requests()).To(HaveLen(4))
			})
		})
	}
}

func TestCancelledWhileTheBatchIsWaitedFor(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("a", "b")
		c.add(pod("web", "a"), builder.ForConfigMap("app", "settings").Result())
		c.taker.hold = holdAll
		r := c.start()
		c.Expect(r.isOver()).To(BeFalse())
		cause := errors.New("the server is going down")
		c.cancel(cause)
		c.Expect(r.wait().err).To(MatchError(cause))
		// The bubble fails the test if a goroutine is left.
		c.Expect(c.events.all("fail")).To(ConsistOf("fail a", "fail b"))
		c.Expect(r.files()).To(ContainElement("configmaps app/settings"))
		c.Expect(r.files()).NotTo(ContainElement("pods app/web"))
		c.Expect(r.result.Resources).To(HaveKey("v1/ConfigMap"))
	})
}

func TestCancelledBeforeItBegins(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("a")
		c.add(hooked("db", "a"))
		cause := errors.New("the server is going down")
		c.cancel(cause)
		r := c.start().wait()
		c.Expect(r.err).To(HaveOccurred())
		c.Expect(c.events.all()).To(BeEmpty())
		c.Expect(r.result).NotTo(BeNil())
	})
}
