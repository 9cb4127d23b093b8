// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package fsbackup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/podvolume"
	"github.com/vmware-tanzu/velero/pkg/repository"
	"github.com/vmware-tanzu/velero/pkg/uploader"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/velero"
)

// Service is what all backups of a server share. All fields are required. It is safe for concurrent use.
type Service struct {
	// Locker and Ensurer are about the repositories in which the data goes; a server has one of each.
	Locker  *repository.RepoLocker
	Ensurer *repository.Ensurer
	// Client reads and writes without a cache.
	Client client.Client
	// Informer knows the PodVolumeBackups in Velero's namespace.
	Informer cache.Informer
	// UploaderType is the server's: kopia or restic.
	UploaderType string
	// Timeout bounds all file-system backups of a backup together, from its beginning. An annotation on the Backup may
	// say otherwise (104).
	Timeout time.Duration
}

// errTimeout is why the file-system backups of a backup end when their time is up.
var errTimeout = errors.New("the time for pod volume operations is over (flag --fs-backup-timeout, or annotation " +
	velerov1.PodVolumeOperationTimeoutAnnotation + " on the Backup)")

// Begin makes the Session of one backup; its time starts here. It waits until the informer knows what there is (105). The
// Session must be ended.
func (s *Service) Begin(ctx context.Context, b *velerov1.Backup, policies *velero.Policies, log logrus.FieldLogger) (*Session, error) {
	f := newFollower(b.UID)
	registration, err := s.Informer.AddEventHandler(f)
	if err != nil {
		return nil, fmt.Errorf("following the PodVolumeBackups: %w", err)
	}
	session := &Session{service: s, backup: b, policies: policies, log: log, follower: f, registration: registration}
	session.ctx, session.stop = context.WithTimeoutCause(ctx, s.timeoutOf(b, log), errTimeout)
	factory := podvolume.NewBackupperFactory(s.Locker, s.Ensurer, s.Client, unheard{s.Informer}, log)
	session.backupper, err = factory.NewBackupper(session.ctx, log, b, s.UploaderType)
	if err != nil {
		session.End(ctx)
		return nil, fmt.Errorf("getting ready for file-system backups: %w", err)
	}
	return session, nil
}

// timeoutOf returns the time for a backup (104).
func (s *Service) timeoutOf(b *velerov1.Backup, log logrus.FieldLogger) time.Duration {
	text := b.Annotations[velerov1.PodVolumeOperationTimeoutAnnotation]
	if text == "" {
		return s.Timeout
	}
	timeout, err := time.ParseDuration(text)
	if err != nil {
		log.WithError(err).Errorf("Annotation %s is not a duration such as 4h; the server's %s holds", velerov1.PodVolumeOperationTimeoutAnnotation, s.Timeout)
		return s.Timeout
	}
	return timeout
}

// repositoryType is that of the repositories which the uploader writes into; empty for one that Velero doesn't know.
func (s *Service) repositoryType() string {
	switch s.UploaderType {
	case uploader.KopiaType:
		return velerov1.BackupRepositoryTypeKopia
	case uploader.ResticType:
		return velerov1.BackupRepositoryTypeRestic
	default:
		return ""
	}
}

// unheard is an informer that calls no handler: Velero's backupper would take one for the wait that isn't used here, and
// give it back only there.
type unheard struct{ cache.Informer }

// AddEventHandler implements cache.Informer.
func (unheard) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}
