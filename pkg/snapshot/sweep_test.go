// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// register is what the sweep is told of backups.
type register struct {
	mu     sync.Mutex
	states map[types.UID]OwnerState
	// live differs from the cache where it has an entry.
	live  map[types.UID]OwnerState
	err   error
	asked int
	// claims are those of every namespace.
	claims []types.UID
}

func (r *register) set(uid types.UID, state OwnerState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.states == nil {
		r.states = map[types.UID]OwnerState{}
	}
	r.states[uid] = state
}

func (r *register) Cached(_ context.Context, id OwnerID) (OwnerState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state, ok := r.states[id.UID]; ok {
		return state, r.err
	}
	return OwnerGone, r.err
}

func (r *register) Live(ctx context.Context, id OwnerID) (OwnerState, error) {
	r.mu.Lock()
	r.asked++
	state, ok := r.live[id.UID]
	r.mu.Unlock()
	if ok {
		return state, nil
	}
	return r.Cached(ctx, id)
}

// suspects are what the register has as failed, and its claims.
func (r *register) suspects(context.Context, string) (failed []OwnerID, claims []types.UID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, state := range r.states {
		if state == OwnerFailed {
			failed = append(failed, OwnerID{Label: "b", UID: uid})
		}
	}
	return failed, slices.Clone(r.claims), r.err
}

// sweepHarness is a Sweeper beside the Taker of a harness.
type sweepHarness struct {
	*harness
	sweeper *Sweeper
	backups *register
	log     *logtest.Hook
	ended   chan struct{}
}

// sweeping runs a test with a sweep. What prepare makes is there when the server starts.
func sweeping(t *testing.T, prepare func(*api, *register), test func(*sweepHarness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		backups := &register{}
		h := &sweepHarness{backups: backups, ended: make(chan struct{})}
		h.harness = newHarness(t, TakerOptions{}, func(a *api) { prepare(a, backups) })
		logger := logrus.New()
		logger.SetOutput(io.Discard)
		h.log = logtest.NewLocal(logger)
		h.sweeper = NewSweeper(SweeperDeps{
			Tracker: h.tracker, Remover: h.taker.Remover(), Owners: backups, Suspects: backups.suspects, Namespace: "velero", Interval: 10 * time.Minute, Logger: logger,
		})
		h.start()
		go func() {
			_ = h.sweeper.Start(h.ctx)
			close(h.ended)
		}()
		synctest.Wait()
		test(h)
		h.end()
		<-h.ended
	})
}

func (h *sweepHarness) warnings(containing string) int {
	count := 0
	for _, entry := range h.log.AllEntries() {
		if ok, _ := ContainSubstring(containing).Match(entry.Message); ok && entry.Level <= logrus.WarnLevel {
			count++
		}
	}
	return count
}

// gauge returns the series that aren't zero.
func (h *sweepHarness) gauge() map[string]float64 {
	registry := prometheus.NewPedanticRegistry()
	h.Expect(registry.Register(h.sweeper.Metrics())).To(Succeed())
	families, err := registry.Gather()
	h.Expect(err).NotTo(HaveOccurred())
	found := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if v := m.GetGauge().GetValue(); v != 0 {
				found[m.GetLabel()[0].GetValue()] = v
			}
		}
	}
	return found
}

// leave makes snapshots as a server that is gone left them: created and cut.
func leaveBehind(a *api, count int, change ...func(*Request)) []types.NamespacedName {
	var keys []types.NamespacedName
	for _, r := range requests(count, append(change, ofInstallation("velero"))...) {
		_, _ = a.create(snapshotsResource, desired(r))
		a.cut(keyOf(r))
		a.snapshotReady(keyOf(r))
		keys = append(keys, keyOf(r))
	}
	return keys
}

func (a *api) allRequests() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.requests)
}

func (a *api) contentOf(key types.NamespacedName) *snapshotv1.VolumeSnapshotContent {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.objects[contentsResource] {
		if c := o.(*snapshotv1.VolumeSnapshotContent); refOf(c) == key {
			return c.DeepCopy()
		}
	}
	return nil
}

func TestASweepAtStartRemovesWhatADeadBackupLeft(t *testing.T) {
	sweeping(t, func(a *api, backups *register) {
		leaveBehind(a, 100)
		backups.set("backup-uid", OwnerFailed)
	}, func(h *sweepHarness) {
		inFlight, most := 0, 0
		var mu sync.Mutex
		h.api.setAnswer(func(verb, _, _ string) error {
			if verb != "delete" {
				return nil
			}
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			<-time.After(10 * time.Millisecond)
			mu.Lock()
			inFlight--
			mu.Unlock()
			return nil
		})
		h.pass(time.Second)
		h.Expect(h.api.count(snapshotsResource) + h.api.count(contentsResource)).To(BeZero())
		h.Expect(most).To(BeNumerically("<=", maxRemovers))
		h.Expect(h.backups.asked).To(Equal(1), "one look at the Backup for all its snapshots")
		h.Expect(h.api.asked("delete volumesnapshots")).To(Equal(100))
		total := 0
		for _, n := range h.api.allRequests() {
			total += n
		}
		// One DELETE each. Where one informer hears of the end before the other does, the API is asked.
		h.Expect(total).To(BeNumerically("<", 150))
		h.Expect(h.gauge()).To(BeEmpty())
		t.Logf("requests for 100 removals: %v, at most %d deletions at once", h.api.allRequests(), most)
	})
}

func TestASweepTouchesNothingOfOthers(t *testing.T) {
	var mine, finished []types.NamespacedName
	sweeping(t, func(a *api, backups *register) {
		mine = leaveBehind(a, 3)
		backups.set("backup-uid", OwnerFailed)
		leaveBehind(a, 3, ofOwner("running"))
		backups.set("running", OwnerRunning)
		finished = leaveBehind(a, 2, ofOwner("finished"))
		backups.set("finished", OwnerFinished)
		// A second Velero in the cluster, whose backups this one doesn't know.
		for _, r := range requests(3, ofOwner("elsewhere"), ofInstallation("velero-2")) {
			_, _ = a.create(snapshotsResource, desired(r))
			a.cut(keyOf(r))
		}
		// A user's own, of the same claims: plain, and made from a copy of ours.
		for _, labels := range []map[string]string{nil, {velerov1.BackupUIDLabel: "backup-uid", velerov1.PVCUIDLabel: "pvc-1"}} {
			vs := takenSnapshot()
			vs.Name, vs.Labels = fmt.Sprintf("mine-%d", len(labels)), labels
			_, _ = a.create(snapshotsResource, vs)
			a.cut(types.NamespacedName{Namespace: vs.Namespace, Name: vs.Name})
		}
	}, func(h *sweepHarness) {
		h.pass(time.Hour)
		h.Expect(h.api.count(snapshotsResource)).To(Equal(3 + 2 + 3 + 2))
		h.Expect(h.api.count(contentsResource)).To(Equal(3 + 2 + 3 + 2))
		for _, key := range mine {
			h.Expect(h.api.snapshot(key)).To(BeNil())
		}
		for _, key := range finished {
			h.Expect(h.api.contentOf(key).Spec.DeletionPolicy).To(Equal(snapshotv1.VolumeSnapshotContentRetain), "the end of its namespace mustn't take it along")
		}
		h.Expect(h.gauge()).To(Equal(map[string]float64{"kept": 2}))
		h.Expect(h.warnings(finished[0].Name)).To(Equal(1), "named once, not at every sweep")
	})
}

func TestASweepWithNothingToDoAsksForNothing(t *testing.T) {
	sweeping(t, func(a *api, backups *register) {
		leaveBehind(a, 50)
		backups.set("backup-uid", OwnerRunning)
	}, func(h *sweepHarness) {
		before := h.api.allRequests()
		h.pass(5 * time.Hour)
		h.Expect(h.api.allRequests()).To(Equal(before))
		h.Expect(h.backups.asked).To(BeZero())
		h.Expect(h.api.count(snapshotsResource)).To(Equal(50))
	})
}

func TestACacheThatLagsDestroysNothing(t *testing.T) {
	for _, live := range []OwnerState{OwnerRunning, OwnerFinished, OwnerEnding, OwnerUnknown} {
		t.Run(string(live), func(t *testing.T) {
			sweeping(t, func(a *api, backups *register) {
				leaveBehind(a, 5)
				backups.live = map[types.UID]OwnerState{"backup-uid": live} // the cache says that it is gone
			}, func(h *sweepHarness) {
				h.pass(time.Hour)
				h.Expect(h.api.count(snapshotsResource)).To(Equal(5))
				h.Expect(h.api.asked("delete volumesnapshots")).To(BeZero())
			})
		})
	}
}

func TestAnOwnerThatCannotBeFoundOutKeepsItsSnapshots(t *testing.T) {
	sweeping(t, func(a *api, backups *register) {
		leaveBehind(a, 1)
		backups.err = errors.New("no answer")
	}, func(h *sweepHarness) {
		h.pass(time.Hour)
		h.Expect(h.api.count(snapshotsResource)).To(Equal(1))
		h.Expect(h.gauge()).To(Equal(map[string]float64{"unknown": 1}))
		h.Expect(h.warnings("no answer")).To(Equal(1))
	})
}

func TestASweepIsWokenWhenABackupFails(t *testing.T) {
	sweeping(t, func(a *api, backups *register) {
		leaveBehind(a, 3)
		backups.set("backup-uid", OwnerRunning)
	}, func(h *sweepHarness) {
		h.pass(time.Minute)
		h.backups.set("backup-uid", OwnerEnding) // its reconciler hasn't returned yet
		h.sweeper.Wake()
		h.pass(5 * time.Second)
		h.Expect(h.api.count(snapshotsResource)).To(Equal(3))
		h.backups.set("backup-uid", OwnerFailed)
		h.pass(5 * time.Second)
		h.Expect(h.api.count(snapshotsResource) + h.api.count(contentsResource)).To(BeZero())
	})
}

// Its Backup was deleted while it runs. The server goes on with it, and so does the Taker.
func TestASweepLeavesToTheTakerWhatItTakes(t *testing.T) {
	sweeping(t, func(*api, *register) {}, func(h *sweepHarness) {
		s := h.taker.Take(h.ctx, request(1, ofInstallation("velero")))[0]
		h.pass(time.Second)
		h.sweeper.Wake()
		h.pass(time.Minute)
		h.Expect(h.api.asked("delete volumesnapshots")).To(BeZero())
		h.api.cut(keyOf(request(1)))
		h.pass(0)
		h.Expect(s.Outcome().Phase).To(Equal(Cut))
	})
}

// The Taker follows a snapshot that is cut until it is ready, for as long as that takes.
func TestASweepDoesNotWaitForTheReadinessOfAFailedBackupsSnapshot(t *testing.T) {
	sweeping(t, func(*api, *register) {}, func(h *sweepHarness) {
		r := request(1, ofInstallation("velero"))
		h.backups.set(r.Owner.UID, OwnerRunning)
		s := h.taker.Take(h.ctx, r)[0]
		h.pass(time.Second)
		h.api.cut(keyOf(r))
		h.pass(time.Minute)
		h.Expect(s.Outcome().Phase).To(Equal(Cut))
		h.Expect(h.api.asked("delete volumesnapshots")).To(BeZero(), "its backup needs it")

		h.backups.set(r.Owner.UID, OwnerFailed)
		h.sweeper.Wake()
		h.pass(10 * time.Second)
		h.Expect(h.api.count(snapshotsResource) + h.api.count(contentsResource)).To(BeZero())
	})
}

func TestASweepGoesOnThroughAnOverloadedAPI(t *testing.T) {
	for name, fault := range map[string]error{
		"429": apierrors.NewTooManyRequestsError("busy"), "503": apierrors.NewServiceUnavailable("down"), "lost": errors.New("connection reset"),
	} {
		t.Run(name, func(t *testing.T) {
			sweeping(t, func(a *api, backups *register) {
				leaveBehind(a, 100)
				backups.set("backup-uid", OwnerFailed)
				begin := time.Now()
				a.answer = func(verb, _, _ string) error {
					if verb != "list" && verb != "watch" && time.Since(begin) < 20*time.Second {
						return fault
					}
					return nil
				}
			}, func(h *sweepHarness) {
				h.pass(time.Minute)
				h.Expect(h.api.count(snapshotsResource) + h.api.count(contentsResource)).To(BeZero())
				h.Expect(h.api.asked("delete volumesnapshots")).To(BeNumerically("<=", 200), "8 at a time, and none without a pause")
			})
		})
	}
}

func TestASweepTriesAgainWhatWasRefused(t *testing.T) {
	sweeping(t, func(a *api, backups *register) {
		leaveBehind(a, 2)
		backups.set("backup-uid", OwnerFailed)
		refuse(a, forbidden(snapshotsResource), "delete volumesnapshots")
	}, func(h *sweepHarness) {
		h.pass(time.Minute)
		h.Expect(h.api.count(snapshotsResource)).To(Equal(2))
		h.Expect(h.warnings("forbidden")).NotTo(BeZero())
		h.api.setAnswer(nil)
		h.pass(11 * time.Minute)
		h.Expect(h.api.count(snapshotsResource) + h.api.count(contentsResource)).To(BeZero())
	})
}

// hangs leaves a snapshot whose deletion was asked for while its driver hangs.
func hangs(a *api, policy snapshotv1.DeletionPolicy) types.NamespacedName {
	r := request(1, ofInstallation("velero"))
	_, _ = a.create(snapshotsResource, desired(r))
	key, now := keyOf(r), metav1.Now()
	name := a.bind(key, policy)
	a.changeSnapshot(key, func(vs *snapshotv1.VolumeSnapshot) {
		vs.Finalizers, vs.DeletionTimestamp = []string{"controller"}, &now
	})
	_ = a.changeContent(name, func(c *snapshotv1.VolumeSnapshotContent) {
		c.Finalizers, c.DeletionTimestamp = []string{"sidecar"}, &now
		c.Annotations = map[string]string{annBeingCreated: "yes"}
	})
	return key
}

// answers makes the driver cut what hung, and the sidecar forget it.
func (h *sweepHarness) answers(key types.NamespacedName) {
	_ = h.api.changeContent(h.api.contentOf(key).Name, func(c *snapshotv1.VolumeSnapshotContent) {
		withHandle(c)
		delete(c.Annotations, annBeingCreated)
	})
}

func (h *sweepHarness) goes(key types.NamespacedName) {
	_ = h.api.changeContent(h.api.contentOf(key).Name, func(c *snapshotv1.VolumeSnapshotContent) { c.Finalizers = nil })
	h.api.changeSnapshot(key, func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = nil })
}

func TestALateCutAfterTheServersEnd(t *testing.T) {
	tests := []struct {
		owner  OwnerState
		policy snapshotv1.DeletionPolicy
		after  snapshotv1.DeletionPolicy
	}{
		{OwnerFailed, snapshotv1.VolumeSnapshotContentDelete, snapshotv1.VolumeSnapshotContentDelete},
		{OwnerFailed, snapshotv1.VolumeSnapshotContentRetain, snapshotv1.VolumeSnapshotContentDelete},
		{OwnerGone, snapshotv1.VolumeSnapshotContentRetain, snapshotv1.VolumeSnapshotContentDelete},
		{OwnerFinished, snapshotv1.VolumeSnapshotContentDelete, snapshotv1.VolumeSnapshotContentDelete},
		{OwnerFinished, snapshotv1.VolumeSnapshotContentRetain, snapshotv1.VolumeSnapshotContentRetain},
		{OwnerRunning, snapshotv1.VolumeSnapshotContentRetain, snapshotv1.VolumeSnapshotContentRetain},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.owner, test.policy), func(t *testing.T) {
			var key types.NamespacedName
			sweeping(t, func(a *api, backups *register) {
				key = hangs(a, test.policy)
				backups.set("backup-uid", test.owner)
			}, func(h *sweepHarness) {
				h.pass(time.Hour)
				h.Expect(h.gauge()).To(Equal(map[string]float64{"removing": 1}))
				h.Expect(h.warnings("has not answered CreateSnapshot")).To(BeNumerically("~", 6, 1), "at every sweep")
				h.Expect(h.api.contentOf(key).Annotations).NotTo(HaveKey(annNudge))
				before := h.api.allRequests()
				h.pass(time.Hour)
				h.Expect(h.api.allRequests()).To(Equal(before), "waiting costs nothing")

				h.answers(key)
				h.pass(2 * time.Second)
				h.Expect(h.api.contentOf(key).Annotations).To(HaveKey(annNudge))
				h.Expect(h.api.contentOf(key).Spec.DeletionPolicy).To(Equal(test.after), "only the owner's end decides about the physical snapshot")
				patches := h.api.asked("patch " + contentsResource)
				h.pass(time.Hour)
				h.Expect(h.api.asked("patch "+contentsResource)).To(Equal(patches), "once is enough")
				h.Expect(h.api.contentOf(key).Finalizers).To(Equal([]string{"sidecar"}), "finalizers are never taken off")
				h.goes(key)
				h.pass(5 * time.Second)
				h.Expect(h.api.count(snapshotsResource) + h.api.count(contentsResource)).To(BeZero())
				h.Expect(h.gauge()).To(BeEmpty(), "the gauge needn't wait for the next sweep")
			})
		})
	}
}

func TestADriverThatIsGoneIsNamed(t *testing.T) {
	sweeping(t, func(a *api, backups *register) {
		backups.set("backup-uid", OwnerFailed)
		key := leaveBehind(a, 1)[0]
		_ = a.changeContent(a.contentOf(key).Name, func(c *snapshotv1.VolumeSnapshotContent) { c.Finalizers = []string{"sidecar"} })
		a.changeSnapshot(key, func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = []string{"controller"} })
	}, func(h *sweepHarness) {
		// Whether it was cut before its deletion was asked for isn't always seen: then the sidecar is reminded at once.
		h.pass(15 * time.Second)
		h.Expect(h.api.asked("patch "+contentsResource)).To(Equal(1), "now and then one is forgotten that was cut long before")
		h.pass(2 * time.Minute)
		h.Expect(h.api.asked("patch " + contentsResource)).To(Equal(1))
		h.Expect(h.warnings("is the driver's csi-snapshotter sidecar running?")).NotTo(BeZero())
		h.Expect(h.gauge()).To(Equal(map[string]float64{"removing": 1}))
	})
}

func TestAContentWithoutItsSnapshotIsNamedAndLeftAlone(t *testing.T) {
	for _, policy := range []snapshotv1.DeletionPolicy{snapshotv1.VolumeSnapshotContentRetain, snapshotv1.VolumeSnapshotContentDelete} {
		t.Run(string(policy), func(t *testing.T) {
			sweeping(t, func(a *api, _ *register) {
				key := leaveBehind(a, 1)[0]
				_ = a.changeContent(a.contentOf(key).Name, func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.DeletionPolicy = policy })
				_ = a.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
			}, func(h *sweepHarness) {
				before := h.api.allRequests()
				h.pass(time.Hour)
				h.Expect(h.api.count(contentsResource)).To(Equal(1))
				h.Expect(h.api.allRequests()).To(Equal(before))
				h.Expect(h.gauge()).To(Equal(map[string]float64{"orphan": 1}))
				h.Expect(h.warnings("its VolumeSnapshot is gone")).To(Equal(1))
			})
		})
	}
}

// lone makes contents as snapshot-controller does when their VolumeSnapshots are deleted at the moment at which it begins with them.
func lone(a *api, backups *register, count int) {
	for i, key := range leaveBehind(a, count) {
		_ = a.changeContent(a.contentOf(key).Name, func(c *snapshotv1.VolumeSnapshotContent) { c.Finalizers = nil })
		_ = a.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
		backups.mu.Lock()
		backups.claims = append(backups.claims, requests(count, ofInstallation("velero"))[i].PVCUID)
		backups.mu.Unlock()
	}
}

func TestAContentWithoutItsSnapshotIsRemovedWhenItWasOfAFailedBackup(t *testing.T) {
	cases := map[string]struct {
		change func(backups *register)
		left   int
	}{
		"it was":                      {change: func(*register) {}},
		"the backup has not failed":   {change: func(b *register) { b.set("backup-uid", OwnerFinished) }, left: 3},
		"only the cache has it so":    {change: func(b *register) { b.live = map[types.UID]OwnerState{"backup-uid": OwnerFinished} }, left: 3},
		"another backup has failed":   {change: func(b *register) { delete(b.states, "backup-uid"); b.set("other", OwnerFailed) }, left: 3},
		"two of the claims are gone":  {change: func(b *register) { b.claims = b.claims[:1] }, left: 2},
		"the claims can't be read":    {change: func(b *register) { b.err = errors.New("no") }, left: 3},
		"it isn't known who it is of": {change: func(b *register) { b.claims = nil }, left: 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sweeping(t, func(a *api, backups *register) {
				backups.set("backup-uid", OwnerFailed)
				lone(a, backups, 3)
				tc.change(backups)
			}, func(h *sweepHarness) {
				h.pass(time.Minute)
				h.Expect(h.api.count(contentsResource)).To(Equal(tc.left))
			})
		})
	}
}

func TestAContentThatAppearsWithoutItsSnapshotWakesTheSweep(t *testing.T) {
	sweeping(t, func(*api, *register) {}, func(h *sweepHarness) {
		h.backups.set("backup-uid", OwnerFailed)
		lone(h.api, h.backups, 1)
		h.pass(2 * wakeDelay)
		h.Expect(h.api.count(contentsResource)).To(BeZero())
	})
}

func TestRemoveOwned(t *testing.T) {
	var others []types.NamespacedName
	sweeping(t, func(a *api, backups *register) {
		leaveBehind(a, 20)
		others = leaveBehind(a, 5, ofOwner("other"))
		backups.set("backup-uid", OwnerRunning) // the caller knows better
		backups.set("other", OwnerRunning)
	}, func(h *sweepHarness) {
		found, left, err := h.sweeper.RemoveOwned(h.ctx, "backup-uid")
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(found).To(Equal(20))
		h.Expect(left).To(BeEmpty())
		h.Expect(h.api.count(snapshotsResource)).To(Equal(len(others)))
		found, left, err = h.sweeper.RemoveOwned(h.ctx, "nobody")
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(left).To(BeEmpty())
		h.Expect(found).To(BeZero())
	})
}

func TestRemoveOwnedNamesWhatIsLeftAndFollowsIt(t *testing.T) {
	var key types.NamespacedName
	sweeping(t, func(a *api, backups *register) {
		key = hangs(a, snapshotv1.VolumeSnapshotContentDelete)
		backups.set("backup-uid", OwnerRunning)
	}, func(h *sweepHarness) {
		ctx, cancel := context.WithTimeout(h.ctx, 10*time.Second)
		defer cancel()
		found, left, err := h.sweeper.RemoveOwned(ctx, "backup-uid")
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(found).To(Equal(1))
		h.Expect(left).To(HaveLen(1))
		h.Expect(left[0].Reason).To(ContainSubstring("has not answered CreateSnapshot"))
		h.answers(key)
		h.pass(0)
		h.Expect(h.api.contentOf(key).Annotations).To(HaveKey(annNudge))
		h.goes(key)
	})
}

func TestRemoveOwnedSaysWhenItCannotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		a := newAPI()
		quiet := logrus.New()
		quiet.SetOutput(io.Discard)
		tracker := NewTracker(a, TrackerOptions{}) // never started
		s := NewSweeper(SweeperDeps{Tracker: tracker, Remover: NewRemover(a, tracker, RemoverOptions{}), Owners: &register{}, Namespace: "velero", Logger: quiet})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _, err := s.RemoveOwned(ctx, "backup-uid")
		g.Expect(err).To(MatchError(ContainSubstring("backup-uid")))
		g.Expect(s.Start(ctx)).To(Succeed(), "no interval, no sweep")
	})
}

func TestAStuckRemovalIsToldOncePerInterval(t *testing.T) {
	sweeping(t, func(a *api, backups *register) {
		backups.set("backup-uid", OwnerFinished)
		backups.set("running", OwnerRunning)
		key := leaveBehind(a, 1)[0]
		_ = a.changeContent(a.contentOf(key).Name, func(c *snapshotv1.VolumeSnapshotContent) {
			c.Finalizers = []string{"sidecar"}
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, annBeingCreated, "yes")
		})
		a.changeSnapshot(key, func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = []string{"controller"} })
		_ = a.delete(snapshotsResource, key.Namespace, key.Name, metav1.DeleteOptions{})
		a.cutAfter(time.Second)
	}, func(h *sweepHarness) {
		h.taker.Take(h.ctx, request(77, ofOwner("running"), ofInstallation("velero"))) // cut, and for long not ready
		h.pass(time.Hour)
		h.Expect(h.warnings("is not gone yet")).To(BeNumerically("~", 6, 1))
	})
}
