// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

func TestFieldsOfAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		want   map[string]string
	}{
		"an object": {
			answer: `{"status": {"phase": "Completed", "errors": 0, "none": null}, "items": [{"name": "a"}, {"name": "b"}], "a.b/c": true}`,
			want: map[string]string{
				"status.phase": "Completed", "status.errors": "0", "items.0.name": "a", "items.1.name": "b", "a.b/c": "true",
			},
		},
		"a list":   {answer: `[1, 2]`, want: map[string]string{}},
		"words":    {answer: "Name: b1\n", want: map[string]string{}},
		"no words": {answer: "", want: map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(fieldsOf([]byte(test.answer))).To(Equal(test.want))
		})
	}
}

func TestFilesThatACommandMade(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	var content bytes.Buffer
	zipped := gzip.NewWriter(&content)
	archive := tar.NewWriter(zipped)
	g.Expect(archive.WriteHeader(&tar.Header{Name: "metadata/version", Typeflag: tar.TypeReg})).To(Succeed())
	g.Expect(archive.Close()).To(Succeed())
	g.Expect(zipped.Close()).To(Succeed())
	for name, data := range map[string][]byte{"b1-data.tar.gz": content.Bytes(), "broken.tar.gz": []byte("no archive"), "notes.txt": nil} {
		g.Expect(os.WriteFile(filepath.Join(dir, name), data, 0o600)).To(Succeed())
	}
	g.Expect(filesIn(dir)).To(Equal(map[string][]string{
		"b1-data.tar.gz": {"metadata/version"}, "broken.tar.gz": {}, "notes.txt": {},
	}))
}

func TestManifestsAreFilledIn(t *testing.T) {
	g := NewWithT(t)
	r := &run{scenario: &scenario.Scenario{}, board: newBoard(), lab: &lab{}}
	r.board.update(func(rec *recording) {
		rec.snapshots["1"] = &snapshotRecord{uid: "1", namespace: "app", pvc: "a-0", name: "older", created: rec.origin.Add(1)}
		rec.snapshots["2"] = &snapshotRecord{uid: "2", namespace: "app", pvc: "a-0", name: "newer", created: rec.origin.Add(2)}
		rec.snapshots["3"] = &snapshotRecord{uid: "3", namespace: "app", pvc: "a-0", name: "mine", created: rec.origin.Add(3)}
		rec.foreign["3"] = true
	})
	g.Expect(r.fillIn([]byte(`{"name": "{snapshot of app/a-0}"}`))).To(BeEquivalentTo(`{"name": "newer"}`))
	_, err := r.fillIn([]byte(`{"name": "{snapshot of app/b-0}"}`))
	g.Expect(err).To(MatchError(ContainSubstring("app/b-0")))
}
