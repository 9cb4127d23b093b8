// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	goodMain = "package main\n\nfunc main() { println(\"linted\") }\n"
	badMain  = "package main\n\nfunc main() { undefinedHere() }\n"
)

// checkout writes a checkout in small, in which the linter's module is the tool module itself, and so
// needs nothing from the network.
func checkout(t *testing.T, mainGo string) Options {
	t.Helper()
	root := t.TempDir()
	write := func(path, content string) {
		path = filepath.Join(root, path)
		NewWithT(t).Expect(errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))).To(Succeed())
	}
	write("go.mod", "module "+modulePath+"\n")
	write("hack/tools/lint/go.mod", "module github.com/golangci/golangci-lint/v2\n\ngo 1.26.0\n")
	write("hack/tools/lint/go.sum", "")
	write("hack/tools/lint/cmd/golangci-lint/main.go", mainGo)
	return Options{Root: root, CacheDir: filepath.Join(t.TempDir(), "cache"), Progress: &syncBuffer{}}
}

// syncBuffer is a buffer for concurrent writers.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func progress(opts Options) string { return opts.Progress.(*syncBuffer).String() }

func TestEnsureBuildsOnce(t *testing.T) {
	g := NewWithT(t)
	opts := checkout(t, goodMain)
	paths, err := Ensure(t.Context(), opts, Lint)
	g.Expect(err).NotTo(HaveOccurred())
	output, err := exec.Command(paths[Lint]).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(output)).To(Equal("linted\n"))
	g.Expect(progress(opts)).To(And(HavePrefix("building golangci-lint"), ContainSubstring("done after")))
	g.Expect(paths.Dir(Lint)).To(Equal(filepath.Dir(paths[Lint])))
	g.Expect(paths.Dir(Etcd)).To(BeEmpty())

	said := progress(opts)
	again, err := Ensure(t.Context(), opts, Lint)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(Equal(paths))
	g.Expect(progress(opts)).To(Equal(said), "nothing is said about what is there")
	g.Expect(filepath.Glob(filepath.Join(opts.CacheDir, "tmp", "*"))).To(BeEmpty(), "no work folder is left")
}

func TestEnsureConcurrently(t *testing.T) {
	g := NewWithT(t)
	opts := checkout(t, goodMain)
	var group errgroup.Group
	for range 4 {
		group.Go(func() error {
			_, err := Ensure(t.Context(), opts, Lint)
			return err
		})
	}
	g.Expect(group.Wait()).To(Succeed())
	g.Expect(strings.Count(progress(opts), "done after")).To(Equal(1))
}

func TestEnsureShowsTheCompilersWords(t *testing.T) {
	g := NewWithT(t)
	opts := checkout(t, badMain)
	_, err := Ensure(t.Context(), opts, Lint)
	g.Expect(err).To(MatchError(And(
		HavePrefix("building golangci-lint: go build"), ContainSubstring("undefined: undefinedHere"))))
	g.Expect(progress(opts)).To(ContainSubstring("failed after"))
	g.Expect(filepath.Glob(filepath.Join(opts.CacheDir, "tools", "*", "*"))).To(BeEmpty())
}

func TestEnsureObeysItsContext(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Ensure(ctx, checkout(t, goodMain), Lint)
	g.Expect(err).To(MatchError(context.Canceled))
}

func TestCacheKeyFollowsThePins(t *testing.T) {
	g := NewWithT(t)
	opts := checkout(t, goodMain)
	dir := sources[Lint].moduleDir(opts.Root)
	first, err := cacheKey(t.Context(), dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cacheKey(t.Context(), dir)).To(Equal(first))

	g.Expect(os.WriteFile(filepath.Join(dir, "go.sum"), []byte("example.org/m v1.0.0 h1:=\n"), 0o644)).To(Succeed())
	changed, err := cacheKey(t.Context(), dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(changed).NotTo(Equal(first))

	t.Setenv("GOARCH", "arm64")
	g.Expect(cacheKey(t.Context(), dir)).NotTo(Equal(changed))
}

func TestLockFile(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path, func() { t.Error("a free lock is not busy") })
	g.Expect(err).NotTo(HaveOccurred())

	ctx, cancel := context.WithCancel(t.Context())
	_, err = lockFile(ctx, path, cancel)
	g.Expect(err).To(MatchError(context.Canceled))

	_, err = lockFile(t.Context(), path, unlock)
	g.Expect(err).NotTo(HaveOccurred(), "it is had when the holder lets go")
}

func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var out syncBuffer
		stop := report(&out, "building etcd v3 (soon)")
		<-time.After(31 * time.Second)
		stop(nil)
		g.Expect(out.String()).To(Equal(
			"building etcd v3 (soon)\n" +
				"building etcd v3 (soon) ... elapsed 15s\n" +
				"building etcd v3 (soon) ... elapsed 30s\n" +
				"building etcd v3 (soon): done after 31s\n"))
	})
}

func TestReportOnATerminal(t *testing.T) {
	g := NewWithT(t)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	g.Expect(err).NotTo(HaveOccurred())
	defer null.Close()
	g.Expect(isTerminal(null)).To(BeTrue(), "a character device")
	g.Expect(isTerminal(&syncBuffer{})).To(BeFalse())
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	g.Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	g.Expect(isTerminal(file)).To(BeFalse())
}

func TestFindRoot(t *testing.T) {
	g := NewWithT(t)
	opts := checkout(t, goodMain)
	for _, at := range []string{".", "hack", "hack/tools/lint/cmd"} {
		g.Expect(FindRoot(filepath.Join(opts.Root, at))).To(Equal(opts.Root), at)
	}
	_, err := FindRoot("/")
	g.Expect(err).To(MatchError(ContainSubstring("not inside a checkout of " + modulePath)))
}

func TestCacheDir(t *testing.T) {
	g := NewWithT(t)
	t.Setenv(CacheEnv, "/somewhere/else")
	g.Expect(CacheDir()).To(Equal("/somewhere/else"))
	t.Setenv(CacheEnv, "")
	t.Setenv("XDG_CACHE_HOME", "/home/me/cache")
	g.Expect(CacheDir()).To(Equal("/home/me/cache/clipper"))
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	_, err := CacheDir()
	g.Expect(err).To(MatchError(ContainSubstring("set " + CacheEnv)))
}

func TestParse(t *testing.T) {
	g := NewWithT(t)
	for _, program := range Programs() {
		g.Expect(Parse(string(program))).To(Equal(program))
	}
	_, err := Parse("kubelet")
	g.Expect(err).To(MatchError(And(ContainSubstring(`"kubelet"`), ContainSubstring("csi-snapshotter, etcd"))))
}

// The pins must exist, and each program must be a tool of its module.
func TestSourcesArePinned(t *testing.T) {
	g := NewWithT(t)
	root, err := FindRoot(".")
	g.Expect(err).NotTo(HaveOccurred())
	for _, program := range Programs() {
		content, err := os.ReadFile(filepath.Join(sources[program].moduleDir(root), "go.mod"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(content)).To(ContainSubstring(sources[program].pkg), string(program))
		g.Expect(string(content)).To(MatchRegexp(`(?m)^\s+%s v`, regexp.QuoteMeta(sources[program].module)))
	}
}

func TestCopyYAML(t *testing.T) {
	g := NewWithT(t)
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "crds")
	g.Expect(copyYAML(from, to)).To(MatchError(ContainSubstring("no YAML file")))
	g.Expect(os.WriteFile(filepath.Join(from, "a.yaml"), []byte("a: 1\n"), 0o444)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(from, "README.md"), nil, 0o444)).To(Succeed())
	g.Expect(copyYAML(from, to)).To(Succeed())
	g.Expect(os.ReadFile(filepath.Join(to, "a.yaml"))).To(BeEquivalentTo("a: 1\n"))
	_, err := os.Stat(filepath.Join(to, "README.md"))
	g.Expect(err).To(MatchError(fs.ErrNotExist))
}

func TestTail(t *testing.T) {
	g := NewWithT(t)
	g.Expect(tail("a\nb\n", 2)).To(Equal("a\nb"))
	g.Expect(tail("a\nb\nc\n", 2)).To(Equal("(1 lines left out)\nb\nc"))
}
