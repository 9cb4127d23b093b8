// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

const completed = velerov1.PodVolumeBackupPhaseCompleted

func TestFileSystemBackupsAreAwaitedAtTheEnd(t *testing.T) { // 174, 254, 256
	inCluster(t, func(c *cluster) {
		c.withNodeAgent()
		c.agent.hold = holdAll
		c.claims("data", "wal")
		c.add(wanting("data", pod("db", "data", "wal")))
		c.plugin("note", func(item *unstructured.Unstructured) (*answer, error) {
			c.events.add("write " + item.GetName())
			return nil, nil
		}, "pods")
		r := c.start()
		c.Expect(c.events.all()).To(Equal([]string{"create wal", "cut wal", "write db", "pvb data"}), "after the pod's actions and snapshots")
		c.Expect(r.isOver()).To(BeFalse())
		pvbs := new(velerov1.PodVolumeBackupList)
		c.Expect(c.client.List(c.ctx, pvbs)).To(Succeed())
		c.Expect(pvbs.Items).To(HaveLen(1))
		c.Expect(pvbs.Items[0].Labels).To(HaveKeyWithValue(velerov1.BackupUIDLabel, "backup-uid"))
		c.Expect(pvbs.Items[0].Spec.Node).To(Equal("node"))

		c.agent.finish("data", completed, "")
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(r.files()).To(ContainElements("pods app/db", "persistentvolumeclaims app/data", "persistentvolumes pv-data"))
		c.Expect(r.fileSystemBackups()).To(Equal(map[string]velerov1.PodVolumeBackupPhase{"data": completed}))
		c.Expect(r.skipped()).NotTo(ContainSubstring("pv-"))
		c.Expect(c.errors()).To(BeEmpty())
		c.Expect(c.warnings()).To(BeEmpty())
		c.Expect(c.agent.handlers).To(BeEmpty(), "nobody follows any more")
	})
}

func TestWhichVolumesAreBackedUpByTheirFileSystems(t *testing.T) { // 248 to 252
	shared := func(name string) *corev1.Pod { return pod(name, "data") }
	for name, test := range map[string]struct {
		all      bool
		pods     []*corev1.Pod
		change   func(*cluster)
		made     []string
		errors   OmegaMatcher
		warnings OmegaMatcher
		skipped  string
		// out: the pods are not in the tarball.
		out bool
	}{
		"by annotation": {pods: []*corev1.Pod{wanting("data", shared("db"))}, made: []string{"pvb data"}},
		"all but the opted out": {
			all: true, made: []string{"pvb data"},
			pods: []*corev1.Pod{func() *corev1.Pod {
				p := mounted(pod("db", "data", "wal"))
				p.Annotations = map[string]string{velerov1.VolumesToExcludeAnnotation: "wal"}
				return p
			}()},
		},
		"through the first pod of two (250)": {pods: []*corev1.Pod{wanting("data", shared("db-1")), wanting("data", shared("db-2"))}, made: []string{"pvb data"}},
		"through the second pod when the first doesn't run (250, 251)": {
			pods: []*corev1.Pod{func() *corev1.Pod {
				p := wanting("data", shared("db-1"))
				p.Status.Phase = corev1.PodFailed
				return p
			}(), wanting("data", shared("db-2"))},
			made: []string{"pvb data"}, warnings: ConsistOf(HavePrefix("db-1: ")),
		},
		"not mounted (252)": {
			pods: []*corev1.Pod{func() *corev1.Pod {
				p := wanting("data", shared("db"))
				p.Spec.Containers[0].VolumeMounts = nil
				return p
			}()},
			warnings: ConsistOf(ContainSubstring("data")), skipped: "podvolume",
		},
		"no node agent (251)": {
			pods: []*corev1.Pod{wanting("data", shared("db"))}, change: func(c *cluster) { c.without("node-agent-1") },
			errors: ConsistOf(HavePrefix("db: ")), warnings: HaveLen(1), skipped: "podvolume", out: true,
		},
		"no such uploader (251)": {
			pods: []*corev1.Pod{wanting("data", shared("db"))}, change: func(c *cluster) { c.agent.uploader = "tape" },
			errors: ConsistOf(And(HavePrefix("db: "), ContainSubstring("tape"))), warnings: HaveLen(1), skipped: "podvolume", out: true,
		},
		"the PodVolumeBackup can't be created": {
			pods: []*corev1.Pod{wanting("data", shared("db"))}, change: func(c *cluster) { c.onCreate = refusePVBs(errors.New("quota")) },
			errors: ConsistOf(And(HavePrefix("db: "), ContainSubstring("quota"))), out: true,
		},
		"making it panics (369)": {
			pods: []*corev1.Pod{wanting("data", shared("db"))},
			change: func(c *cluster) {
				c.onCreate = func(o client.Object) error {
					if _, ok := o.(*velerov1.PodVolumeBackup); ok {
						panic("client")
					}
					return nil
				}
			},
			errors: ConsistOf(And(HavePrefix("db: "), ContainSubstring("panic"))), out: true,
		},
		"a server without file-system backups (258)": {
			pods: []*corev1.Pod{wanting("data", shared("db"))}, change: func(c *cluster) { c.agent = nil },
			errors: ConsistOf(And(HavePrefix("db: "), ContainSubstring("file-system backups"))), out: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.withNodeAgent()
				c.claims("data", "wal")
				for _, p := range test.pods {
					c.add(p)
				}
				if test.all {
					c.backup.Spec.DefaultVolumesToFsBackup = ptr.To(true)
				}
				if test.change != nil {
					test.change(c)
				}
				r := c.take()
				c.Expect(c.events.all("pvb")).To(HaveExactElements(test.made))
				for _, p := range test.pods {
					c.Expect(position(r.files(), "pods app/"+p.Name) >= 0).To(Equal(!test.out))
				}
				c.Expect(r.files()).To(ContainElement("persistentvolumeclaims app/data"))
				for lines, want := range map[*[]string]OmegaMatcher{ptr.To(c.errors()): test.errors, ptr.To(c.warnings()): test.warnings} {
					if want == nil {
						want = BeEmpty()
					}
					c.Expect(*lines).To(want)
				}
				if test.skipped != "" {
					c.Expect(r.skipped()).To(And(ContainSubstring("pv-data"), ContainSubstring(test.skipped)))
				} else if test.made != nil {
					c.Expect(r.skipped()).NotTo(ContainSubstring("pv-data"))
				}
			})
		})
	}
}

// without takes an object out of the client's cluster, before start.
func (c *cluster) without(name string) {
	c.objects = slices.DeleteFunc(c.objects, func(o client.Object) bool { return o.GetName() == name })
}

// refusePVBs answers the creation of PodVolumeBackups with an error.
func refusePVBs(err error) func(client.Object) error {
	return func(o client.Object) error {
		if _, ok := o.(*velerov1.PodVolumeBackup); ok {
			return err
		}
		return nil
	}
}

func TestAClaimThatAPodOptsOut(t *testing.T) { // 167
	inCluster(t, func(c *cluster) {
		c.withNodeAgent()
		no := false
		c.backup.Spec.SnapshotVolumes = &no
		c.claims("data")
		c.add(pod("db", "data"))
		r := c.take()
		c.Expect(r.skipped()).To(And(ContainSubstring("podvolume"), ContainSubstring("db"), ContainSubstring("volumeSnapshot")))
	})
}

func TestFileSystemBackupsThatDoNotComplete(t *testing.T) { // 257
	inCluster(t, func(c *cluster) {
		c.withNodeAgent()
		c.agent.hold = holdOnly("broken", "stopped", "deleted")
		c.claims("good", "broken", "stopped", "deleted")
		c.add(wanting("good,broken,stopped,deleted", pod("db", "good", "broken", "stopped", "deleted")))
		r := c.start()
		c.agent.finish("broken", velerov1.PodVolumeBackupPhaseFailed, "disk on fire")
		c.agent.finish("stopped", velerov1.PodVolumeBackupPhaseCanceled, "by hand")
		for _, h := range c.agent.listeners() {
			h.OnDelete(c.agent.open["deleted"])
		}
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(c.errors()).To(ConsistOf(
			And(ContainSubstring("broken"), ContainSubstring("app/db"), ContainSubstring("disk on fire")),
			And(ContainSubstring("stopped"), ContainSubstring("by hand")), ContainSubstring("was deleted"),
		))
		c.Expect(r.files()).To(ContainElement("pods app/db"))
		c.Expect(r.fileSystemBackups()).To(Equal(map[string]velerov1.PodVolumeBackupPhase{
			"good": completed, "broken": "Failed", "stopped": "Canceled", "deleted": "Failed",
		}), "all are part of the backup")
	})
}

func TestTheTimeOfFileSystemBackups(t *testing.T) { // 104, 256
	for name, test := range map[string]struct {
		annotation string
		lasts      time.Duration
		errors     int
	}{
		"the server's":          {lasts: agentTimeout, errors: 2},
		"the backup's own":      {annotation: "90m", lasts: 90 * time.Minute, errors: 2},
		"one that isn't a time": {annotation: "soon", lasts: agentTimeout, errors: 3},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.withNodeAgent()
				c.agent.hold = holdAll
				c.claims("data")
				c.add(wanting("data", pod("db", "data")))
				if test.annotation != "" {
					c.backup.Annotations = map[string]string{velerov1.PodVolumeOperationTimeoutAnnotation: test.annotation}
				}
				begun := time.Now()
				r := c.take()
				c.Expect(time.Since(begun)).To(Equal(test.lasts))
				c.Expect(c.events.all("cancel")).To(Equal([]string{"cancel data"}))
				c.Expect(r.fileSystemBackups()).To(Equal(map[string]velerov1.PodVolumeBackupPhase{"data": "Canceled"}))
				c.Expect(c.errors()).To(HaveLen(test.errors), "%v", c.errors())
			})
		})
	}
}

func TestACancelledFileSystemBackupIsAwaited(t *testing.T) { // 256
	inCluster(t, func(c *cluster) {
		c.withNodeAgent()
		c.agent.hold, c.agent.deaf = holdAll, true
		c.claims("data")
		c.add(wanting("data", pod("db", "data")))
		r := c.start()
		time.Sleep(agentTimeout + time.Hour) //nolint:forbidigo // the clock of the bubble
		synctest.Wait()
		c.Expect(r.isOver()).To(BeFalse())
		c.agent.finish("data", completed, "")
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(c.errors()).To(HaveLen(1), "it is late, but complete")
	})
}

func TestAHookedPodIsThawedWhenItsFileSystemsAreBackedUp(t *testing.T) { // 220
	inCluster(t, func(c *cluster) {
		c.withNodeAgent()
		c.agent.hold = holdAll
		c.claims("data", "wal")
		c.add(wanting("data", hooked("db", "data", "wal")))
		c.plugin("note", func(item *unstructured.Unstructured) (*answer, error) {
			c.events.add("write " + item.GetName())
			return nil, nil
		}, "pods")
		r := c.start()
		c.Expect(c.events.all()).To(Equal([]string{"freeze app/db", "create wal", "cut wal", "pvb data"}))
		time.Sleep(time.Hour) //nolint:forbidigo // the clock of the bubble
		synctest.Wait()
		c.Expect(c.events.all("thaw", "write")).To(BeEmpty(), "its data is still being read")

		c.agent.finish("data", completed, "")
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(c.events.all()[4:]).To(Equal([]string{"end data", "thaw app/db", "write db"}), "one backup of each volume")
		c.Expect(r.files()).To(ContainElement("pods app/db"))
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestAPodFrozenForItsFileSystemsIsThawedWhateverHappens(t *testing.T) { // 220, 368
	for name, test := range map[string]struct {
		prepare func(*cluster)
		act     func(*cluster)
		after   time.Duration
		failure string
		errors  int
		// made and cancelled say what becomes of the PodVolumeBackup.
		made, cancelled bool
		podOut          bool
	}{
		"it fails": {
			act:  func(c *cluster) { c.agent.finish("data", velerov1.PodVolumeBackupPhaseFailed, "disk on fire") },
			made: true, errors: 1,
		},
		"its time is up":                         {made: true, cancelled: true, after: agentTimeout, errors: 1},
		"its time is up, and the agent is gone":  {prepare: func(c *cluster) { c.agent.deaf = true }, made: true, cancelled: true, after: agentTimeout, errors: 2},
		"the backup is cancelled":                {act: func(c *cluster) { c.cancel(errors.New("going down")) }, made: true, cancelled: true, failure: "going down"},
		"the agent is gone, and the backup, too": {prepare: func(c *cluster) { c.agent.deaf = true }, act: func(c *cluster) { c.cancel(errors.New("going down")) }, made: true, cancelled: true, failure: "going down"},
		"it can't be created":                    {prepare: func(c *cluster) { c.onCreate = refusePVBs(errors.New("quota")) }, errors: 1, podOut: true},
		"a snapshot of the pod fails before":     {prepare: func(c *cluster) { c.taker.hold = holdAll }, act: func(c *cluster) { c.taker.fail("wal", snapshot.ReasonTimedOut, "no answer") }, errors: 1, podOut: true},
		"its freeze hook fails": {prepare: func(c *cluster) {
			c.executor.answer = onCommand("freeze", func() error { return errors.New("exit 1") })
		}, errors: 2, podOut: true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.withNodeAgent()
				c.agent.hold = holdAll
				c.claims("data", "wal")
				c.add(wanting("data", hooked("db", "data", "wal")))
				if test.prepare != nil {
					test.prepare(c)
				}
				begun := time.Now()
				var thawed time.Duration
				answer := c.executor.answer
				c.executor.answer = func(command, pod string) error {
					if command == "thaw" {
						thawed = time.Since(begun)
					}
					if answer != nil {
						return answer(command, pod)
					}
					return nil
				}
				r := c.start()
				if test.act != nil {
					test.act(c)
				}
				if c.agent.deaf && test.failure == "" {
					time.Sleep(agentTimeout + time.Minute) //nolint:forbidigo // the clock of the bubble
					synctest.Wait()
					c.agent.finish("data", velerov1.PodVolumeBackupPhaseCanceled, "at last")
				}
				r.wait()
				c.Expect(c.events.all("thaw")).To(Equal([]string{"thaw app/db"}))
				c.Expect(thawed).To(Equal(test.after))
				c.Expect(c.events.all("pvb")).To(HaveLen(map[bool]int{true: 1}[test.made]))
				c.Expect(len(c.events.all("cancel")) > 0).To(Equal(test.cancelled))
				if test.failure != "" && test.cancelled {
					c.Expect(c.events.all("thaw", "cancel")).To(HaveExactElements("thaw app/db", "cancel data"), "the pod waits for no request")
				}
				if test.failure != "" {
					c.Expect(r.err).To(MatchError(ContainSubstring(test.failure)))
					c.Expect(r.fileSystemBackups()).To(HaveKey("data"), "what was made is told, whatever comes")
					return
				}
				c.Expect(r.err).NotTo(HaveOccurred())
				c.Expect(c.errors()).To(HaveLen(test.errors), "%v", c.errors())
				c.Expect(position(r.files(), "pods app/db") >= 0).To(Equal(!test.podOut))
			})
		})
	}
}

func TestARepositoryThatIsNotReadyFreezesNobody(t *testing.T) { // 251
	inCluster(t, func(c *cluster) {
		c.withNodeAgent()
		for _, o := range c.objects {
			if repo, ok := o.(*velerov1.BackupRepository); ok {
				repo.Status.Phase = velerov1.BackupRepositoryPhaseNotReady
				repo.Status.Message = "wrong password"
			}
		}
		c.claims("data")
		c.add(wanting("data", hooked("db", "data")))
		begun := time.Now()
		var frozen time.Duration
		c.executor.answer = onCommand("freeze", func() error { frozen = time.Since(begun); return nil })
		var thawed time.Duration
		freeze := c.executor.answer
		c.executor.answer = func(command, pod string) error {
			if command == "thaw" {
				thawed = time.Since(begun)
			}
			return freeze(command, pod)
		}
		r := c.take()
		c.Expect(thawed-frozen).To(BeZero(), "the repository was waited for before")
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("db: "), ContainSubstring("repository"))))
		c.Expect(r.files()).NotTo(ContainElement("pods app/db"))
	})
}

func TestPodsOfABlockAreThawedTogetherAfterTheirFileSystems(t *testing.T) { // 220, 250
	inCluster(t, func(c *cluster) {
		c.withNodeAgent()
		c.agent.hold = holdAll
		c.claims("shared", "own")
		c.add(wanting("shared", hooked("db-1", "shared")), wanting("shared,own", hooked("db-2", "shared", "own")))
		r := c.start()
		c.Expect(c.events.all()).To(Equal([]string{"freeze app/db-1", "freeze app/db-2", "pvb shared", "pvb own"}), "each claim once")
		c.agent.finish("shared", completed, "")
		synctest.Wait()
		c.Expect(c.events.all("thaw")).To(BeEmpty(), "db-1 shares the block with one that is being read")
		c.agent.finish("own", completed, "")
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(c.events.all("thaw")).To(Equal([]string{"thaw app/db-1", "thaw app/db-2"}))
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestSomebodyElsesFileSystemBackupsDoNotMatter(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.withNodeAgent()
		c.agent.hold = holdAll
		c.claims("data")
		c.add(wanting("data", pod("db", "data")))
		r := c.start()
		mine := c.agent.open["data"].DeepCopy()
		other := mine.DeepCopy()
		other.Labels[velerov1.BackupUIDLabel], other.Status.Phase = "another", completed
		for _, h := range c.agent.listeners() {
			h.OnUpdate(mine, other)
			h.OnUpdate(mine, "nonsense")
		}
		synctest.Wait()
		c.Expect(r.isOver()).To(BeFalse())
		for _, h := range c.agent.listeners() { // as after a lost watch
			mine.Status.Phase = completed
			h.OnAdd(mine, true)
		}
		c.Expect(r.wait().err).NotTo(HaveOccurred())
	})
}

// nativeVolume makes a claim's volume one that only a snapshotter plugin can snapshot.
func nativeVolume(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	*pv = *builder.ForPersistentVolume(pv.Name).ClaimRef("app", pvc.Name).AWSEBSVolumeID("vol-" + pvc.Name).Result()
}

func TestWhatAPodOptsOutOfIsKnownFromItsVisitOn(t *testing.T) { // 167
	for name, selected := range map[string]string{"claim first": "data", "pod first": "db"} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.backup.Spec.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"in": "yes"}}
				c.claim("data", func(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
					pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas"}}
					if selected == "data" {
						pvc.Labels = map[string]string{"in": "yes"}
					}
				})
				db := hooked("db", "data")
				if selected == "db" {
					db.Labels = map[string]string{"in": "yes"}
				}
				c.add(db)
				r := c.take()
				c.Expect(r.files()).To(ContainElements("pods app/db", "persistentvolumeclaims app/data"))
				c.Expect(strings.Contains(r.skipped(), "podvolume")).To(Equal(selected == "db"), r.skipped())
			})
		})
	}
}
