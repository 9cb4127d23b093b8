// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/controller/recovery"
)

// The server was killed while it uploaded the backup, which is run again.
func TestARetriedBackupReplacesWhatItsFirstTryHasUploaded(t *testing.T) {
	const metadata, rest = "backups/b1/velero-backup.json", "backups/b1/b1-volumeinfo.json.gz"
	for name, test := range map[string]struct {
		retried  bool
		uid      types.UID
		text     string
		replaced bool
	}{
		"its own":                             {retried: true, uid: "uid-of-b1", replaced: true},
		"that of another backup of that name": {retried: true, uid: "another"},
		"without a UID":                       {retried: true},
		"that nobody can read":                {retried: true, text: "{"},
		"of a backup that isn't a retry":      {uid: "uid-of-b1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b1", func(b *velerov1.Backup) {
				if test.retried {
					b.Annotations = map[string]string{recovery.AnnRetried: "2026-03-01T12:00:00Z"}
				}
			})))
			stored := &velerov1.Backup{
				TypeMeta:   metav1.TypeMeta{APIVersion: "velero.io/v1", Kind: "Backup"},
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b1", UID: test.uid},
			}
			content, err := json.Marshal(stored)
			g.Expect(err).NotTo(HaveOccurred())
			if test.text != "" {
				content = []byte(test.text)
			}
			h.bucket.objects[metadata] = content
			h.bucket.objects[rest] = []byte("old")
			h.bucket.objects["backups/b11/velero-backup.json"] = []byte("another backup")
			h.engine.returns(&backup.Result{}, nil)
			after := h.reconcile(t, "b1")
			g.Expect(h.bucket.objects).To(HaveKeyWithValue("backups/b11/velero-backup.json", []byte("another backup")))
			if test.replaced {
				g.Expect(after.Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing), after.Status.FailureReason)
				g.Expect(h.bucket.objects[metadata]).NotTo(Equal(content))
				g.Expect(h.bucket.objects[rest]).NotTo(Equal([]byte("old")))
				return
			}
			g.Expect(after.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
			g.Expect(h.bucket.objects).To(And(HaveKeyWithValue(metadata, content), HaveKeyWithValue(rest, []byte("old"))))
		})
	}
}
