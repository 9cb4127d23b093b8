// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Command velero-lab runs a real Kubernetes control plane, storage and Velero server on this machine, without
// containers, to try, test and measure on.
//
//	velero-lab up                    a cluster that stays until Ctrl-C
//	velero-lab run SCENARIO.yaml     one experiment
//	velero-lab demo                  stock Velero and Clipper side by side
//	velero-lab tools                 build the programs that the others need
//
// The exit status is 0, 1 when an expectation of a scenario failed, or 2 when the command could not be carried out.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/velero-clipper/clipper/internal/lab/process"
)

// Exit statuses.
const (
	exitFailed    = 1
	exitCannotRun = 2
)

// errFailed says that an experiment was made and an expectation failed; what it was has been printed.
var errFailed = errors.New("an expectation failed")

// exitError ends the program with the status that a copy of it in namespaces of its own ended with.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	if code, ok := process.InitStage(); ok {
		os.Exit(code)
	}
	os.Exit(run())
}

func run() int {
	// controller-runtime complains on standard error unless it is told where to log.
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := rootCommand().ExecuteContext(ctx)
	var exit exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, errFailed):
		return exitFailed
	}
	fmt.Fprintln(os.Stderr, "velero-lab:", err)
	return exitCannotRun
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "velero-lab",
		Short:         "A real control plane on this machine to try, test and measure Velero on",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), runCommand(), demoCommand(), compareCommand(), toolsCommand())
	return root
}
