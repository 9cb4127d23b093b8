// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	veleroarchive "github.com/vmware-tanzu/velero/pkg/archive"
	"github.com/vmware-tanzu/velero/pkg/test"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/velero-clipper/clipper/pkg/backup/archive"
)

var (
	now         = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	volumes     = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func TestItemFiles(t *testing.T) {
	cases := map[string]struct {
		object    *unstructured.Unstructured
		preferred schema.GroupVersionResource
		version   string
		want      []string
	}{
		"namespaced, preferred version (177)": {object("v1", "Pod", "a", "p"), pods, "v1", []string{
			"resources/pods/namespaces/a/p.json", "resources/pods/v1-preferredversion/namespaces/a/p.json"}},
		"cluster-scoped (176)": {object("v1", "PersistentVolume", "", "v"), volumes, "v1", []string{
			"resources/persistentvolumes/cluster/v.json", "resources/persistentvolumes/v1-preferredversion/cluster/v.json"}},
		"with a group (176)": {object("apps/v1", "Deployment", "a", "d"), deployments, "v1", []string{
			"resources/deployments.apps/namespaces/a/d.json", "resources/deployments.apps/v1-preferredversion/namespaces/a/d.json"}},
		"another version (177)": {object("apps/v1beta1", "Deployment", "a", "d"), deployments, "v1beta1", []string{
			"resources/deployments.apps/v1beta1/namespaces/a/d.json"}},
		"the version before the plugins counts (169)": {object("apps/v1", "Deployment", "a", "d"), deployments, "v1beta1", []string{
			"resources/deployments.apps/v1beta1/namespaces/a/d.json"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			files, err := archive.ItemFiles(tc.object, tc.preferred.GroupResource(), tc.preferred, tc.version)
			g.Expect(err).NotTo(HaveOccurred())
			var paths []string
			for _, file := range files {
				paths = append(paths, file.Path)
				g.Expect(string(file.Data)).To(MatchJSON(must(tc.object.MarshalJSON())))
				g.Expect(string(file.Data)).NotTo(MatchRegexp(`[\n ]`), "compact, no newline at the end (178)")
			}
			g.Expect(paths).To(Equal(tc.want))
		})
	}
}

func TestItemFilesOfAnUnencodableObject(t *testing.T) {
	obj := object("v1", "Pod", "a", "p")
	obj.Object["bad"] = make(chan int)
	_, err := archive.ItemFiles(obj, pods.GroupResource(), pods, "v1")
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("encoding pods a/p as JSON")))
}

func TestItemFilesUnderANameThatIsNone(t *testing.T) {
	for _, name := range []string{"../../etc/p", "..", "a/b", "50%", ""} {
		_, err := archive.ItemFiles(object("v1", "Pod", "a", name), pods.GroupResource(), pods, "v1")
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("name")), name)
		if name != "" {
			_, err = archive.ItemFiles(object("v1", "Pod", name, "p"), pods.GroupResource(), pods, "v1")
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("namespace")), name)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type entry struct {
	header tar.Header
	data   string
}

func read(t *testing.T, tarball []byte) []entry {
	t.Helper()
	g := NewWithT(t)
	unzipped, err := gzip.NewReader(bytes.NewReader(tarball))
	g.Expect(err).NotTo(HaveOccurred())
	var entries []entry
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		g.Expect(err).NotTo(HaveOccurred())
		entries = append(entries, entry{*header, string(must(io.ReadAll(reader)))})
	}
}

func TestWriterEntries(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	clk := clocktesting.NewFakePassiveClock(now)
	w, err := archive.NewWriter(&out, clk)
	g.Expect(err).NotTo(HaveOccurred())
	long := "resources/pods/namespaces/a/" + strings.Repeat("x", 253) + ".json"
	g.Expect(w.Add(archive.File{Path: "b", Data: []byte("22")}, archive.File{Path: long, Data: []byte("333")})).To(Succeed())
	g.Expect(w.Add()).To(Succeed())
	clk.SetTime(now.Add(time.Minute))
	g.Expect(w.Add(archive.File{Path: "a"}, archive.File{Path: "old", ModTime: now.Add(-time.Hour)})).To(Succeed())
	g.Expect(w.Count()).To(Equal(4))
	g.Expect(w.Bytes()).To(Equal(int64(5)))
	g.Expect(w.Close()).To(Succeed())

	entries := read(t, out.Bytes())
	var names []string
	for _, e := range entries {
		names = append(names, e.header.Name)
		g.Expect(e.header.Typeflag).To(Equal(byte(tar.TypeReg)))
		g.Expect(e.header.Mode).To(Equal(int64(0o755)))
	}
	g.Expect(names).To(Equal([]string{"metadata/version", "b", long, "a", "old"}))
	g.Expect(entries[0].data).To(Equal("1.1.0\n"))
	g.Expect(entries[2].data).To(Equal("333"))
	g.Expect(entries[1].header.ModTime.UTC()).To(Equal(now))
	g.Expect(entries[3].header.ModTime.UTC()).To(Equal(now.Add(time.Minute)))
	g.Expect(entries[4].header.ModTime.UTC()).To(Equal(now.Add(-time.Hour)))
}

func TestWriterKeepsTheFilesOfOneCallTogether(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, nil)
	g.Expect(err).NotTo(HaveOccurred())
	const calls = 64
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			first, second := fmt.Sprintf("%d/1", i), fmt.Sprintf("%d/2", i)
			g.Expect(w.Add(archive.File{Path: first, Data: []byte(first)}, archive.File{Path: second, Data: []byte(second)})).To(Succeed())
			_, _ = w.Count(), w.Bytes()
		})
	}
	wg.Wait()
	g.Expect(w.Close()).To(Succeed())

	entries := read(t, out.Bytes())[1:]
	g.Expect(entries).To(HaveLen(2 * calls))
	for i := 0; i < len(entries); i += 2 {
		owner := strings.TrimSuffix(entries[i].header.Name, "/1")
		g.Expect(entries[i+1].header.Name).To(Equal(owner + "/2"))
		g.Expect(entries[i+1].data).To(Equal(owner + "/2"))
	}
}

func TestWriterAfterClose(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.Close()).To(Succeed())
	size := out.Len()
	g.Expect(w.Add(archive.File{Path: "late"})).To(MatchError(archive.ErrClosed))
	g.Expect(w.Close()).To(Succeed(), "closing again gives the same result")
	g.Expect(out.Len()).To(Equal(size))
	g.Expect(w.Count()).To(BeZero())
}

// full is a disk with room for a number of bytes.
type full struct{ room int }

var errFull = errors.New("no space left")

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.room {
		return 0, errFull
	}
	f.room -= len(p)
	return len(p), nil
}

func TestWriterErrorIsFinal(t *testing.T) {
	g := NewWithT(t)
	disk := &full{room: 1 << 10}
	w, err := archive.NewWriter(disk, nil)
	g.Expect(err).NotTo(HaveOccurred())
	// Data that gzip can't shrink, more than its buffers hold.
	random := make([]byte, 1<<20)
	state := uint32(1)
	for i := range random {
		state = state*1664525 + 1013904223
		random[i] = byte(state >> 24)
	}
	err = w.Add(archive.File{Path: "big", Data: random})
	g.Expect(err).To(MatchError(errFull))
	g.Expect(err).To(MatchError(ContainSubstring("writing big to the backup tarball")))
	disk.room = 1 << 30
	g.Expect(w.Add(archive.File{Path: "small"})).To(MatchError(errFull))
	g.Expect(w.Close()).To(MatchError(errFull))
	g.Expect(w.Close()).To(MatchError(errFull))
	g.Expect(w.Count()).To(BeZero())
}

func TestCloseReportsWhatItCantWrite(t *testing.T) {
	g := NewWithT(t)
	w, err := archive.NewWriter(&full{room: 10}, nil) // room for gzip's header only
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.Close()).To(MatchError(ContainSubstring("completing the backup tarball")))
}

func TestVeleroReadsTheTarball(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, nil)
	g.Expect(err).NotTo(HaveOccurred())
	add := func(obj *unstructured.Unstructured, preferred schema.GroupVersionResource, version string) {
		files, err := archive.ItemFiles(obj, preferred.GroupResource(), preferred, version)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(w.Add(files...)).To(Succeed())
	}
	add(object("v1", "Pod", "a", "p"), pods, "v1")
	add(object("v1", "Pod", "b", "p"), pods, "v1")
	add(object("v1", "PersistentVolume", "", "v"), volumes, "v1")
	add(object("apps/v1", "Deployment", "a", "d"), deployments, "v1")
	add(object("apps/v1beta1", "Deployment", "a", "d"), deployments, "v1beta1")
	g.Expect(w.Close()).To(Succeed())

	log, fs := logrus.New(), test.NewFakeFileSystem()
	dir, err := veleroarchive.NewExtractor(log, fs).UnzipAndExtractBackup(&out)
	g.Expect(err).NotTo(HaveOccurred())
	parsed, err := veleroarchive.NewParser(log, fs).Parse(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(parsed).To(HaveLen(3))
	g.Expect(parsed["pods"].ItemsByNamespace).To(Equal(map[string][]string{"a": {"p"}, "b": {"p"}}))
	g.Expect(parsed["persistentvolumes"].ItemsByNamespace).To(Equal(map[string][]string{"": {"v"}}))
	g.Expect(parsed["deployments.apps"].ItemsByNamespace).To(Equal(map[string][]string{"a": {"d"}}))

	groups, err := veleroarchive.NewParser(log, fs).ParseGroupVersions(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(groups["deployments.apps"].PreferredVersion.Version).To(Equal("v1"))
	g.Expect(groups["deployments.apps"].Versions).To(HaveLen(2))

	pod, err := veleroarchive.Unmarshal(fs, veleroarchive.GetItemFilePath(dir, "pods", "a", "p"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pod).To(Equal(object("v1", "Pod", "a", "p")))
}
