// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerocontroller "github.com/vmware-tanzu/velero/pkg/controller"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	internal "github.com/velero-clipper/clipper/internal/velero"
	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/backup/volume"
)

// Velero's tracker must do as ours.
var _ Tracker = velerocontroller.BackupTracker(nil)

func TestOnlyBackupsThatAreReadyAreRun(t *testing.T) { // 27
	for _, phase := range []velerov1.BackupPhase{
		"", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseInProgress, velerov1.BackupPhaseFailedValidation,
		velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseCompleted,
		velerov1.BackupPhasePartiallyFailed, velerov1.BackupPhaseFailed, velerov1.BackupPhaseDeleting,
	} {
		t.Run(string(phase), func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b", func(b *velerov1.Backup) { b.Status.Phase = phase })))
			g.Expect(h.reconcile(t, "b").Status.Phase).To(Equal(phase))
			g.Expect(h.engine.requests).To(BeEmpty())
			g.Expect(h.tracker.calls).To(BeEmpty())
		})
	}
}

func TestLifeOfABackup(t *testing.T) { // 24, 26, 54
	g := NewWithT(t)
	h := newHarness(t, with(ready("b"), snapshotLocation("native", "aws")))
	h.engine.run = func(request backup.Request, _ io.Writer) (*backup.Result, error) {
		running := h.get(t, "b")
		g.Expect(running.Status.Phase).To(Equal(velerov1.BackupPhaseInProgress))
		g.Expect(running.Status.StartTimestamp.Time).To(BeTemporally("==", now))
		g.Expect(running.Status.CompletionTimestamp).To(BeNil())
		g.Expect(running.Labels).To(HaveKeyWithValue(velerov1.StorageLocationLabel, "default"))
		g.Expect(running.Spec.VolumeSnapshotLocations).To(Equal([]string{"native"}))
		g.Expect(h.tracker.calls).To(Equal([]string{"add velero/b"}))

		g.Expect(request.Backup.Status.Phase).To(Equal(velerov1.BackupPhaseInProgress))
		g.Expect(request.SnapshotLocations).To(HaveLen(1))
		g.Expect(request.Snapshotters).To(BeIdenticalTo(h.plugins))
		g.Expect(request.ItemActions).NotTo(BeNil())
		g.Expect(request.BlockActions).NotTo(BeNil())
		request.Backup.Status.Phase = "changed by the engine" // its own copy
		request.Backup.Labels["changed"] = "too"
		volumes := volume.NewLedger(request.Backup)
		volumes.NativeSnapshot(internal.NativeSnapshot{Volume: "pv-1"})
		volumes.NativeSnapshot(internal.NativeSnapshot{Volume: "pv-2", Failed: true})
		return &backup.Result{
			Volumes:            volumes,
			Progress:           velerov1.BackupProgress{TotalItems: 7, ItemsBackedUp: 7},
			Hooks:              velerov1.HookStatus{HooksAttempted: 2, HooksFailed: 1},
			SnapshotsAttempted: 3,
		}, nil
	}

	ended := h.reconcile(t, "b")
	g.Expect(ended.Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
	g.Expect(ended.Status.CompletionTimestamp).To(BeNil(), "69")
	g.Expect(ended.Status.Progress).To(HaveValue(Equal(velerov1.BackupProgress{TotalItems: 7, ItemsBackedUp: 7})))
	g.Expect(ended.Status.HookStatus).To(HaveValue(Equal(velerov1.HookStatus{HooksAttempted: 2, HooksFailed: 1})))
	g.Expect(ended.Status.CSIVolumeSnapshotsAttempted).To(Equal(3))
	g.Expect([]int{ended.Status.VolumeSnapshotsAttempted, ended.Status.VolumeSnapshotsCompleted}).To(Equal([]int{2, 1}), "62")
	g.Expect(ended.Labels).NotTo(HaveKey("changed"))
	g.Expect(h.tracker.calls).To(Equal([]string{"add velero/b", "post velero/b"}))
	g.Expect(h.plugins.cleanedUp).To(Equal(2), "58: those that items go through, and the storage location's")
}

func TestRefusedBackup(t *testing.T) { // 53
	g := NewWithT(t)
	h := newHarness(t, with(ready("b", func(b *velerov1.Backup) { b.Annotations = map[string]string{backup.ParallelismAnnotation: "none"} })))
	refused := h.reconcile(t, "b")
	g.Expect(refused.Status.Phase).To(Equal(velerov1.BackupPhaseFailedValidation))
	g.Expect(refused.Status.ValidationErrors).To(HaveLen(1))
	g.Expect(refused.Status.StartTimestamp).To(BeNil())
	g.Expect(h.engine.requests).To(BeEmpty())
	g.Expect(h.bucket.objects).To(BeEmpty())
	g.Expect(h.bucket.opened).To(BeZero())
	g.Expect(h.tracker.calls).To(Equal([]string{"add velero/b", "delete velero/b"}))
}

// patches intercepts the changes of Backups. do gets the number of the change, from 1, and returns an error instead of it.
func patches(do func(n int, b *velerov1.Backup) error) interceptor.Funcs {
	n := 0
	return interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		if b, ok := object.(*velerov1.Backup); ok {
			n++
			if err := do(n, b); err != nil {
				return err
			}
		}
		return c.Patch(ctx, object, patch, options...)
	}}
}

func TestBackupThatCantBeBegunIsTriedAgain(t *testing.T) { // 54
	g := NewWithT(t)
	h := newHarness(t, with(ready("b")), intercepting(patches(func(n int, _ *velerov1.Backup) error {
		if n == 1 {
			return errBoom
		}
		return nil
	})))
	_, err := h.reconciler.Reconcile(t.Context(), requestFor("b"))
	g.Expect(err).To(MatchError("writing phase InProgress to Backup velero/b: boom"))
	g.Expect(h.get(t, "b").Status.Phase).To(Equal(velerov1.BackupPhaseReadyToStart))
	g.Expect(h.engine.requests).To(BeEmpty())
	g.Expect(h.tracker.calls).To(BeEmpty(), "it still counts as ready to start")

	g.Expect(h.reconcile(t, "b").Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
}

func TestDeletedBackupIsForgotten(t *testing.T) { // 27
	t.Run("before", func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t)
		_, err := h.reconciler.Reconcile(t.Context(), requestFor("gone"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(h.tracker.calls).To(Equal([]string{"delete velero/gone"}), "or it counts as ready to start for ever")
	})
	t.Run("while it is begun", func(t *testing.T) {
		g := NewWithT(t)
		var h *harness
		h = newHarness(t, with(ready("b")), intercepting(patches(func(_ int, b *velerov1.Backup) error {
			return h.client.Delete(context.Background(), b.DeepCopy())
		})))
		_, err := h.reconciler.Reconcile(t.Context(), requestFor("b"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(h.engine.requests).To(BeEmpty())
		g.Expect(h.tracker.calls).To(Equal([]string{"delete velero/b"}))
	})
	t.Run("while it runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b")))
			h.engine.run = func(request backup.Request, _ io.Writer) (*backup.Result, error) {
				return &backup.Result{}, h.client.Delete(t.Context(), request.Backup.DeepCopy())
			}
			began := time.Now()
			_, err := h.reconciler.Reconcile(t.Context(), requestFor("b"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(time.Since(began)).To(BeZero(), "the next backup must not wait for one that is gone")
			g.Expect(h.tracker.calls).To(Equal([]string{"add velero/b", "post velero/b", "delete velero/b"}), "nobody takes it to its end")
		})
	})
}

// engineFunc is an Engine.
type engineFunc func(ctx context.Context) (*backup.Result, error)

func (f engineFunc) Run(ctx context.Context, _ backup.Request, _ io.Writer) (*backup.Result, error) {
	return f(ctx)
}

func TestBackupThatEndsWithTheServerSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t, with(ready("b")))
		ctx, stop := context.WithCancel(t.Context())
		h.reconciler.deps.Engine = engineFunc(func(ctx context.Context) (*backup.Result, error) {
			stop()
			<-ctx.Done()
			return &backup.Result{}, context.Cause(ctx)
		})
		_, err := h.reconciler.Reconcile(ctx, requestFor("b"))
		g.Expect(err).NotTo(HaveOccurred())
		failed := h.get(t, "b")
		g.Expect(failed.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
		g.Expect(failed.Status.FailureReason).To(HaveSuffix("the server is shutting down"))
	})
}

// Clients and plugins that are interrupted have words of their own for it, which would hide why.
func TestBackupThatEndsWithTheServerSaysSoWhateverItWasDoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t, with(ready("b")))
		ctx, stop := context.WithCancel(t.Context())
		h.reconciler.deps.Engine = engineFunc(func(ctx context.Context) (*backup.Result, error) {
			stop()
			<-ctx.Done()
			return &backup.Result{}, fmt.Errorf("listing namespaces: client rate limiter Wait returned an error: %w", ctx.Err())
		})
		_, err := h.reconciler.Reconcile(ctx, requestFor("b"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(h.get(t, "b").Status.FailureReason).To(ContainSubstring("the server is shutting down: listing namespaces: "))
	})
}

func TestWhatAnEngineLeavesUndecidedEndsWithItsRun(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(t, with(ready("b")))
	var after context.Context
	h.reconciler.deps.Engine = engineFunc(func(ctx context.Context) (*backup.Result, error) {
		after = ctx
		panic("boom")
	})
	h.reconcile(t, "b")
	g.Expect(after.Err()).To(HaveOccurred(), "snapshots that were asked for are given up with it")
}

func TestCacheBehindDoesntBeginABackupAgain(t *testing.T) {
	g := NewWithT(t)
	behind := ready("b")
	h := newHarness(t, with(behind), intercepting(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if b, ok := object.(*velerov1.Backup); ok && behind.ResourceVersion != "" {
				behind.DeepCopyInto(b)
				return nil
			}
			return c.Get(ctx, key, object, options...)
		},
	}))
	stale := h.get(t, "b")
	done := stale.DeepCopy()
	done.Status.Phase = velerov1.BackupPhaseCompleted
	g.Expect(h.client.Update(t.Context(), done)).To(Succeed())
	stale.DeepCopyInto(behind)

	_, err := h.reconciler.Reconcile(t.Context(), requestFor("b"))
	g.Expect(err).To(HaveOccurred())
	g.Expect(h.engine.requests).To(BeEmpty())
	behind.ResourceVersion = ""
	g.Expect(h.get(t, "b").Status.Phase).To(Equal(velerov1.BackupPhaseCompleted))
}

func TestFinalStatusIsTriedAgain(t *testing.T) { // 76
	t.Run("until it is written", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			var tried []int
			h := newHarness(t, with(ready("b")), intercepting(patches(func(n int, _ *velerov1.Backup) error {
				tried = append(tried, n)
				if n > 1 && n < 5 {
					return errBoom
				}
				return nil
			})))
			g.Expect(h.reconcile(t, "b").Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
			g.Expect(tried).To(Equal([]int{1, 2, 3, 4, 5}))
		})
	})
	t.Run("not for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b")), intercepting(patches(func(n int, _ *velerov1.Backup) error {
				if n > 1 {
					return errBoom
				}
				return nil
			})))
			began := time.Now()
			g.Expect(h.reconcile(t, "b").Status.Phase).To(Equal(velerov1.BackupPhaseInProgress))
			g.Expect(time.Since(began)).To(And(BeNumerically(">", time.Minute), BeNumerically("<", time.Hour)), "about the resource timeout")
			g.Expect(h.log.LastEntry().Message).To(Equal("The Backup's status can't be changed from InProgress to Finalizing"))
		})
	})
}

func TestPanicEndsTheBackupAsFailed(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(h *harness)
		log  bool
	}{
		{"in the engine", func(h *harness) {
			h.engine.run = func(backup.Request, io.Writer) (*backup.Result, error) { panic("boom") }
		}, true},
		{"in a plugin that is asked for its progress", func(h *harness) {
			h.plugins.actions["a"] = &action{progress: func(string) (velero.OperationProgress, error) { panic("boom") }}
			h.engine.returns(&backup.Result{Operations: operationsOf("a")}, nil)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b")))
			c.run(h)
			failed := h.reconcile(t, "b")
			g.Expect(failed.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
			g.Expect(failed.Status.FailureReason).To(And(ContainSubstring("panic while"), ContainSubstring("boom")))
			g.Expect(failed.Status.CompletionTimestamp.Time).To(BeTemporally("==", now))
			g.Expect(h.tracker.calls).To(Equal([]string{"add velero/b", "delete velero/b"}))
			g.Expect(h.plugins.cleanedUp).To(Equal(2))
			if c.log {
				log := string(h.bucket.read(t, "b", "b-logs.gz"))
				g.Expect(log).To(And(ContainSubstring("Panic while taking the backup: boom"), ContainSubstring("backup_test.go")), "with the stack")
			}
		})
	}
}

// startedCache is a cache that already has Backups when the server starts.
type startedCache struct {
	*informertest.FakeInformers
	backups []*velerov1.Backup
}

func (c startedCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return startedInformer{FakeInformer: &controllertest.FakeInformer{}, backups: c.backups}, nil
}

type startedInformer struct {
	*controllertest.FakeInformer
	backups []*velerov1.Backup
}

func (i startedInformer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	for _, b := range i.backups {
		handler.OnAdd(b, true)
	}
	return nil, nil
}

func TestBackupsThatAreReadyWhenTheServerStartsAreRun(t *testing.T) { // 6 is fixed
	// A work queue that was shut down has a goroutine that sees it only at its next tick, up to half a second later. That is
	// longer than goleak waits.
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(),
		goleak.IgnoreTopFunction("k8s.io/client-go/util/workqueue.(*Typed[...]).updateUnfinishedWorkLoop"))
	g := NewWithT(t)
	inPhase := func(name string, phase velerov1.BackupPhase) *velerov1.Backup {
		return ready(name, func(b *velerov1.Backup) { b.Status.Phase = phase })
	}
	backups := []*velerov1.Backup{inPhase("queued", velerov1.BackupPhaseQueued), ready("first"), inPhase("done", velerov1.BackupPhaseCompleted), ready("second")}
	h := newHarness(t, with(backups[0], backups[1], backups[2], backups[3]))
	ran := make(chan string)
	h.engine.run = func(request backup.Request, _ io.Writer) (*backup.Result, error) {
		ran <- request.Backup.Name
		return &backup.Result{}, nil
	}

	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
		Scheme:         testScheme(t),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)}, // tests may run more than once in a process
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return h.client.RESTMapper(), nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return h.client, nil },
		NewCache: func(*rest.Config, cache.Options) (cache.Cache, error) {
			return startedCache{FakeInformers: &informertest.FakeInformers{}, backups: backups}, nil
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(h.reconciler.SetupWithManager(mgr)).To(Succeed())

	ctx, stop := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return mgr.Start(ctx) })
	var names []string
	for range 2 {
		select {
		case name := <-ran:
			names = append(names, name)
		case <-time.After(time.Minute): // a failure; nothing waits that long when it works
		}
	}
	stop()
	g.Expect(group.Wait()).To(Succeed())
	slices.Sort(names)
	g.Expect(names).To(Equal([]string{"first", "second"}))
}

func TestConcurrentBackupsIsAtLeastOne(t *testing.T) {
	for given, want := range map[int]int{-1: 1, 0: 1, 1: 1, 3: 3} {
		h := newHarness(t, func(s *setup) { s.options.ConcurrentBackups = given })
		NewWithT(t).Expect(h.reconciler.opts.ConcurrentBackups).To(Equal(want))
	}
}
