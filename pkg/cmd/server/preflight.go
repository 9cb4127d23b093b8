// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/features"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	preflightcmd "github.com/velero-clipper/clipper/pkg/cmd/preflight"
	"github.com/velero-clipper/clipper/pkg/preflight"
)

// preflightTimeout bounds the checks at the start. Nothing waits for them.
const preflightTimeout = 2 * time.Minute

// preflight runs the checks of "velero preflight" once, beside everything else, with the server's own rights and settings. They
// can only write to the log.
func (s *second) preflight() error {
	if !features.IsEnabled(velerov1.CSIFeatureFlag) {
		return nil // no CSI snapshot is asked for
	}
	sources, err := preflightcmd.SourcesFrom(s.factory)
	if err != nil {
		return err
	}
	config := s.settings.config
	sources.Server = &preflight.Server{
		Found: true, CSI: true, Parallelism: s.settings.parallelism,
		SnapshotTimeout: config.DefaultCSISnapshotTimeout, MoveData: config.DefaultSnapshotMoveData,
	}
	log := s.log.WithField("component", "preflight")
	return s.mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		logPreflight(ctx, sources, log)
		return nil
	}))
}

func logPreflight(ctx context.Context, sources preflight.Sources, log logrus.FieldLogger) {
	ctx, cancel := context.WithTimeoutCause(ctx, preflightTimeout, fmt.Errorf("the cluster didn't answer everything within %s", preflightTimeout))
	defer cancel()
	state, err := preflight.Read(ctx, sources)
	if err != nil {
		if !errors.Is(err, context.Canceled) { // the server is ending
			log.WithError(err).Warn("The pre-flight checks of CSI snapshots can't be made")
		}
		return
	}
	preflight.Examine(state).Log(log)
}
