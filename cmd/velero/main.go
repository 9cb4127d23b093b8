// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Command velero is Velero's command line and server, with a backup engine that takes CSI snapshots in parallel.
package main

import (
	"os"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/velero-clipper/clipper/pkg/cmd"
)

func main() {
	err := cmd.NewCommand(filepath.Base(os.Args[0])).Execute()
	klog.Flush()
	if err != nil {
		os.Exit(1)
	}
}
