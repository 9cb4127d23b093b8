// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"fmt"
	"sync"

	"github.com/vmware-tanzu/velero/pkg/apis/velero/shared"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

// agent stands in for Velero's node agent and for the controller of backup repositories: it moves no data, it says that it has.
type agent struct {
	client client.WithWatch

	mu        sync.Mutex
	behaviour NodeAgent
}

func (a *agent) set(behaviour NodeAgent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.behaviour = behaviour
}

func (a *agent) failure() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.behaviour.Fail
}

// serve follows the kinds that the agent works on until the context ends.
func (a *agent) serve(ctx context.Context, group *errgroup.Group) {
	for _, list := range []client.ObjectList{
		&velerov1.PodVolumeBackupList{}, &velerov2alpha1.DataUploadList{}, &velerov1.BackupRepositoryList{},
	} {
		group.Go(func() error {
			return cluster.Await(ctx, a.client, list, func(event watch.Event) (bool, error) {
				object, ok := event.Object.(client.Object)
				if !ok || event.Type == watch.Deleted {
					return false, nil
				}
				if err := client.IgnoreNotFound(a.finish(ctx, object)); err != nil {
					return false, fmt.Errorf("the stand-in for the node agent, %T %s: %w", object, object.GetName(), err)
				}
				return false, nil
			})
		})
	}
}

// moved is the size of everything that the agent moves.
const moved = 1 << 20

// finish takes an object from its first phase to its last.
func (a *agent) finish(ctx context.Context, o client.Object) error {
	base := o.DeepCopyObject().(client.Object)
	now := metav1.Now()
	failure := a.failure()
	switch o := o.(type) {
	case *velerov1.BackupRepository:
		if o.Status.Phase != "" && o.Status.Phase != velerov1.BackupRepositoryPhaseNew {
			return nil
		}
		o.Status.Phase = velerov1.BackupRepositoryPhaseReady
	case *velerov1.PodVolumeBackup:
		if o.Status.Phase != "" && o.Status.Phase != velerov1.PodVolumeBackupPhaseNew {
			return nil
		}
		o.Status.Phase, o.Status.Message = velerov1.PodVolumeBackupPhaseCompleted, failure
		if failure != "" {
			o.Status.Phase = velerov1.PodVolumeBackupPhaseFailed
		}
		o.Status.StartTimestamp, o.Status.CompletionTimestamp = &now, &now
		o.Status.Path, o.Status.SnapshotID = "/host_pods", "snapshot"
		o.Status.Progress = shared.DataMoveOperationProgress{TotalBytes: moved, BytesDone: moved}
	case *velerov2alpha1.DataUpload:
		if o.Status.Phase != "" && o.Status.Phase != velerov2alpha1.DataUploadPhaseNew {
			return nil
		}
		o.Status.Phase, o.Status.Message = velerov2alpha1.DataUploadPhaseCompleted, failure
		if failure != "" {
			o.Status.Phase = velerov2alpha1.DataUploadPhaseFailed
		}
		o.Status.StartTimestamp, o.Status.CompletionTimestamp = &now, &now
		o.Status.SnapshotID, o.Status.Node = "snapshot", cluster.DefaultNode
		o.Status.Progress = shared.DataMoveOperationProgress{TotalBytes: moved, BytesDone: moved}
	}
	// The CRDs of these kinds have no status subresource.
	return a.client.Patch(ctx, o, client.MergeFrom(base))
}
