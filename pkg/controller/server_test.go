// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"io"
	"testing"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
)

// While a backup runs it says which server runs it, so that another one doesn't take it for a dead one's. Nothing of that is in
// what comes of it.
func TestTheServerIsNamedWhileTheBackupRuns(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(t, with(ready("b1")), func(s *setup) { s.options.Server = "velero-0_ab12" })
	var during *velerov1.Backup
	h.engine.run = func(request backup.Request, _ io.Writer) (*backup.Result, error) {
		during = h.get(t, "b1")
		g.Expect(request.Backup.Annotations).NotTo(HaveKey(freezerecord.AnnServer), "plugins get it")
		return &backup.Result{}, nil
	}
	after := h.reconcile(t, "b1")
	g.Expect(during.Annotations).To(HaveKeyWithValue(freezerecord.AnnServer, "velero-0_ab12"))
	g.Expect(after.Annotations).NotTo(HaveKey(freezerecord.AnnServer))
	uploaded := new(velerov1.Backup)
	h.bucket.decode(t, "b1", "velero-backup.json", uploaded)
	g.Expect(uploaded.Name).To(Equal("b1"))
	g.Expect(uploaded.Annotations).NotTo(HaveKey(freezerecord.AnnServer))
}
