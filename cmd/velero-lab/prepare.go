// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/velero-clipper/clipper/internal/lab/process"
	"github.com/velero-clipper/clipper/internal/lab/runner"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

// labFlags are the flags that up, run and demo share.
type labFlags struct {
	velero, engine, dir string
	keep                bool
	// recorder is set by check: the recording plugin beside velero-lab.
	recorder string
}

func (f *labFlags) register(cmd *cobra.Command, engine bool) {
	cmd.Flags().StringVar(&f.velero, "velero", "", "velero binary to run, of any version (default: the one beside velero-lab)")
	cmd.Flags().BoolVar(&f.keep, "keep", false, "keep logs and state, and say where they are")
	cmd.Flags().StringVar(&f.dir, "dir", "", "empty folder for logs and state (default: a temporary one)")
	if engine {
		cmd.Flags().StringVar(&f.engine, "engine", "", "engine to run instead of the scenario's: parallel or stock")
	}
}

// check finds mistakes before anything is built or started.
func (f *labFlags) check() error {
	switch f.engine {
	case "", scenario.EngineParallel, scenario.EngineStock:
	default:
		return fmt.Errorf("--engine=%s is not possible: use %s or %s", f.engine, scenario.EngineParallel, scenario.EngineStock)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("looking for the velero binary: %w", err)
	}
	f.recorder = filepath.Join(filepath.Dir(self), "velero-recorder")
	if f.velero == "" {
		f.velero = filepath.Join(filepath.Dir(self), "velero")
	}
	info, err := os.Stat(f.velero)
	switch {
	case err != nil:
		return fmt.Errorf("no velero binary: %w; build it with \"make build\", or name one with --velero", err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is no program that can be run; name a velero binary with --velero", f.velero)
	}
	return nil
}

// prepare builds what is missing, which needs the network, and goes into namespaces of its own then. It returns an
// exitError in the outer process, when the copy inside has ended.
func (f *labFlags) prepare(ctx context.Context, network bool) (runner.Options, error) {
	if err := f.check(); err != nil {
		return runner.Options{}, err
	}
	build := toolchain.Options{Progress: os.Stderr}
	programs, err := toolchain.Ensure(ctx, build, toolchain.ControlPlane()...)
	if err != nil {
		return runner.Options{}, err
	}
	crds, err := toolchain.SnapshotCRDs(ctx, build)
	if err != nil {
		return runner.Options{}, err
	}
	isolated, err := process.Isolate(process.IsolateOptions{Network: network})
	if err != nil {
		return runner.Options{}, err
	}
	if isolated.Done {
		return runner.Options{}, exitError(isolated.ExitCode)
	}
	return runner.Options{
		Engine: f.engine, Velero: f.velero, Recorder: f.recorder, Programs: programs, SnapshotCRDs: crds,
		Dir: f.dir, Keep: f.keep || f.dir != "", Progress: os.Stderr,
	}, nil
}
