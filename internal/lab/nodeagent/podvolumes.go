// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"fmt"
	"time"

	"github.com/vmware-tanzu/velero/pkg/apis/velero/shared"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

// InstallPod makes the agent's pod on the only node, which Velero looks for before it makes a PodVolumeBackup.
func (a *Agent) InstallPod(ctx context.Context) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.opts.Namespace, Name: Name, Labels: map[string]string{"name": Name, "role": Name}},
		Spec: corev1.PodSpec{
			NodeName: cluster.DefaultNode, Containers: []corev1.Container{{Name: Name, Image: "registry.invalid/" + Name}},
		},
	}
	if err := a.opts.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating the pod of the node agent: %w", err)
	}
	pod.Status.Phase = corev1.PodRunning
	if err := a.opts.Client.Status().Update(ctx, pod); err != nil {
		return fmt.Errorf("setting the status of the node agent's pod: %w", err)
	}
	return nil
}

// serveRepositories declares every BackupRepository ready. The server's own controller for them must not run beside it.
func (a *Agent) serveRepositories(ctx context.Context) error {
	return cluster.Await(ctx, a.opts.Client, &velerov1.BackupRepositoryList{}, func(event watch.Event) (bool, error) {
		repository, ok := event.Object.(*velerov1.BackupRepository)
		if !ok || event.Type == watch.Deleted || repository.Status.Phase == velerov1.BackupRepositoryPhaseReady {
			return false, nil
		}
		ready := repository.DeepCopy()
		ready.Status.Phase = velerov1.BackupRepositoryPhaseReady
		if err := client.IgnoreNotFound(a.opts.Client.Patch(ctx, ready, client.MergeFrom(repository))); err != nil {
			return false, fmt.Errorf("the stand-in for the node agent, BackupRepository %s: %w", repository.Name, err)
		}
		return false, nil
	}, client.InNamespace(a.opts.Namespace))
}

// servePodVolumes works on PodVolumeBackups.
func (a *Agent) servePodVolumes(ctx context.Context, group *errgroup.Group) error {
	return cluster.Await(ctx, a.opts.Client, &velerov1.PodVolumeBackupList{}, func(event watch.Event) (bool, error) {
		if pvb, ok := event.Object.(*velerov1.PodVolumeBackup); ok && event.Type != watch.Deleted {
			a.sawPodVolume(ctx, group, pvb)
		}
		return false, nil
	}, client.InNamespace(a.opts.Namespace))
}

// sawPodVolume starts work on a new PodVolumeBackup, and ends it on one that is cancelled.
func (a *Agent) sawPodVolume(ctx context.Context, group *errgroup.Group, pvb *velerov1.PodVolumeBackup) {
	a.mu.Lock()
	defer a.mu.Unlock()
	cancel := a.cancels[pvb.UID]
	if pvb.Spec.Cancel && cancel != nil {
		cancel()
		return
	}
	if cancel != nil || pvb.Status.Phase != "" && pvb.Status.Phase != velerov1.PodVolumeBackupPhaseNew {
		return
	}
	work, cancel := context.WithCancel(ctx)
	a.cancels[pvb.UID] = cancel
	group.Go(func() error {
		defer cancel()
		err := a.read(ctx, work, pvb)
		if ctx.Err() != nil || err == nil {
			return nil
		}
		return fmt.Errorf("the stand-in for the node agent, PodVolumeBackup %s: %w", pvb.Name, err)
	})
}

// read takes a PodVolumeBackup to its last phase in the time that reading the volume takes, or until work ends.
func (a *Agent) read(ctx, work context.Context, pvb *velerov1.PodVolumeBackup) error {
	started := metav1.Now()
	state := pvb.DeepCopy()
	state.Status.Phase, state.Status.StartTimestamp = velerov1.PodVolumeBackupPhaseInProgress, &started
	// The CRD has no status subresource.
	if err := a.opts.Client.Patch(ctx, state, client.MergeFrom(pvb)); err != nil {
		return client.IgnoreNotFound(err)
	}
	timer := time.NewTimer(a.duration())
	defer timer.Stop()
	phase, message := velerov1.PodVolumeBackupPhaseCompleted, a.failure()
	if message != "" {
		phase = velerov1.PodVolumeBackupPhaseFailed
	}
	select {
	case <-timer.C:
	case <-work.Done():
		phase, message = velerov1.PodVolumeBackupPhaseCanceled, "cancelled"
	}
	ended := metav1.Now()
	before := state.DeepCopy()
	state.Status.Phase, state.Status.Message, state.Status.CompletionTimestamp = phase, message, &ended
	if phase == velerov1.PodVolumeBackupPhaseCompleted {
		state.Status.Path, state.Status.SnapshotID = "/host_pods", "snapshot-of-"+pvb.Spec.Volume
		state.Status.Progress = shared.DataMoveOperationProgress{TotalBytes: moved, BytesDone: moved}
	}
	return client.IgnoreNotFound(a.opts.Client.Patch(ctx, state, client.MergeFrom(before)))
}
