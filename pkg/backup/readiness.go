// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
	"k8s.io/utils/clock"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// ReadinessSource knows how far a snapshot is, without asking the API; snapshot.Tracker is one.
type ReadinessSource interface {
	// Readiness returns false for a VolumeSnapshot that isn't there, or that can't be known of.
	Readiness(namespace, name string) (snapshot.Readiness, bool)
}

// ReadinessDeps are what the progress of CSI snapshots is told from.
type ReadinessDeps struct {
	Source ReadinessSource
	// Judge gives a verdict on an error that a snapshot shows after its cut.
	Judge snapshot.Judge
	// Nudger is asked to look at each snapshot that isn't ready.
	Nudger Nudger
	Clock  clock.PassiveClock
	// Life ends when the server stops. Velero's interfaces have no context for a question.
	Life context.Context //nolint:containedctx // see above
	Log  logrus.FieldLogger
}

// Nudger gets snapshots going that the controllers have forgotten; snapshot.Nudger is one.
type Nudger interface {
	// Nudge returns whether there was something to do.
	Nudge(ctx context.Context, namespace, name string) (bool, error)
}

// WithReadiness returns plugin managers that answer for the progress of CSI snapshots from memory. All other plugins are
// those of the managers that newManager makes, and so is the CSI action when the source doesn't know a snapshot (366).
func WithReadiness(newManager func(logrus.FieldLogger) clientmgmt.Manager, deps ReadinessDeps) func(logrus.FieldLogger) clientmgmt.Manager {
	return func(log logrus.FieldLogger) clientmgmt.Manager {
		return readinessManager{Manager: newManager(log), ReadinessDeps: deps}
	}
}

type readinessManager struct {
	clientmgmt.Manager
	ReadinessDeps
}

// GetBackupItemActionV2 overrides one action of the plugins.
func (m readinessManager) GetBackupItemActionV2(name string) (biav2.BackupItemAction, error) {
	if name != snapshotActionName {
		return m.Manager.GetBackupItemActionV2(name)
	}
	return &readinessAction{manager: m.Manager, ReadinessDeps: m.ReadinessDeps}, nil
}

// readinessAction is Velero's CSI snapshot action with another Progress. The plugin behind it is started only when it is
// needed.
type readinessAction struct {
	biav2.BackupItemAction
	ReadinessDeps
	manager clientmgmt.Manager
}

// Name implements biav2.BackupItemAction.
func (a *readinessAction) Name() string { return snapshotActionName }

// Progress says whether a snapshot is ready. An error that the storage reports meanwhile ends the operation only when the
// verdict on it is terminal; any other may heal until spec.itemOperationTimeout, and one that stood there before the cut
// says nothing about what is now.
func (a *readinessAction) Progress(operationID string, backup *velerov1.Backup) (velero.OperationProgress, error) {
	parts := strings.Split(operationID, "/")
	if len(parts) != 3 {
		return velero.OperationProgress{}, biav2.InvalidOperationIDError(operationID)
	}
	started, err := time.Parse(time.RFC3339, parts[2])
	if err != nil {
		return velero.OperationProgress{}, fmt.Errorf("operation %q: reading when it started: %w", operationID, err)
	}
	state, known := a.Source.Readiness(parts[0], parts[1])
	if !known {
		plugin, err := a.manager.GetBackupItemActionV2(snapshotActionName)
		if err != nil {
			return velero.OperationProgress{}, fmt.Errorf("starting the CSI plugin: %w", err)
		}
		return plugin.Progress(operationID, backup)
	}
	progress := velero.OperationProgress{Started: started, Updated: state.Updated, Completed: state.Ready}
	if state.Ready {
		return progress, nil
	}
	a.nudge(parts[0], parts[1])
	progress.Description = "waiting for the storage to make the snapshot ready for use"
	if state.Fault.Text == "" || state.Fault.Stale {
		return progress, nil
	}
	judgement := a.Judge.Judge(state.Observation(parts[0], a.Clock.Now()))
	if judgement.Verdict == snapshot.Terminal {
		progress.Completed, progress.Err = true, judgement.Explain(state.Fault.Text)
		return progress, nil
	}
	progress.Description += "; it last reported: " + state.Fault.Text
	return progress, nil
}

// nudge does what can be done for a snapshot that isn't ready.
func (a *readinessAction) nudge(namespace, name string) {
	log := a.Log.WithFields(logrus.Fields{"namespace": namespace, "volumeSnapshot": name})
	switch nudged, err := a.Nudger.Nudge(a.Life, namespace, name); {
	case err != nil:
		log.WithError(err).Warn("external-snapshotter can't be told of a snapshot that it may have forgotten")
	case nudged:
		log.Info("Nothing was heard of the snapshot for a while; external-snapshotter is made to look at it again")
	}
}

// Cancel does nothing: a snapshot that is cut can't be called back (297).
func (a *readinessAction) Cancel(string, *velerov1.Backup) error { return nil }
