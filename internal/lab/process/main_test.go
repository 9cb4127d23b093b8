// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// roleEnv makes a copy of the test program play a lab, see runRole.
const roleEnv = "CLIPPER_TEST_ROLE"

func TestMain(m *testing.M) {
	if code, ok := InitStage(); ok {
		os.Exit(code)
	}
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(runRole(role))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/velero-clipper/clipper/internal/lab/process.serveSpawns"))
}

// runRole is a lab in small: it isolates itself if the role says so, starts one child, and waits for a signal.
// Its arguments are the script of the child.
func runRole(role string) int {
	if role != "plain" {
		isolated, err := Isolate(IsolateOptions{Network: role == "network"})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return exitCannotRun
		}
		if isolated.Done {
			return isolated.ExitCode
		}
		fmt.Println("level", isolated.Level)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	child, err := Start(Spec{Path: "/bin/sh", Args: []string{"-c", os.Args[1]}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitCannotRun
	}
	status, err := child.Wait(ctx)
	if err != nil {
		child.Kill()
		fmt.Println("terminated")
		return 7
	}
	return status.Code
}
