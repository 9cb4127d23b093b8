// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

const snapshotAction = "velero.io/csi-volumesnapshot-backupper"

// memory is a tracker's answers by namespace/name.
type memory map[string]snapshot.Readiness

func (m memory) Readiness(namespace, name string) (snapshot.Readiness, bool) {
	state, ok := m[namespace+"/"+name]
	return state, ok
}

// nudger notes what it is asked; it fails.
type nudger struct{ asked []string }

func (n *nudger) Nudge(_ context.Context, namespace, name string) (bool, error) {
	n.asked = append(n.asked, namespace+"/"+name)
	return false, errors.New("forbidden")
}

// manager starts plugins that answer with a description of their own.
type manager struct {
	clientmgmt.Manager
	started []string
	err     error
}

func (m *manager) GetBackupItemActionV2(name string) (biav2.BackupItemAction, error) {
	m.started = append(m.started, name)
	return realPlugin{}, m.err
}

type realPlugin struct{ biav2.BackupItemAction }

func (realPlugin) Name() string { return "the plugin" }

func (realPlugin) Progress(string, *velerov1.Backup) (velero.OperationProgress, error) {
	return velero.OperationProgress{Description: "from the plugin"}, nil
}

func TestReadinessOfSnapshots(t *testing.T) {
	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	updated := started.Add(time.Minute)
	source := memory{
		"app/ready":   {Ready: true, Updated: updated},
		"app/waiting": {Updated: updated},
		"app/failing": {Handle: "h", Updated: updated, Fault: snapshot.Fault{Text: "rate exceeded"}},
		"app/stale":   {Handle: "h", Updated: updated, Fault: snapshot.Fault{Text: "status is FAILED", Stale: true}},
		"app/broken": {Handle: "h", Driver: "d", PVC: "data", Updated: updated, Fault: snapshot.Fault{
			Text: `cannot check: "rpc error: code = Internal desc = status is FAILED"`, Since: updated, Attempts: 2,
		}},
	}
	asked := snapshot.Observation{}
	judge := snapshot.JudgeFunc(func(o snapshot.Observation) snapshot.Judgement {
		asked = o
		if strings.Contains(o.Message, "FAILED") {
			return snapshot.Judgement{Verdict: snapshot.Terminal, Reason: "it stays broken", Rule: "broken"}
		}
		return snapshot.Judgement{}
	})
	nudges := &nudger{}
	deps := backup.ReadinessDeps{
		Source: source, Judge: judge, Nudger: nudges, Clock: clocktesting.NewFakePassiveClock(updated.Add(time.Minute)), Life: t.Context(), Log: logrus.New(),
	}
	cases := map[string]struct {
		id        string
		pluginErr error
		want      velero.OperationProgress
		err       string
		asked     bool
	}{
		"ready":   {id: "app/ready/2026-03-01T12:00:00Z", want: velero.OperationProgress{Completed: true, Started: started, Updated: updated}},
		"waiting": {id: "app/waiting/2026-03-01T12:00:00Z", want: velero.OperationProgress{Started: started, Updated: updated, Description: "waiting for the storage to make the snapshot ready for use"}},
		"an error that may heal": {id: "app/failing/2026-03-01T12:00:00Z", want: velero.OperationProgress{
			Started: started, Updated: updated, Description: "waiting for the storage to make the snapshot ready for use; it last reported: rate exceeded",
		}},
		"an error from before the cut": {id: "app/stale/2026-03-01T12:00:00Z", want: velero.OperationProgress{
			Started: started, Updated: updated, Description: "waiting for the storage to make the snapshot ready for use",
		}},
		"an error that can't heal": {id: "app/broken/2026-03-01T12:00:00Z", want: velero.OperationProgress{
			Started: started, Updated: updated, Completed: true, Err: "it stays broken (rule broken): Internal: status is FAILED",
			Description: "waiting for the storage to make the snapshot ready for use",
		}},
		"unknown, the plugin knows":      {id: "app/other/2026-03-01T12:00:00Z", asked: true, want: velero.OperationProgress{Description: "from the plugin"}},
		"unknown, the plugin is missing": {id: "app/other/2026-03-01T12:00:00Z", asked: true, pluginErr: errors.New("no such plugin"), err: "no such plugin"},
		"two parts":                      {id: "app/ready", err: "app/ready"},
		"four parts":                     {id: "app/ready/2026-03-01T12:00:00Z/x", err: "app/ready"},
		"no time":                        {id: "app/ready/yesterday", err: "yesterday"},
		"nothing":                        {id: "", err: "invalid"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			plugins := &manager{err: test.pluginErr}
			nudges.asked = nil
			overridden := backup.WithReadiness(func(logrus.FieldLogger) clientmgmt.Manager { return plugins }, deps)(logrus.New())
			action, err := overridden.GetBackupItemActionV2(snapshotAction)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(action.Name()).To(Equal(snapshotAction))
			g.Expect(plugins.started).To(BeEmpty(), "no plugin is started before it is needed")

			got, err := action.Progress(test.id, nil)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got).To(Equal(test.want))
			}
			g.Expect(len(plugins.started) > 0).To(Equal(test.asked))
			if strings.HasPrefix(test.want.Description, "waiting") {
				g.Expect(nudges.asked).To(Equal([]string{strings.Join(strings.Split(test.id, "/")[:2], "/")}))
			} else {
				g.Expect(nudges.asked).To(BeEmpty())
			}
			g.Expect(action.Cancel(test.id, nil)).To(Succeed())
			if name == "an error that can't heal" {
				g.Expect(asked).To(Equal(snapshot.Observation{
					Driver: "d", Code: "Internal", Message: source["app/broken"].Fault.Text, Age: time.Minute, Attempts: 2,
					Phase: snapshot.PhaseReadying, Namespace: "app", PVC: "data",
				}))
			}
		})
	}
}

func TestOtherPluginsAreTheManagersOwn(t *testing.T) {
	g := NewWithT(t)
	plugins := &manager{}
	overridden := backup.WithReadiness(func(logrus.FieldLogger) clientmgmt.Manager { return plugins }, backup.ReadinessDeps{Source: memory{}})(logrus.New())
	action, err := overridden.GetBackupItemActionV2("velero.io/csi-pvc-backupper")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(action.Name()).To(Equal("the plugin"))
	g.Expect(plugins.started).To(Equal([]string{"velero.io/csi-pvc-backupper"}))
}
