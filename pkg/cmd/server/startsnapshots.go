// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"sync"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// startSnapshots removes snapshots before the second half is there. It follows snapshots only from the first call on: most starts find
// nothing to be removed.
type startSnapshots struct {
	rest      *rest.Config
	namespace string
	log       *logrus.Logger

	once    sync.Once
	err     error
	sweeper *snapshot.Sweeper
	cancel  context.CancelFunc
	group   errgroup.Group
}

// RemoveOwned implements recovery.Snapshots.
func (s *startSnapshots) RemoveOwned(ctx context.Context, backup types.UID) (found int, left []snapshot.Leftover, err error) {
	s.once.Do(func() { s.err = s.start(context.WithoutCancel(ctx)) })
	if s.err != nil {
		return 0, nil, s.err
	}
	return s.sweeper.RemoveOwned(ctx, backup)
}

func (s *startSnapshots) start(ctx context.Context) error {
	snapshotClient, err := snapshot.NewClient(s.rest)
	if err != nil {
		return err
	}
	groups, err := dynamic.NewForConfig(s.rest)
	if err != nil {
		return err
	}
	log := s.log.WithField("component", "snapshots")
	tracker := snapshot.NewTracker(snapshotClient, snapshot.TrackerOptions{Clock: clock.RealClock{}, Logger: log})
	remover := snapshot.NewRemover(snapshotClient, tracker, snapshot.RemoverOptions{Clock: clock.RealClock{}, Logger: log, Groups: groups})
	s.sweeper = snapshot.NewSweeper(snapshot.SweeperDeps{Tracker: tracker, Remover: remover, Namespace: s.namespace, Logger: log})
	ctx, s.cancel = context.WithCancel(ctx)
	s.group.Go(func() error { return tracker.Start(ctx) })
	return nil
}

// stop ends the following, and waits for its end.
func (s *startSnapshots) stop() {
	if s.cancel == nil {
		return
	}
	s.cancel()
	if err := s.group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		s.log.WithError(err).Warn("Following the snapshots of dead backups ended with an error")
	}
}
