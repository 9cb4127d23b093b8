// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CacheEnv is the environment variable that overrides the place of the cache.
const CacheEnv = "CLIPPER_CACHE"

// modulePath tells our own go.mod from those below hack/tools.
const modulePath = "github.com/velero-clipper/clipper"

// Options says where things are. The zero value is right for a program that
// runs anywhere inside a checkout.
type Options struct {
	// Root is the folder of the checkout. Default: found upwards from the
	// working directory by its go.mod.
	Root string
	// CacheDir holds what was built. Default: $CLIPPER_CACHE, else
	// clipper below the user's cache folder.
	CacheDir string
	// Progress gets lines for people. Nothing is written while everything is
	// in the cache. Default: discarded.
	Progress io.Writer
}

// Paths holds the absolute path of each program asked for.
type Paths map[Program]string

// Dir returns the folder that holds the program, or "" when it wasn't asked for. The folder
// of [AWSPlugin] holds nothing else and so serves as Velero's plugin folder.
func (p Paths) Dir(program Program) string {
	path, ok := p[program]
	if !ok {
		return ""
	}
	return filepath.Dir(path)
}

// Ensure returns the paths of the programs and builds, one after another, those
// that aren't in the cache. It may be called by any number of processes at
// once: the second waits for the first. A cancelled context ends the compiler
// and leaves nothing half-written in the cache.
func Ensure(ctx context.Context, opts Options, programs ...Program) (Paths, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	paths := make(Paths, len(programs))
	for _, program := range programs {
		b, err := newBuild(ctx, opts, program)
		if err != nil {
			return nil, err
		}
		if err := b.ensure(ctx); err != nil {
			return nil, fmt.Errorf("building %s: %w", program, err)
		}
		paths[program] = b.path
	}
	return paths, nil
}

// CacheDir returns the default place of the cache.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for the cache, set %s: %w", CacheEnv, err)
	}
	return filepath.Join(dir, "clipper"), nil
}

// FindRoot returns the folder of the checkout that dir lies in.
func FindRoot(dir string) (string, error) {
	start, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := start; ; at = filepath.Dir(at) {
		found, err := isRoot(at)
		if err != nil {
			return "", err
		}
		if found {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not inside a checkout of %s", start, modulePath)
		}
	}
}

// isRoot says whether dir holds our go.mod.
func isRoot(dir string) (bool, error) {
	file, err := os.Open(filepath.Join(dir, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "module "); ok {
			return strings.TrimSpace(name) == modulePath, nil
		}
	}
	return false, lines.Err()
}

func (o Options) withDefaults() (Options, error) {
	var err error
	if o.Root == "" {
		if o.Root, err = FindRoot("."); err != nil {
			return o, err
		}
	}
	if o.CacheDir == "" {
		if o.CacheDir, err = CacheDir(); err != nil {
			return o, err
		}
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return o, nil
}
