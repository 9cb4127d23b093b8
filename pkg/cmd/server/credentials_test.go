// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func secret(namespace, name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

func selecting(name, key string) *corev1.SecretKeySelector {
	return &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}
}

func secretClient(t testing.TB, secrets ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(corev1.AddToScheme(scheme)).To(Succeed())
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(secrets...).Build()
}

func newTestFiles(t testing.TB, secrets ...client.Object) *credentialFiles {
	t.Helper()
	files, err := newCredentialFiles(secretClient(t, secrets...), "velero", t.TempDir())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return files
}

func TestCredentialFiles(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(root, "of-the-other-half"), nil, 0o600)).To(Succeed())
	c := secretClient(t, secret("velero", "cloud", map[string]string{"aws": "key=1", "gcp": "{}"}), secret("other", "cloud", map[string]string{"aws": "wrong"}))
	files, err := newCredentialFiles(c, "velero", root)
	g.Expect(err).NotTo(HaveOccurred())

	aws, err := files.Path(selecting("cloud", "aws"))
	g.Expect(err).NotTo(HaveOccurred())
	gcp, err := files.Path(selecting("cloud", "gcp"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.ReadFile(aws)).To(BeEquivalentTo("key=1"))
	g.Expect(os.ReadFile(gcp)).To(BeEquivalentTo("{}"))
	g.Expect(filepath.Dir(aws)).To(Equal(filepath.Join(root, "backup-controllers", "velero")), "a folder of its own")
	for path, mode := range map[string]os.FileMode{aws: 0o600, gcp: 0o600, filepath.Dir(aws): 0o700} {
		info, err := os.Stat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(mode), path)
	}
}

func TestCredentialFileIsReplacedAsAWhole(t *testing.T) {
	g := NewWithT(t)
	rotating := secret("velero", "cloud", map[string]string{"aws": "old and long"})
	files := newTestFiles(t, rotating)
	path, err := files.Path(selecting("cloud", "aws"))
	g.Expect(err).NotTo(HaveOccurred())
	reading, err := os.Open(path)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(reading.Close()).To(Succeed()) }()

	g.Expect(files.client.Update(t.Context(), secret("velero", "cloud", map[string]string{"aws": "new"}))).To(Succeed())
	g.Expect(files.Path(selecting("cloud", "aws"))).To(Equal(path), "the path stays")
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("new"))
	g.Expect(io.ReadAll(reading)).To(BeEquivalentTo("old and long"), "who is reading sees the old content")
	g.Expect(os.ReadDir(filepath.Dir(path))).To(HaveLen(1), "nothing else is left")
}

func TestCredentialFilesAreNotMixedUp(t *testing.T) {
	g := NewWithT(t)
	files := newTestFiles(t, secret("velero", "cloud-east", map[string]string{"key": "1"}), secret("velero", "cloud", map[string]string{"east-key": "2"}))
	first, err := files.Path(selecting("cloud-east", "key"))
	g.Expect(err).NotTo(HaveOccurred())
	second, err := files.Path(selecting("cloud", "east-key"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first).NotTo(Equal(second))
	g.Expect(os.ReadFile(first)).To(BeEquivalentTo("1"))
	g.Expect(os.ReadFile(second)).To(BeEquivalentTo("2"))
}

func TestCredentialsThatCantBeHandedOut(t *testing.T) {
	known := secret("velero", "cloud", map[string]string{"aws": "key=1"})
	for name, selector := range map[string]*corev1.SecretKeySelector{"no such Secret": selecting("gone", "aws"), "no such key": selecting("cloud", "gcp")} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			files := newTestFiles(t, known)
			want := ContainSubstring("reading key " + selector.Key + " of Secret velero/" + selector.Name)
			_, err := files.Path(selector)
			g.Expect(err).To(MatchError(want))
			g.Expect(os.ReadDir(files.dir)).To(BeEmpty())
			_, err = credentialSecrets{client: files.client, namespace: "velero"}.Get(selector)
			g.Expect(err).To(MatchError(want))
		})
	}
	t.Run("the file can't be replaced", func(t *testing.T) {
		g := NewWithT(t)
		files := newTestFiles(t, known)
		path, err := files.Path(selecting("cloud", "aws"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.Remove(path)).To(Succeed())
		g.Expect(os.MkdirAll(filepath.Join(path, "in the way"), 0o700)).To(Succeed())
		_, err = files.Path(selecting("cloud", "aws"))
		g.Expect(err).To(MatchError(ContainSubstring("writing the credentials of Secret velero/cloud")))
		g.Expect(os.ReadDir(files.dir)).To(HaveLen(1), "no half-written file stays")
	})
	t.Run("the folder can't be made", func(t *testing.T) {
		g := NewWithT(t)
		inTheWay := filepath.Join(t.TempDir(), "file")
		g.Expect(os.WriteFile(inTheWay, nil, 0o600)).To(Succeed())
		_, err := newCredentialFiles(secretClient(t), "velero", inTheWay)
		g.Expect(err).To(MatchError(ContainSubstring("creating the credentials folder")))
	})
}

func TestCredentialSecrets(t *testing.T) {
	secrets := credentialSecrets{client: secretClient(t, secret("velero", "ca", map[string]string{"bundle": "PEM"})), namespace: "velero"}
	NewWithT(t).Expect(secrets.Get(selecting("ca", "bundle"))).To(Equal("PEM"))
}
