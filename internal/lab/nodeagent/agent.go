// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeagent stands in for Velero's node agent on the lab. It moves no data: it takes each DataUpload (agent.go) and each
// PodVolumeBackup (podvolumes.go) to its last phase in the time that moving would take. The snapshot of a DataUpload is removed
// then, as by Velero's data mover. It also declares backup repositories ready.
package nodeagent

import (
	"context"
	"fmt"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/vmware-tanzu/velero/pkg/apis/velero/shared"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

const (
	// Name of the agent's DaemonSet and of its pod.
	Name = "node-agent"
	// moved is the size of everything that is moved.
	moved = 1 << 20
)

// Options say how the agent behaves.
type Options struct {
	Client client.WithWatch
	// Namespace of the Velero installation.
	Namespace string
	// Takes is how long moving the data of one volume takes, for a DataUpload once the snapshot is ready.
	Takes time.Duration
	// Fail, if not empty, is the message with which each of them fails instead, until SetFail says otherwise.
	Fail string
}

// Agent takes DataUploads and PodVolumeBackups to their last phase.
type Agent struct {
	opts Options

	mu sync.Mutex
	// fail is the present message of failure, takes the present time that moving takes.
	fail  string
	takes time.Duration
	// cancels has what was begun.
	cancels map[types.UID]context.CancelFunc
}

// New returns an agent that does nothing yet.
func New(opts Options) *Agent {
	return &Agent{opts: opts, fail: opts.Fail, takes: opts.Takes, cancels: map[types.UID]context.CancelFunc{}}
}

// SetFail makes what ends from now on fail with this message; empty makes it succeed.
func (a *Agent) SetFail(message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail = message
}

// SetTakes makes what begins from now on take so long.
func (a *Agent) SetTakes(duration time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.takes = duration
}

func (a *Agent) duration() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.takes
}

func (a *Agent) failure() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fail
}

// Install makes the DaemonSet and the pod that Velero looks for before it counts on a node agent.
func (a *Agent) Install(ctx context.Context) error {
	labels := map[string]string{"name": Name, "role": Name}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Namespace, Name: Name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: Name, Image: "registry.invalid/" + Name}},
			}},
		},
	}
	if err := a.opts.Client.Create(ctx, set); err != nil {
		return fmt.Errorf("creating the daemon set of the node agent: %w", err)
	}
	set.Status.NumberReady, set.Status.DesiredNumberScheduled = 1, 1
	if err := a.opts.Client.Status().Update(ctx, set); err != nil {
		return fmt.Errorf("setting the status of the node agent: %w", err)
	}
	return a.InstallPod(ctx)
}

// Run works on what Velero makes until ctx ends. An object that can't be worked on ends it with an error.
func (a *Agent) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.serveRepositories(ctx) })
	group.Go(func() error { return a.servePodVolumes(ctx, group) })
	group.Go(func() error {
		return cluster.Await(ctx, a.opts.Client, &velerov2alpha1.DataUploadList{}, func(event watch.Event) (bool, error) {
			upload, ok := event.Object.(*velerov2alpha1.DataUpload)
			if ok && event.Type != watch.Deleted {
				a.saw(ctx, group, upload)
			}
			return false, nil
		}, client.InNamespace(a.opts.Namespace))
	})
	return group.Wait()
}

// saw starts work on a new upload, and ends it on one that is cancelled.
func (a *Agent) saw(ctx context.Context, group *errgroup.Group, upload *velerov2alpha1.DataUpload) {
	a.mu.Lock()
	defer a.mu.Unlock()
	cancel := a.cancels[upload.UID]
	if upload.Spec.Cancel && cancel != nil {
		cancel()
		return
	}
	if cancel != nil || upload.Status.Phase != "" && upload.Status.Phase != velerov2alpha1.DataUploadPhaseNew {
		return
	}
	work, cancel := context.WithCancel(ctx)
	a.cancels[upload.UID] = cancel
	if upload.Spec.Cancel {
		cancel()
	}
	group.Go(func() error {
		defer cancel()
		if err := a.move(work, upload); work.Err() == nil && err != nil {
			return fmt.Errorf("the stand-in for the node agent, DataUpload %s: %w", upload.Name, err)
		}
		if ctx.Err() != nil || work.Err() == nil {
			return nil
		}
		return a.finish(ctx, upload, velerov2alpha1.DataUploadPhaseCanceled, "cancelled")
	})
}

// move waits for the snapshot to be ready, then for as long as moving takes.
func (a *Agent) move(ctx context.Context, upload *velerov2alpha1.DataUpload) error {
	started := metav1.Now()
	begin := upload.DeepCopy()
	begin.Status.Phase, begin.Status.StartTimestamp, begin.Status.Node = velerov2alpha1.DataUploadPhaseInProgress, &started, cluster.DefaultNode
	// The CRD has no status subresource.
	if err := a.opts.Client.Patch(ctx, begin, client.MergeFrom(upload)); err != nil {
		return client.IgnoreNotFound(err)
	}
	err := cluster.Await(ctx, a.opts.Client, &snapshotv1.VolumeSnapshotList{}, func(event watch.Event) (bool, error) {
		vs, ok := event.Object.(*snapshotv1.VolumeSnapshot)
		return ok && vs.Name == upload.Spec.CSISnapshot.VolumeSnapshot && vs.Status != nil && ptr.Deref(vs.Status.ReadyToUse, false), nil
	}, client.InNamespace(upload.Spec.SourceNamespace))
	if err != nil {
		return err
	}
	timer := time.NewTimer(a.duration())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	phase, message := velerov2alpha1.DataUploadPhaseCompleted, a.failure()
	if message != "" {
		phase = velerov2alpha1.DataUploadPhaseFailed
	}
	return a.finish(ctx, upload, phase, message)
}

// finish removes the snapshot, which is a copy of what was moved, and ends the upload.
func (a *Agent) finish(ctx context.Context, upload *velerov2alpha1.DataUpload, phase velerov2alpha1.DataUploadPhase, message string) error {
	vs := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{
		Namespace: upload.Spec.SourceNamespace, Name: upload.Spec.CSISnapshot.VolumeSnapshot,
	}}
	if err := client.IgnoreNotFound(a.opts.Client.Delete(ctx, vs)); err != nil {
		return fmt.Errorf("deleting VolumeSnapshot %s: %w", vs.Name, err)
	}
	ended := metav1.Now()
	end := upload.DeepCopy()
	end.Status.Phase, end.Status.Message, end.Status.CompletionTimestamp = phase, message, &ended
	if phase == velerov2alpha1.DataUploadPhaseCompleted {
		end.Status.SnapshotID = "snapshot-of-" + upload.Spec.SourcePVC
		end.Status.Progress = shared.DataMoveOperationProgress{TotalBytes: moved, BytesDone: moved}
	}
	return client.IgnoreNotFound(a.opts.Client.Patch(ctx, end, client.MergeFrom(upload)))
}
