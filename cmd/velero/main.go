// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Command velero is Velero's command line and server, with a backup engine that takes CSI snapshots in parallel.
package main

import (
	"errors"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/velero-clipper/clipper/pkg/cmd"
)

// status is the exit status for an error: 1, unless the command has a meaning for others.
func status(err error) int {
	var with interface{ ExitStatus() int }
	if errors.As(err, &with) {
		return with.ExitStatus()
	}
	return 1
}

func main() {
	err := cmd.NewCommand(filepath.Base(os.Args[0])).Execute()
	klog.Flush()
	if err != nil {
		os.Exit(status(err))
	}
}
