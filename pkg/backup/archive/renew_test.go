// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/pkg/backup/archive"
)

func TestRenew(t *testing.T) {
	g := NewWithT(t)
	then := time.Unix(1000, 0)
	var before, after bytes.Buffer
	w, err := archive.NewWriter(&before, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.Add(archive.File{Path: "a", Data: []byte("1"), ModTime: then}, archive.File{Path: "b", Data: []byte("1"), ModTime: then})).To(Succeed())
	g.Expect(w.Close()).To(Succeed())
	whole := before.Bytes()

	g.Expect(archive.Renew(&after, bytes.NewReader(whole), []archive.File{
		{Path: "z", Data: []byte("new")}, {Path: "a", Data: []byte("old")}, {Path: "y", Data: []byte("new")}, {Path: "a", Data: []byte("longer")},
	}, nil)).To(Succeed())
	unzipped, err := gzip.NewReader(&after)
	g.Expect(err).NotTo(HaveOccurred())
	var got []string
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		g.Expect(err).NotTo(HaveOccurred())
		data, err := io.ReadAll(reader)
		g.Expect(err).NotTo(HaveOccurred())
		got = append(got, header.Name+"="+string(data))
		g.Expect(header.ModTime.Equal(then)).To(Equal(header.Name == "b"), header.Name)
		g.Expect(header.Mode).To(Equal(int64(0o755)))
	}
	g.Expect(got).To(Equal([]string{"metadata/version=" + archive.FormatVersion + "\n", "a=longer", "b=1", "z=new", "y=new"}))

	g.Expect(archive.Renew(io.Discard, bytes.NewReader(whole[:len(whole)/2]), nil, nil)).To(MatchError(ContainSubstring("reading the backup tarball")))
	g.Expect(archive.Renew(io.Discard, bytes.NewReader(nil), nil, nil)).To(MatchError(ContainSubstring("reading the backup tarball")))
}
