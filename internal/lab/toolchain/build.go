// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// buildFlags are part of the cache's key: a change of them builds anew.
var buildFlags = []string{"-mod=readonly", "-trimpath", "-ldflags=-s -w"}

// tailLines is how much of the compiler's output an error carries.
const tailLines = 30

// build is the making of one program.
type build struct {
	program  Program
	source   source
	dir      string // of the tool module
	path     string // where the program is to be
	cache    string
	key      string
	progress io.Writer
}

func newBuild(ctx context.Context, opts Options, program Program) (*build, error) {
	src, ok := sources[program]
	if !ok {
		return nil, fmt.Errorf("unknown program %q", program)
	}
	dir := src.moduleDir(opts.Root)
	key, err := cacheKey(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("finding the cache key of %s: %w", program, err)
	}
	return &build{
		program: program, source: src, dir: dir, key: key, cache: opts.CacheDir,
		path:     filepath.Join(opts.CacheDir, "tools", key, string(program)),
		progress: opts.Progress,
	}, nil
}

// ensure builds the program unless it is there.
func (b *build) ensure(ctx context.Context) error {
	if isProgram(b.path) {
		return nil
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if isProgram(b.path) { // whoever held the lock has built it
		return nil
	}
	return b.run(ctx)
}

// lock keeps a second process from building the same program.
func (b *build) lock(ctx context.Context) (func(), error) {
	dir := filepath.Join(b.cache, "locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return lockFile(ctx, filepath.Join(dir, b.key+"-"+string(b.program)), func() {
		fmt.Fprintf(b.progress, "waiting for another process that builds %s\n", b.program)
	})
}

// run compiles into a folder of its own and moves the result into place, so
// that what is in place is whole.
func (b *build) run(ctx context.Context) error {
	tmp := filepath.Join(b.cache, "tmp")
	if err := errors.Join(os.MkdirAll(tmp, 0o755), os.MkdirAll(filepath.Dir(b.path), 0o755)); err != nil {
		return err
	}
	work, err := os.MkdirTemp(tmp, string(b.program)+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)

	version, err := goOutput(ctx, b.dir, "list", "-m", "-f", "{{.Version}}", b.source.module)
	if err != nil {
		return err
	}
	built := filepath.Join(work, string(b.program))
	stop := report(b.progress, fmt.Sprintf("building %s %s (%s the first time)", b.program, version, b.source.minutes))
	err = b.compile(ctx, built)
	stop(err)
	if err != nil {
		return err
	}
	return os.Rename(built, b.path)
}

func (b *build) compile(ctx context.Context, out string) error {
	args := append([]string{"build"}, buildFlags...)
	args = append(args, "-o", out, b.source.pkg)
	var output bytes.Buffer
	cmd := goCommand(ctx, b.dir, args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), b.dir, err, tail(output.String(), tailLines))
	}
	return nil
}

// cacheKey covers everything that decides what the compiler makes.
func cacheKey(ctx context.Context, dir string) (string, error) {
	env, err := goOutput(ctx, dir, "env", "GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n", env, strings.Join(buildFlags, " "))
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(content))
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// goOutput runs the go command and returns its trimmed standard output.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := goCommand(ctx, dir, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), dir, err, tail(stderr.String(), tailLines))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// goCommand prepares the go command in a process group of its own, so that a
// cancelled context ends the compilers that it started too.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// The user's own GOFLAGS would give each way of calling the lab a set of programs of its own.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// tail returns the last lines of text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) > lines {
		all = append([]string{fmt.Sprintf("(%d lines left out)", len(all)-lines)}, all[len(all)-lines:]...)
	}
	return strings.Join(all, "\n")
}
