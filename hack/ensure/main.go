// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ensure builds programs that hack/tools pins, unless the cache has them, and prints
// their paths, one a line:
//
//	$(go run ./hack/ensure golangci-lint) run ./...
//
// "control-plane" stands for all that the lab needs. Progress goes to standard error.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("usage: ensure control-plane | PROGRAM...; programs: %v", toolchain.Programs())
	}
	opts := toolchain.Options{Progress: os.Stderr}
	var programs []toolchain.Program
	for _, name := range names {
		if name == "control-plane" {
			programs = append(programs, toolchain.ControlPlane()...)
			if _, err := toolchain.SnapshotCRDs(ctx, opts); err != nil {
				return err
			}
			continue
		}
		program, err := toolchain.Parse(name)
		if err != nil {
			return err
		}
		programs = append(programs, program)
	}
	paths, err := toolchain.Ensure(ctx, opts, programs...)
	if err != nil {
		return err
	}
	for _, program := range programs {
		fmt.Println(paths[program])
	}
	return nil
}
