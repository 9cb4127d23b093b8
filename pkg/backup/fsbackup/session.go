// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package fsbackup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/nodeagent"
	"github.com/vmware-tanzu/velero/pkg/podvolume"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/velero"
)

const (
	// cancels bounds how many PodVolumeBackups are cancelled at once.
	cancels = 16
	// cancelTimeout bounds the requests that cancel: they are sent when a backup ends, and mustn't hold it up.
	cancelTimeout = 30 * time.Second
)

// Session makes and follows the PodVolumeBackups of one backup. It is safe for concurrent use.
type Session struct {
	service  *Service
	backup   *velerov1.Backup
	policies *velero.Policies
	log      logrus.FieldLogger
	// ctx ends with the backup or when its time is up, with errTimeout as the cause. Velero's backupper keeps it, too.
	ctx          context.Context
	stop         context.CancelFunc
	follower     *follower
	registration toolscache.ResourceEventHandlerRegistration
	backupper    podvolume.Backupper

	mu   sync.Mutex
	made []*velerov1.PodVolumeBackup
}

// Made is what became of the volumes of one pod. PodVolumeBackups may have been made in spite of errors.
type Made struct {
	Backups []*velerov1.PodVolumeBackup
	// Taken are the claims of those volumes, Skipped those that can't be backed up, and why.
	Taken   []*corev1.PersistentVolumeClaim
	Skipped []Skipped
	Errs    []error
}

// Skipped is a claim that can't be backed up by its file system.
type Skipped struct {
	Claim  *corev1.PersistentVolumeClaim
	Reason string
}

// Prepare makes sure that the repository for a pod's namespace is ready. BackUp does that, too, but when the pod is frozen
// already. Nothing is done when BackUp will fail before it comes to that.
func (s *Session) Prepare(pod *corev1.Pod) error {
	kind := s.service.repositoryType()
	if kind == "" || nodeagent.IsRunningInNode(s.ctx, s.backup.Namespace, pod.Spec.NodeName, s.service.Client) != nil {
		return nil
	}
	_, err := s.service.Ensurer.EnsureRepo(s.ctx, s.backup.Namespace, pod.Namespace, s.backup.Spec.StorageLocation, kind)
	if err != nil {
		return fmt.Errorf("getting the %s repository of namespace %s ready: %w", kind, pod.Namespace, err)
	}
	return nil
}

// BackUp makes the PodVolumeBackups for volumes of a pod (251 to 255). It doesn't wait for their end.
func (s *Session) BackUp(pod *corev1.Pod, volumes []string, log logrus.FieldLogger) Made {
	backups, summary, errs := s.policies.BackupPodVolumes(s.backupper, s.backup, pod, volumes, log)
	made := Made{Backups: backups, Errs: errs}
	if summary != nil {
		for _, claim := range summary.Backedup {
			made.Taken = append(made.Taken, claim)
		}
		for _, skipped := range summary.Skipped {
			made.Skipped = append(made.Skipped, Skipped{Claim: skipped.PVC, Reason: skipped.Reason})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, backups...)
	return made
}

// Wait returns when the given PodVolumeBackups have ended, with whatever result. It gives up with an error when ctx or the backup
// ends, or its time is up; then those that are left are asked to stop, since nobody will wait for them as they should be.
func (s *Session) Wait(ctx context.Context, backups ...*velerov1.PodVolumeBackup) error {
	waiting, stop := context.WithCancelCause(s.ctx)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
	err := s.wait(waiting, backups)
	if err != nil && (s.ctx.Err() == nil || errors.Is(err, errTimeout)) {
		s.cancel(ctx, backups) // when the backup has ended End does that: a pod that is frozen is not to wait for it
	}
	return err
}

// Finish waits until all have ended (256). When their time is up that is an error line, and they are asked to stop; it then
// waits until they have, or ctx ends. Each that isn't completed is an error line (257).
func (s *Session) Finish(ctx context.Context) error {
	all := s.all()
	if err := s.Wait(ctx, all...); err != nil {
		if ctx.Err() == nil && errors.Is(err, errTimeout) {
			s.log.WithError(err).Error("Not all file-system backups have ended in time; those that are left are cancelled")
			err = s.wait(ctx, all)
		}
		if err != nil {
			return err
		}
	}
	for _, pvb := range s.Latest() {
		if pvb.Status.Phase != velerov1.PodVolumeBackupPhaseCompleted {
			s.log.WithField("podVolumeBackup", pvb.Name).Errorf("The file-system backup of volume %s of pod %s/%s is %s: %s",
				pvb.Spec.Volume, pvb.Spec.Pod.Namespace, pvb.Spec.Pod.Name, pvb.Status.Phase, pvb.Status.Message)
		}
	}
	return nil
}

// End cancels what hasn't ended and forgets the rest. Nothing may be made afterwards.
func (s *Session) End(ctx context.Context) {
	s.cancel(ctx, s.all())
	s.stop()
	if err := s.service.Informer.RemoveEventHandler(s.registration); err != nil {
		s.log.WithError(err).Debug("The follower of PodVolumeBackups stays registered")
	}
}

// Latest returns all that were made, as they were seen last.
func (s *Session) Latest() []*velerov1.PodVolumeBackup { return s.follower.latest(s.all()) }

func (s *Session) all() []*velerov1.PodVolumeBackup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*velerov1.PodVolumeBackup(nil), s.made...)
}

func (s *Session) wait(ctx context.Context, backups []*velerov1.PodVolumeBackup) error {
	for {
		left, changed := s.follower.unfinished(backups)
		if len(left) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// cancel asks the node agent to stop what it is at. It does so when ctx has ended, too: without the request the agent
// would go on, and keep what it has written.
func (s *Session) cancel(ctx context.Context, backups []*velerov1.PodVolumeBackup) {
	left, _ := s.follower.unfinished(backups)
	if len(left) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer stop()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"cancel":true},"status":{"message":"cancelled because the backup ended or its time was up"}}`))
	var group errgroup.Group
	group.SetLimit(cancels)
	for _, pvb := range left {
		group.Go(func() error {
			target := &velerov1.PodVolumeBackup{}
			target.Namespace, target.Name = pvb.Namespace, pvb.Name
			if err := client.IgnoreNotFound(s.service.Client.Patch(ctx, target, patch)); err != nil {
				s.log.WithError(err).WithField("podVolumeBackup", pvb.Name).Warn("The file-system backup can't be cancelled; the node agent goes on with it")
			}
			return nil
		})
	}
	_ = group.Wait() // each has logged its own failure
}
