// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/util/boolptr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/driver"
	"github.com/velero-clipper/clipper/internal/lab/nodeagent"
	"github.com/velero-clipper/clipper/internal/lab/recorder"
	"github.com/velero-clipper/clipper/internal/lab/server"
)

const (
	// caseLimit bounds one backup.
	caseLimit = 90 * time.Second
	// panicLimit is when it is asked why a backup hasn't ended. Most take two seconds.
	panicLimit = 20 * time.Second
	// queueLimit bounds the time that it is queued; no other one runs.
	queueLimit = 30 * time.Second
	// cleanLimit bounds the wait for snapshots that are being removed. A sidecar forgets some whose call hung when they were deleted.
	cleanLimit = 8 * time.Second
)

// Run makes the case's backup with both engines, one after the other, and leaves the cluster as it was. An error
// means that the comparison could not be made.
func (l *Lab) Run(ctx context.Context, c Case) (stock, ours *Observation, err error) {
	w := &world{
		client: l.cluster.Client(), clientset: l.clientset, node: l.cluster.NodeName(), namespaces: map[string]bool{},
	}
	// What is left of a case would be in the next one's backups.
	defer func() { err = errors.Join(err, w.remove(context.WithoutCancel(ctx))) }()
	if err := l.startBoth(ctx); err != nil {
		return nil, nil, err
	}
	if err := w.create(ctx, c.World); err != nil {
		return nil, nil, err
	}
	stock, stockErr := l.runEngine(ctx, c, w, l.engines[Stock])
	if stockErr != nil && !errors.Is(stockErr, ErrStockPanics) {
		return nil, nil, fmt.Errorf("%s: %w", Stock, stockErr)
	}
	if ours, err = l.runEngine(ctx, c, w, l.engines[Ours]); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", Ours, err)
	}
	return stock, ours, stockErr
}

// startBoth starts the servers that were never started: what a server makes for itself is in the other one's backups of everything, too.
func (l *Lab) startBoth(ctx context.Context) error {
	for _, name := range Engines() {
		if e := l.engines[name]; e.server == nil {
			if err := l.ensure(ctx, e, Case{}); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// runEngine is the list of steps of one backup.
func (l *Lab) runEngine(ctx context.Context, c Case, w *world, e *engine) (_ *Observation, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*caseLimit, fmt.Errorf("not done within %s", 3*caseLimit))
	defer cancel()
	own := &world{client: w.client, clientset: w.clientset, node: w.node, namespaces: map[string]bool{e.namespace: true}}
	defer func() { err = errors.Join(err, l.clean(context.WithoutCancel(ctx), c, e, w, own)) }()
	if err := own.create(ctx, c.veleroItems(e.namespace)); err != nil {
		return nil, err
	}
	if err := l.ensure(ctx, e, c); err != nil {
		return nil, err
	}
	before, err := l.prepare(ctx, c, e, w)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	backup, err := l.takeBackup(ctx, c, e)
	if errors.Is(err, errQueued) {
		// Velero's queue stops for good now and then. A server that starts takes up what is queued.
		l.say("%s: %s left the backup in its queue; it is started anew", c.Name, e.name)
		e.stop()
		if err := l.ensure(ctx, e, c); err != nil {
			return nil, err
		}
		if before.metrics, err = e.server.Metrics(ctx); err != nil {
			return nil, err
		}
		backup, err = l.awaitEnd(ctx, c, e)
	}
	if err != nil {
		return nil, err
	}
	l.say("%s: %s %s in %.1f s", c.Name, e.name, backup.Status.Phase, time.Since(begin).Seconds())
	return l.observe(ctx, observed{lab: l, c: c, engine: e, world: w, backup: backup, before: before})
}

// veleroItems are the objects of the server's namespace.
func (c Case) veleroItems(namespace string) []Item {
	var items []Item
	for _, item := range c.Velero {
		item.namespace = namespace
		items = append(items, item)
	}
	for _, name := range c.NativeLocations {
		items = append(items, Item{
			Object: name, kind: "VolumeSnapshotLocation", namespace: namespace, name: name,
			Patch: object{"spec": object{"provider": recorder.Snapshotter, "config": object{"location": name}}},
		})
	}
	return items
}

// before is the state that the observation starts from.
type before struct {
	metrics server.Metrics
	execs   int
	calls   []int
}

// prepare sets how everything behaves and notes where the records stand.
func (l *Lab) prepare(ctx context.Context, c Case, e *engine, w *world) (before, error) {
	var b before
	l.names.reset()
	e.agent.SetFail(c.NodeAgent.Fail)
	e.agent.SetTakes(c.moves())
	l.mu.Lock()
	l.commands = c.Commands
	l.mu.Unlock()
	for _, d := range l.drivers {
		if err := d.SetBehaviours(append([]driver.Behaviour{}, c.Storage...)); err != nil {
			return b, err
		}
		b.calls = append(b.calls, len(d.Calls()))
	}
	if err := recorder.SetBehaviour(e.recorder, c.Plugins); err != nil {
		return b, err
	}
	if _, err := recorder.Take(e.recorder); err != nil {
		return b, err
	}
	if c.NodeAgent.Absent {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: nodeagent.Name}}
		if err := w.client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			return b, err
		}
	}
	// Those of the server's own start, too: they would count as items of a backup of everything.
	if err := w.client.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace(e.namespace)); err != nil {
		return b, err
	}
	for namespace := range w.namespaces {
		if err := w.client.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: notTest}); err != nil {
			return b, err
		}
	}
	b.execs = len(l.kubelet.Calls())
	var err error
	b.metrics, err = e.server.Metrics(ctx)
	return b, err
}

// uploadTakes is how long the node agent moves a snapshot's data: longer than the rest of a backup, so that it depends on nobody's speed
// who sees the end of it, the backup itself or the operations controller after it.
const uploadTakes = 2 * time.Second

func (c Case) moves() time.Duration {
	if boolptr.IsSetToTrue(c.Spec.SnapshotMoveData) || slices.Contains(c.Args, "--default-snapshot-move-data") {
		return uploadTakes
	}
	return 0
}

// errQueued is the error of a backup that doesn't leave the server's queue.
var errQueued = fmt.Errorf("the backup is still queued after %s", queueLimit)

// takeBackup creates the Backup and waits for its last phase.
func (l *Lab) takeBackup(ctx context.Context, c Case, e *engine) (*velerov1.Backup, error) {
	backup := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: c.Name, Labels: c.Labels, Annotations: c.Annotations},
		Spec:       *c.Spec.DeepCopy(),
	}
	if err := l.cluster.Client().Create(ctx, backup); err != nil {
		return nil, fmt.Errorf("creating the backup: %w", err)
	}
	l.names.set(string(backup.UID), "uid of backup")
	leaving, cancel := context.WithTimeoutCause(ctx, queueLimit, errQueued)
	defer cancel()
	if err := l.await(leaving, c, e, func(phase velerov1.BackupPhase) bool { return !waiting(phase) }); err != nil {
		return nil, err
	}
	return l.awaitEnd(ctx, c, e)
}

// awaitEnd waits for the last phase of the case's Backup. Stock's log is looked at on the way: there is no end when its finalizer panics.
func (l *Lab) awaitEnd(ctx context.Context, c Case, e *engine) (last *velerov1.Backup, err error) {
	for _, limit := range []time.Duration{panicLimit, caseLimit - panicLimit} {
		if last, err = l.awaitEndFor(ctx, limit, c, e); err == nil || ctx.Err() != nil {
			return last, err
		}
		panics, readErr := e.panics(c.Name)
		if readErr != nil {
			return nil, readErr
		}
		if panics {
			return nil, fmt.Errorf("%w: %w", ErrStockPanics, err)
		}
	}
	return last, fmt.Errorf("%w; the server's log is %s", err, e.server.LogPath())
}

// awaitEndFor is awaitEnd for some time.
func (l *Lab) awaitEndFor(ctx context.Context, limit time.Duration, c Case, e *engine) (*velerov1.Backup, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the backup has not ended within %s", limit))
	defer cancel()
	var last *velerov1.Backup
	err := cluster.Await(ctx, l.cluster.Client(), &velerov1.BackupList{}, func(event watch.Event) (bool, error) {
		found, ok := event.Object.(*velerov1.Backup)
		if !ok || found.Name != c.Name {
			return false, nil
		}
		last = found
		return terminal(found.Status.Phase), nil
	}, client.InNamespace(e.namespace))
	if err != nil && last != nil {
		err = fmt.Errorf("%w; its phase is %q", err, last.Status.Phase)
	}
	return last, err
}

// await waits for a phase of the case's Backup.
func (l *Lab) await(ctx context.Context, c Case, e *engine, reached func(velerov1.BackupPhase) bool) error {
	return cluster.Await(ctx, l.cluster.Client(), &velerov1.BackupList{}, func(event watch.Event) (bool, error) {
		found, ok := event.Object.(*velerov1.Backup)
		return ok && found.Name == c.Name && reached(found.Status.Phase), nil
	}, client.InNamespace(e.namespace))
}

func waiting(phase velerov1.BackupPhase) bool {
	return phase == "" || phase == velerov1.BackupPhaseNew || phase == velerov1.BackupPhaseQueued || phase == velerov1.BackupPhaseReadyToStart
}

func terminal(phase velerov1.BackupPhase) bool {
	switch phase {
	case velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed, velerov1.BackupPhaseFailed,
		velerov1.BackupPhaseFailedValidation:
		return true
	}
	return false
}

// clean removes what the backup made, so that the next one finds the cluster as this one did.
func (l *Lab) clean(ctx context.Context, c Case, e *engine, w, own *world) error {
	for _, d := range l.drivers {
		if err := d.SetBehaviours(nil); err != nil {
			return err
		}
	}
	// Stock's queue stops for good when a Backup disappears as soon as it has ended, so that it stays for one more case.
	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: e.previous}}
	e.previous = c.Name
	errs := []error{client.IgnoreNotFound(w.client.Delete(ctx, backup)), own.remove(ctx)}
	for _, kind := range []client.Object{
		&velerov1.PodVolumeBackup{}, &velerov1.BackupRepository{}, &velerov2alpha1.DataUpload{}, &corev1.Event{},
	} {
		errs = append(errs, w.client.DeleteAllOf(ctx, kind, client.InNamespace(e.namespace)))
	}
	if c.NodeAgent.Absent {
		errs = append(errs, e.agent.InstallPod(ctx))
	}
	for namespace := range w.namespaces {
		errs = append(errs, w.client.DeleteAllOf(ctx, &snapshotv1.VolumeSnapshot{}, client.InNamespace(namespace)))
	}
	return errors.Join(append(errs, l.awaitNoSnapshots(ctx))...)
}

// awaitNoSnapshots waits until the snapshot controllers have removed everything, and removes what they don't.
func (l *Lab) awaitNoSnapshots(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, cleanLimit)
	defer cancel()
	c := l.cluster.Client()
	for _, list := range []client.ObjectList{&snapshotv1.VolumeSnapshotList{}, &snapshotv1.VolumeSnapshotContentList{}} {
		err := awaitNone(limited, c, list)
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			err = l.forceOut(ctx, list)
		}
		if err != nil {
			return fmt.Errorf("removing the snapshots that are left: %w", err)
		}
	}
	return nil
}

// forceOut takes the finalizers from everything of a kind, and deletes it.
func (l *Lab) forceOut(ctx context.Context, list client.ObjectList) error {
	c := l.cluster.Client()
	if err := c.List(ctx, list); err != nil {
		return err
	}
	objects, err := itemsOf(list)
	errs := []error{err}
	for _, one := range objects {
		l.say("%T %s/%s is left over; it is removed by force", one, one.GetNamespace(), one.GetName())
		errs = append(errs, client.IgnoreNotFound(c.Delete(ctx, one)), client.IgnoreNotFound(c.Patch(ctx, one, noFinalizers)))
	}
	return errors.Join(errs...)
}

// awaitNone lists first: a watch says nothing where there is nothing.
func awaitNone(ctx context.Context, c client.WithWatch, list client.ObjectList) error {
	if err := c.List(ctx, list); err != nil {
		return err
	}
	objects, err := itemsOf(list)
	if err != nil || len(objects) == 0 {
		return err
	}
	left := map[string]bool{}
	for _, o := range objects {
		left[o.GetNamespace()+"/"+o.GetName()] = true
	}
	return cluster.Await(ctx, c, list, func(event watch.Event) (bool, error) {
		o, ok := event.Object.(client.Object)
		if ok && event.Type == watch.Deleted {
			delete(left, o.GetNamespace()+"/"+o.GetName())
		}
		return len(left) == 0, nil
	}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
}
