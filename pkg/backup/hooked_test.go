// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/hook"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

func TestAHookedBlockIsThawedWhenAllItsSnapshotsAreCut(t *testing.T) { // field cases F5, F10
	inCluster(t, func(c *cluster) {
		c.claims("data", "wal", "plain")
		c.add(hooked("db", "data", "wal"), pod("web", "plain"))
		c.taker.hold = holdAll
		c.plugin("note", func(item *unstructured.Unstructured) (*answer, error) {
			c.events.add("write " + item.GetName())
			return nil, nil
		}, "pods")
		r := c.start()
		c.Expect(c.events.all()).To(Equal([]string{"freeze app/db", "create data", "create wal"}))
		c.Expect(c.taker.calls).To(HaveLen(1), "all of a block's snapshots are asked for in one call")
		for _, request := range c.taker.requests() {
			c.Expect(request.Priority).To(Equal(snapshot.Frozen))
		}

		c.taker.cut("wal")
		synctest.Wait()
		c.Expect(c.events.all("thaw", "write")).To(BeEmpty(), "data isn't cut yet")

		c.taker.cut("data")
		synctest.Wait()
		c.Expect(c.events.all()[3:]).To(Equal([]string{"cut wal", "cut data", "thaw app/db", "write db", "create plain"}))

		c.taker.cut("plain")
		r.wait()
		c.Expect(r.err).NotTo(HaveOccurred())
		c.Expect(r.files()).To(ContainElements("pods app/db", "pods app/web"))
		c.Expect(c.taker.requests()[2].Priority).To(Equal(snapshot.Batch))
		c.Expect(r.result.Hooks).To(Equal(velerov1.HookStatus{HooksAttempted: 2}))
		c.Expect(r.result.FreezeWindows).To(HaveLen(1))
	})
}

func TestNothingPlainIsSnapshottedBeforeTheLastThaw(t *testing.T) {
	for workers, frozenAtFirst := range map[int][]string{
		1: {"freeze app/db-1"},
		2: {"freeze app/db-1", "freeze app/db-2"},
	} {
		inCluster(t, func(c *cluster) {
			c.workers = workers
			c.claims("a", "b", "plain")
			c.add(pod("a-web", "plain"), hooked("db-1", "a"), hooked("db-2", "b"))
			c.taker.hold = holdAll
			r := c.start()
			c.Expect(c.events.all("freeze")).To(ConsistOf(frozenAtFirst))

			c.taker.cut("a")
			synctest.Wait()
			c.Expect(c.events.all("thaw")).To(Equal([]string{"thaw app/db-1"}))
			c.Expect(c.events.all("freeze")).To(HaveLen(2))
			c.Expect(c.events.all()).NotTo(ContainElement("create plain"), "db-2 is frozen")

			c.taker.cut("b")
			synctest.Wait()
			events := c.events.all("create", "thaw")
			c.Expect(events[len(events)-2:]).To(Equal([]string{"thaw app/db-2", "create plain"}))
			c.taker.cut("plain")
			c.Expect(r.wait().err).NotTo(HaveOccurred())
		})
	}
}

func TestPodsOfABlockAreFrozenTogether(t *testing.T) { // field case F11
	inCluster(t, func(c *cluster) {
		c.claims("shared")
		c.add(hooked("db-1", "shared"), hooked("db-2", "shared"))
		c.take()
		c.Expect(c.events.all()).To(Equal([]string{
			"freeze app/db-1", "freeze app/db-2", "create shared", "cut shared", "thaw app/db-1", "thaw app/db-2",
		}))
	})
}

func TestAFrozenPodIsThawedWhateverHappens(t *testing.T) { // field case F9
	broken := errors.New("exit code 1")
	cases := map[string]struct {
		prepare func(*cluster)
		act     func(*cluster)
		// podIn says whether the pod is in the tarball.
		podIn   bool
		failure string
		errors  int
	}{
		"its snapshot fails": {
			prepare: func(c *cluster) { c.taker.hold = holdAll },
			act:     func(c *cluster) { c.taker.fail("data", snapshot.ReasonTimedOut, "no answer") },
			errors:  1,
		},
		"its freeze hook fails": {
			prepare: func(c *cluster) { c.executor.answer = onCommand("freeze", func() error { return broken }) },
			errors:  2, // of the hook, and of the pod

		},
		"its freeze hook panics": {
			prepare: func(c *cluster) { c.executor.answer = onCommand("freeze", func() error { panic("executor") }) },
			errors:  2,
		},
		"its thaw hook fails": {
			prepare: func(c *cluster) { c.executor.answer = onCommand("thaw", func() error { return broken }) },
			podIn:   true,
			errors:  1,
		},
		"a plugin panics": {
			prepare: func(c *cluster) {
				c.plugin("broken", func(*unstructured.Unstructured) (*answer, error) { panic("plugin") }, "pods")
			},
			errors: 1,
		},
		"the taker panics": {
			prepare: func(c *cluster) { c.taker.panics = true },
			failure: "panic: the taker is broken",
		},
		"the backup is cancelled": {
			prepare: func(c *cluster) { c.taker.hold = holdAll },
			act:     func(c *cluster) { c.cancel(errors.New("the server is going down")) },
			failure: "the server is going down",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.claims("data")
				c.add(hooked("db", "data"))
				test.prepare(c)
				r := c.start()
				if test.act != nil {
					test.act(c)
				}
				r.wait()
				c.Expect(c.events.all("thaw")).To(Equal([]string{"thaw app/db"}))
				c.Expect(c.errors()).To(HaveLen(test.errors), "%v", c.errors())
				if test.failure != "" {
					c.Expect(r.err).To(MatchError(ContainSubstring(test.failure)))
				} else {
					c.Expect(r.err).NotTo(HaveOccurred())
				}
				if test.podIn {
					c.Expect(r.files()).To(ContainElement("pods app/db"))
				} else {
					c.Expect(r.files()).NotTo(ContainElement("pods app/db"))
				}
			})
		})
	}
}

// onCommand answers for one command only.
func onCommand(command string, answer func() error) func(string, string) error {
	return func(got, _ string) error {
		if got != command {
			return nil
		}
		return answer()
	}
}

func TestAPodWhosePreHookFailsIsOutAndItsClaimsAreIn(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data")
		c.add(hooked("db", "data"), builder.ForConfigMap("app", "settings").Result())
		c.executor.answer = onCommand("freeze", func() error { return errors.New("exit code 1") })
		// Also a plugin that asks for the pod doesn't get it in.
		c.plugin("asks", bringsIn("settings", named("pods", "app", "db")), "configmaps")
		r := c.take()
		c.Expect(r.files()).NotTo(ContainElement("pods app/db"))
		c.Expect(r.files()).To(ContainElements("persistentvolumeclaims app/data", "configmaps app/settings"))
		c.Expect(c.errors()).To(HaveLen(2), "as in stock one of the hook, and one of the pod (215)")
		c.Expect(r.result.Resources["v1/Pod"]).To(Equal([]string{"app/db"}), "as in Velero's own engine (162)")
		c.Expect(r.result.Hooks).To(Equal(velerov1.HookStatus{HooksAttempted: 2, HooksFailed: 1}))
	})
}

func TestHooksOfPodsThatHaveEndedCount(t *testing.T) { // 217, 224
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		inCluster(t, func(c *cluster) {
			c.claims("data")
			ended := hooked("job", "data")
			ended.Status.Phase = phase
			c.add(ended)
			r := c.take()
			c.Expect(c.events.all("freeze", "thaw")).To(BeEmpty())
			c.Expect(r.result.Hooks).To(Equal(velerov1.HookStatus{HooksAttempted: 2}))
			c.Expect(r.result.FreezeWindows).To(BeEmpty())
			c.Expect(r.files()).To(ContainElement("pods app/job"))
		})
	}
}

func TestAPodThatIsInTheBackupAlreadyIsNotFrozen(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.add(hooked("db-1"), hooked("db-2"))
		c.plugin("asks", bringsIn("db-1", named("pods", "app", "db-2")), "pods")
		r := c.take()
		c.Expect(c.events.all()).To(Equal([]string{"freeze app/db-1", "thaw app/db-1"}))
		c.Expect(r.files()).To(ContainElements("pods app/db-1", "pods app/db-2"))
	})
}

func TestNoPodIsFrozenForABackupThatHasFailed(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("a", "b", "c")
		c.add(hooked("db-1", "a"), hooked("db-2", "b"), hooked("db-3", "c"))
		c.taker.panics = true
		c.Expect(c.start().wait().err).To(MatchError(ContainSubstring("the taker is broken")))
		c.Expect(c.events.all("freeze", "thaw")).To(Equal([]string{"freeze app/db-1", "thaw app/db-1"}))
	})
}

func TestCancelledBeforeTheSecondBlock(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("a", "b")
		c.add(hooked("db-1", "a"), hooked("db-2", "b"))
		c.taker.hold = holdAll
		c.settler.left = []snapshot.Leftover{{Ref: snapshot.Ref{Namespace: "app", Name: "left"}, Reason: "the driver doesn't answer"}}
		r := c.start()
		cause := errors.New("the server is going down")
		c.cancel(cause)
		r.wait()
		c.Expect(r.err).To(MatchError(cause))
		c.Expect(c.events.all()).To(Equal([]string{"freeze app/db-1", "create a", "fail a", "thaw app/db-1"}), "no other pod is frozen")
		c.Expect(c.settler.asked).To(Equal([]snapshot.Ref{{Namespace: "app", Name: snapshotOf("a"), UID: "vs-of-a"}}))
		c.Expect(c.warnings()).To(ContainElement("left: The failed snapshot is not gone yet: the driver doesn't answer"))
		c.Expect(c.errors()).To(BeEmpty(), "nothing of the second block was tried")
		c.Expect(r.files()).To(BeEmpty())
		c.Expect(r.result.SnapshotsAttempted).To(Equal(1))
	})
}

func TestAPodIsNotFrozenForAClaimThatCannotBeProtected(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("good")
		c.claim("bad", func(pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			pvc.Annotations = map[string]string{velerov1.VolumeSnapshotClassDriverPVCAnnotation: "missing"}
		})
		c.add(hooked("db-1", "bad"), hooked("db-2", "good"))
		r := c.take()
		c.Expect(c.events.all()).To(Equal([]string{"freeze app/db-2", "create good", "cut good", "thaw app/db-2"}))
		c.Expect(c.taker.awaited).To(Equal([]int{0}), "nothing is frozen before snapshots can be taken")
		c.Expect(r.files()).To(ContainElement("pods app/db-2"))
		c.Expect(r.files()).NotTo(ContainElement("pods app/db-1"))
		c.Expect(c.errors()).To(ConsistOf(ContainSubstring("missing")))
	})
}

// replaced are pods that aren't those any more that were listed.
type replaced struct{}

func (replaced) Check(context.Context, hook.Command) error { return errors.New("the pod was replaced") }

func TestAPodThatWasReplacedSinceItWasListedIsNotFrozen(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data")
		c.add(hooked("db", "data"))
		c.change = func(deps *backup.Deps) { deps.Pods = replaced{} }
		c.start().wait()
		c.Expect(c.events.all("freeze")).To(BeEmpty())
	})
}
