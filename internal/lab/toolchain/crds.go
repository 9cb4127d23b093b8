// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// snapshotClient is the module that holds the CRDs of the snapshot API.
const snapshotClient = "github.com/kubernetes-csi/external-snapshotter/client/v8"

// SnapshotCRDs returns a folder with the CRDs of the snapshot API, as YAML files. They
// come from the client module that the snapshot-controller was built with and so always fit it,
// and are kept in the cache: like [Ensure] this may need the network the first time.
func SnapshotCRDs(ctx context.Context, opts Options) (string, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return "", err
	}
	b, err := newBuild(ctx, opts, SnapshotController)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(b.path), "snapshot-crds")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := b.copyCRDs(ctx, dir); err != nil {
		return "", fmt.Errorf("fetching the snapshot CRDs: %w", err)
	}
	return dir, nil
}

func (b *build) copyCRDs(ctx context.Context, dir string) error {
	// Download is needed when the programs came from somebody else's cache.
	if _, err := goOutput(ctx, b.dir, "mod", "download", snapshotClient); err != nil {
		return err
	}
	module, err := goOutput(ctx, b.dir, "list", "-m", "-f", "{{.Dir}}", snapshotClient)
	if err != nil {
		return err
	}
	tmp := filepath.Join(b.cache, "tmp")
	if err := errors.Join(os.MkdirAll(tmp, 0o755), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil {
		return err
	}
	work, err := os.MkdirTemp(tmp, "snapshot-crds-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := copyYAML(filepath.Join(module, "config", "crd"), filepath.Join(work, "crds")); err != nil {
		return err
	}
	err = os.Rename(filepath.Join(work, "crds"), dir)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster, with the same content
	}
	return err
}

// copyYAML copies the YAML files of a folder. Module caches are read-only, so
// the files are written anew rather than with their mode.
func copyYAML(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no YAML file in %s", from)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
