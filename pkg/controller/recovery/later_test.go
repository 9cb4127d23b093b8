// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
	"github.com/velero-clipper/clipper/pkg/hook"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
)

func podNamed(name, uid string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "app", "name": name, "uid": uid},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "main"}}},
	}}
}

var thawHooks = []hook.Hook{{Exec: velerov1.ExecHook{Command: []string{"thaw"}}}}

// freezer is who freezes pod a today while yesterday's thaw of it is still owed.
type freezer struct {
	*harness
	record *freezerecord.Record
	stop   func()
}

// later has yesterday's backup owe pod a its thaw, and today's freeze it, by this process or by another one that lives.
func later(t *testing.T, server, uid string) *freezer {
	h := setup(t)
	h.instances.set(self, instance.Alive)
	h.instances.set(alive, instance.Alive)
	h.frozen(h.backup("yesterday", "", velerov1.BackupPhaseCompleted), "a")
	store := h.deps.Records.(*freezerecord.Store)
	if server != self {
		store = freezerecord.NewStore(freezerecord.Options{Client: h.client, Namespace: "velero", Server: server})
	}
	f := &freezer{harness: h, record: store.Open(h.backup("today", server, velerov1.BackupPhaseInProgress))}
	h.Expect(f.record.Frozen(t.Context(), podNamed("a", uid), thawHooks)).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(h.deps).Run(ctx) }()
	f.stop = func() { cancel(); h.Expect(<-done).To(Succeed()) }
	return f
}

func TestAnOwedThawWaitsForALaterFreeze(t *testing.T) {
	for name, server := range map[string]string{"of this server": self, "of another one that lives": alive} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := later(t, server, "uid-a")
				defer f.stop()
				<-time.After(2 * DefaultInterval)
				f.Expect(f.executor.all()).To(BeEmpty(), "its snapshots aren't cut yet")
				f.Expect(f.records()).To(HaveLen(2))

				f.Expect(f.record.Thawed(t.Context(), podNamed("a", "uid-a"), nil)).To(Succeed())
				f.record.Close(t.Context(), f.deps.Log)
				f.end(f.get("today"), velerov1.BackupPhaseCompleted)
				<-time.After(2 * DefaultInterval)
				f.Expect(f.executor.all()).To(Equal([]string{"a resume", "a thaw"}), "today's hooks may be others")
				f.Expect(f.records()).To(BeEmpty())
			})
		})
	}
}

func TestAnOwedThawAfterALaterFreezeThatOwesItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := later(t, alive, "uid-a")
		defer f.stop()
		<-time.After(2 * DefaultInterval)
		f.instances.set(alive, instance.Dead)
		<-time.After(2 * DefaultInterval)
		f.Expect(f.executor.all()).To(ContainElement("a thaw"), "today's backup died before it has thawed the pod")
		f.Expect(f.records()).To(BeEmpty())
	})
}

// Two living servers each owe the same pod a thaw after a backup that is over.
func TestTwoServersThatOweAPodItsThawDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.instances.set(self, instance.Alive)
		h.instances.set(alive, instance.Alive)
		other := freezerecord.NewStore(freezerecord.Options{Client: h.client, Namespace: "velero", Server: alive})
		for name, store := range map[string]*freezerecord.Store{"one": h.deps.Records.(*freezerecord.Store), "two": other} {
			record := store.Open(h.backup(name, "", velerov1.BackupPhaseCompleted))
			h.Expect(record.Frozen(t.Context(), podNamed("a", "uid-a"), thawHooks)).To(Succeed())
			record.Close(t.Context(), h.deps.Log) // its post hook didn't get through: the node was away
			<-time.After(time.Minute)
		}
		second := h.deps
		second.Self, second.Records = alive, other
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		for _, recovery := range []*Recovery{New(h.deps), New(second)} {
			go func() { done <- recovery.Run(ctx) }()
		}
		<-time.After(5 * DefaultInterval)
		ran, left := h.executor.all(), h.records()
		cancel()
		h.Expect(<-done).To(Succeed())
		h.Expect(<-done).To(Succeed())
		h.Expect(ran).NotTo(BeEmpty(), "the pod stays frozen")
		h.Expect(left).To(BeEmpty())
	})
}

// Another server freezes a pod while the thaws of a record are on their way.
func TestAFreezeThatIsBegunWhileOthersAreThawedIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.instances.set(alive, instance.Alive)
		names := []string{"a"}
		for range thawsAtOnce {
			names = append(names, "p"+strconv.Itoa(9+len(names)))
		}
		h.frozen(h.backup("yesterday", "", velerov1.BackupPhaseCompleted), names...)
		last := names[len(names)-1]
		var once sync.Once
		h.executor.answer = func(hook.Command) error {
			once.Do(func() {
				store := freezerecord.NewStore(freezerecord.Options{Client: h.client, Namespace: "velero", Server: alive})
				record := store.Open(h.backup("today", alive, velerov1.BackupPhaseInProgress))
				h.Expect(record.Frozen(t.Context(), podNamed(last, "uid-"+last), thawHooks)).To(Succeed())
			})
			<-time.After(time.Second)
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		New(h.deps).AtStart(ctx)
		h.Expect(h.executor.all()).NotTo(ContainElement(last + " thaw"))
		h.Expect(h.executor.all()).To(ContainElement("a thaw"))
	})
}

// The Backup of a dead server can't be written, such as when a newer CRD refuses what it holds.
func TestABackupThatCannotBeTakenOverDoesNotKeepTheServerFromStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.frozen(h.backup("nightly", dead, velerov1.BackupPhaseInProgress), "a")
		h.onPatch = func(o client.Object) error {
			if _, ok := o.(*velerov1.Backup); ok {
				return apierrors.NewInvalid(schema.GroupKind{Group: "velero.io", Kind: "Backup"}, "nightly", nil)
			}
			return nil
		}
		begun := time.Now()
		h.atStart()
		h.Expect(time.Since(begun)).To(BeNumerically("<", findLimit))
		h.Expect(h.executor.all()).To(ContainElement("a thaw"))
		h.Expect(h.snapshots.removed).To(BeEmpty(), "it may look complete one day")
	})
}

func TestALaterFreezeOfAnotherPodOfThatNameChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := later(t, alive, "uid-of-a-later-one")
		defer f.stop()
		<-time.After(2 * DefaultInterval)
		f.Expect(f.executor.all()).To(Equal([]string{"a resume", "a thaw"}), "which the executor finds gone")
	})
}

// The other way round: the owed thaw is on its way when today's backup comes to the pod.
func TestAFreezeWaitsForAThawUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.instances.set(self, instance.Alive)
		h.frozen(h.backup("yesterday", "", velerov1.BackupPhaseCompleted), "a")
		reached := make(chan struct{})
		h.executor.answer = func(c hook.Command) error {
			if c.Argv[0] == "thaw" {
				<-reached
			}
			return nil
		}
		recovered := make(chan struct{})
		go func() { defer close(recovered); h.atStart() }()
		synctest.Wait()

		record := h.deps.Records.(*freezerecord.Store).Open(&velerov1.Backup{})
		frozen := make(chan error, 1)
		begin := func(uid types.UID) {
			frozen <- record.Frozen(t.Context(), podNamed("a", string(uid)), thawHooks)
		}
		go begin("uid-a")
		synctest.Wait()
		h.Expect(frozen).NotTo(Receive())
		<-time.After(time.Minute)
		h.Expect(<-frozen).To(MatchError(ContainSubstring("pod app/a is still frozen by an earlier backup, and is being thawed")))

		go begin("uid-a")
		synctest.Wait()
		close(reached)
		<-recovered
		h.Expect(<-frozen).To(Succeed())
	})
}
