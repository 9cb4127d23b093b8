// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "velero-server-old-0", errors.New("no right"))
	errAway      = errors.New("connection refused")
)

// Leases can't be read. The start goes on all the same, some time.
func TestServersOfWhichNothingCanBeKnown(t *testing.T) {
	for name, test := range map[string]struct {
		server string
		err    error
		after  time.Duration
		phase  velerov1.BackupPhase
		thaws  int
	}{
		"the API server is away":                 {dead, errAway, findLimit, velerov1.BackupPhaseInProgress, 0},
		"there is no right":                      {dead, errForbidden, 0, velerov1.BackupPhaseFailed, 2},
		"the one before us, of our name":         {"new-0_0", errAway, 0, velerov1.BackupPhaseFailed, 2},
		"the one before us, and no right either": {"new-0_0", errForbidden, 0, velerov1.BackupPhaseFailed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := setup(t)
				h.instances.err = test.err
				h.store.Server = test.server
				h.frozen(h.backup("nightly", test.server, velerov1.BackupPhaseInProgress), "a")
				begun := time.Now()
				h.atStart()
				h.Expect(time.Since(begun)).To(BeNumerically("~", test.after, 5*time.Second))
				h.Expect(h.get("nightly").Status.Phase).To(Equal(test.phase))
				h.Expect(h.executor.all()).To(HaveLen(test.thaws))
				if test.thaws == 0 {
					h.Expect(h.log.LastEntry().Level).To(Equal(logrus.ErrorLevel))
				}
			})
		})
	}
}
