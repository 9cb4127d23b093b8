// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/typed/volumesnapshot/v1"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	snapshotGroup     = snapshotv1.GroupName
	snapshotsResource = "volumesnapshots"
	contentsResource  = "volumesnapshotcontents"

	// resyncPeriod is how often every subscriber is woken for nothing. Nothing depends on it: it bounds the damage of a
	// wake-up that went missing, and a reflector without one waits on a channel that synctest can't follow.
	resyncPeriod = 12 * time.Hour

	// bySnapshot is the index of contents by namespace/name of their VolumeSnapshot.
	bySnapshot = "snapshot"
)

// Client is the part of external-snapshotter's clientset that this package uses; clientset.SnapshotV1() is one.
type Client interface {
	snapshotclient.VolumeSnapshotsGetter
	snapshotclient.VolumeSnapshotContentsGetter
}

// NewClient makes a Client; the configuration's QPS and Burst hold for everything the package does with it.
func NewClient(config *rest.Config) (Client, error) {
	clientset, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client for %s: %w", snapshotGroup, err)
	}
	return clientset.SnapshotV1(), nil
}

// TrackerOptions are the settings of a Tracker.
type TrackerOptions struct {
	// Clock; the default is the real one.
	Clock clock.WithTicker
	// Logger; the default is logrus's standard logger.
	Logger logrus.FieldLogger
	// ListInterval is how often everything is listed where watching is not permitted; the default is 5 seconds.
	ListInterval time.Duration
}

// Tracker follows the VolumeSnapshots that Velero made (those with a label velero.io/backup-uid, in all namespaces) and
// all VolumeSnapshotContents through two shared informers. It wakes those who wait for a snapshot and answers from its
// cache; no request and no goroutine belongs to a single snapshot. It is level-triggered: a subscriber is told only that
// something changed and looks at the newest state, so late, repeated and reordered events do no harm.
//
// It starts, and goes on, when the CRDs or permissions are missing: see WaitForSync. All methods may be called from any
// goroutine.
type Tracker struct {
	clock               clock.WithTicker
	snapshots, contents *source
	snapshotInformer    cache.SharedIndexInformer
	contentInformer     cache.SharedIndexInformer
	handlers            []cache.ResourceEventHandlerRegistration

	mu     sync.Mutex
	synced bool
	// news is closed, and replaced, at every change of the tracker's own state.
	news        chan struct{}
	subscribers map[types.NamespacedName]map[*subscription]struct{}
	// histories has one entry for each VolumeSnapshot in the cache.
	histories map[types.NamespacedName]*history
	// unsettled has, by backup, the VolumeSnapshots whose readiness is waited for.
	unsettled map[types.UID]map[types.NamespacedName]struct{}
	// settled is told of backups that have none left.
	settled func(backup types.UID)
}

// subscription is the interest in one VolumeSnapshot and its content.
type subscription struct {
	key types.NamespacedName
	// notify says that something about key has changed. It is called from informer goroutines and must not block.
	notify func()
	// gone has the UIDs of snapshots and contents of key whose deletion was seen. The Tracker's lock guards it.
	gone map[types.UID]struct{}
}

// NewTracker makes a Tracker; it does nothing before Start.
func NewTracker(client Client, opts TrackerOptions) *Tracker {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Logger == nil {
		opts.Logger = logrus.StandardLogger()
	}
	if opts.ListInterval <= 0 {
		opts.ListInterval = 5 * time.Second
	}
	t := &Tracker{
		clock:       opts.Clock,
		news:        make(chan struct{}),
		subscribers: map[types.NamespacedName]map[*subscription]struct{}{},
		histories:   map[types.NamespacedName]*history{},
		unsettled:   map[types.UID]map[types.NamespacedName]struct{}{},
		settled:     func(types.UID) {},
	}
	t.snapshots = t.newSource(snapshotsResource, opts)
	t.snapshots.listAll = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.LabelSelector = velerov1.BackupUIDLabel
		return client.VolumeSnapshots(metav1.NamespaceAll).List(ctx, o)
	}
	t.snapshots.watchAll = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.LabelSelector = velerov1.BackupUIDLabel
		return client.VolumeSnapshots(metav1.NamespaceAll).Watch(ctx, o)
	}
	t.contents = t.newSource(contentsResource, opts)
	t.contents.listAll = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.VolumeSnapshotContents().List(ctx, o)
	}
	t.contents.watchAll = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return client.VolumeSnapshotContents().Watch(ctx, o)
	}
	t.snapshotInformer = t.newInformer(t.snapshots, &snapshotv1.VolumeSnapshot{}, t.snapshotEvent)
	t.contentInformer = t.newInformer(t.contents, &snapshotv1.VolumeSnapshotContent{}, t.contentEvent)
	mustBeNew(t.contentInformer.AddIndexers(cache.Indexers{bySnapshot: snapshotIndex}))
	return t
}

func (t *Tracker) newSource(resource string, opts TrackerOptions) *source {
	return &source{
		resource: resource, interval: opts.ListInterval, clock: opts.Clock, log: opts.Logger, changed: t.broadcast,
	}
}

func (t *Tracker) newInformer(s *source, object runtime.Object, event func(obj any, deleted bool)) cache.SharedIndexInformer {
	informer := cache.NewSharedIndexInformer(s.listWatch(), object, resyncPeriod, cache.Indexers{})
	mustBeNew(informer.SetTransform(trim))
	// What goes wrong is kept and logged by the source, once for each change, instead of at every try.
	mustBeNew(informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}))
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { event(obj, false) },
		UpdateFunc: func(_, obj any) { event(obj, false) },
		DeleteFunc: func(obj any) { event(obj, true) },
	})
	mustBeNew(err)
	t.handlers = append(t.handlers, registration)
	return informer
}

// mustBeNew asserts what client-go promises: an informer that isn't started accepts every setting.
func mustBeNew(err error) {
	if err != nil {
		panic(err)
	}
}

// Start runs the informers until ctx ends. It implements controller-runtime's manager.Runnable and returns no error for
// missing CRDs or permissions.
func (t *Tracker) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { t.snapshotInformer.RunWithContext(ctx); return nil })
	group.Go(func() error { t.contentInformer.RunWithContext(ctx); return nil })
	group.Go(func() error {
		if cache.WaitForCacheSync(ctx.Done(), t.handlers[0].HasSynced, t.handlers[1].HasSynced) {
			t.mu.Lock()
			t.synced = true
			t.mu.Unlock()
			t.broadcast()
		}
		return nil
	})
	return group.Wait()
}

// WaitForSync returns once the cache has been filled, or with an error when ctx ends, or at once with one that names the
// CRD or permission that is missing.
func (t *Tracker) WaitForSync(ctx context.Context) error {
	for {
		news := t.watchNews()
		if _, err := t.state(); err != nil {
			return err
		}
		if t.hasSynced() {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the first list of VolumeSnapshots and VolumeSnapshotContents: %w", context.Cause(ctx))
		}
	}
}

// state says whether the API has answered the first lists, and what is in the way for good.
func (t *Tracker) state() (answered bool, trouble error) {
	answered = true
	for _, s := range []*source{t.snapshots, t.contents} {
		tried, err := s.state()
		if err != nil {
			return true, err
		}
		answered = answered && tried
	}
	return answered, nil
}

func (t *Tracker) hasSynced() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.synced
}

// watchNews returns a channel that is closed at the next change of what state and hasSynced answer.
func (t *Tracker) watchNews() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.news
}

func (t *Tracker) broadcast() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.news)
	t.news = make(chan struct{})
}

// NotifySettled names a function that is told of a backup each time none of its snapshots is left whose readiness is waited
// for: all are ready, or show an error that came after their cut. It must be called before Start. The function is called
// from informer goroutines and must not block.
func (t *Tracker) NotifySettled(f func(backup types.UID)) { t.settled = f }

// Readiness is how far a snapshot is on its way to be usable.
type Readiness struct {
	// Ready is true when both the VolumeSnapshot and its content say readyToUse.
	Ready bool
	// Handle is the storage system's name for the snapshot; empty before the cut.
	Handle string
	// ContentName is the VolumeSnapshotContent; empty when there is none yet.
	ContentName string
	// Driver is the CSI driver; empty while there is no content. PVC is what the snapshot was taken of, and StorageClass
	// that claim's.
	Driver, PVC, StorageClass string
	// Fault is the error that stands on the content, or else on the VolumeSnapshot, while it isn't ready.
	Fault Fault
	// Updated is when one of the two objects was last seen to change.
	Updated time.Time
}

// Readiness answers from the cache for any VolumeSnapshot with a label velero.io/backup-uid, those of earlier server
// lives included; false when there is none of that name.
func (t *Tracker) Readiness(namespace, name string) (Readiness, bool) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	vs, content := t.look(key, "")
	if vs == nil {
		return Readiness{}, false
	}
	r := Readiness{
		Ready: isReady(vs, content), Handle: handleOf(content),
		PVC: ptr.Deref(vs.Spec.Source.PersistentVolumeClaimName, ""), StorageClass: vs.Annotations[AnnStorageClass],
	}
	if content != nil {
		r.ContentName, r.Driver = content.Name, content.Spec.Driver
	}
	h := t.historyOf(key)
	r.Updated = h.changed
	if !r.Ready {
		r.Fault = h.fault
	}
	return r, true
}

// Observation is what a Judge is asked about the error that stands on a snapshot of that namespace.
func (r Readiness) Observation(namespace string, now time.Time) Observation {
	o := Observation{Driver: r.Driver, Namespace: namespace, PVC: r.PVC, StorageClass: r.StorageClass, Phase: PhaseCutting}
	if r.Handle != "" {
		o.Phase = PhaseReadying
	}
	return o.of(r.Fault, now)
}

// handleOf is the snapshot's handle: the sign that it is cut.
func handleOf(content *snapshotv1.VolumeSnapshotContent) string {
	if content == nil || content.Status == nil {
		return ""
	}
	return ptr.Deref(content.Status.SnapshotHandle, "")
}

func isReady(vs *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) bool {
	return vs != nil && vs.Status != nil && ptr.Deref(vs.Status.ReadyToUse, false) && isContentReady(content)
}

func isContentReady(content *snapshotv1.VolumeSnapshotContent) bool {
	return content != nil && content.Status != nil && ptr.Deref(content.Status.ReadyToUse, false)
}

// errorOf is the error that stands on the content, or else on the VolumeSnapshot, which gets a copy later. Once there is a
// handle only the content counts: what the snapshot-controller has to say then, such as that the class is gone, isn't about
// the snapshot. An error without a message is one all the same.
func errorOf(vs *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) string {
	var found *snapshotv1.VolumeSnapshotError
	switch {
	case content != nil && content.Status != nil && content.Status.Error != nil:
		found = content.Status.Error
	case handleOf(content) == "" && vs != nil && vs.Status != nil && vs.Status.Error != nil:
		found = vs.Status.Error
	default:
		return ""
	}
	if message := ptr.Deref(found.Message, ""); message != "" {
		return message
	}
	return "an error without a message"
}
