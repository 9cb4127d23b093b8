// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Command velero-recorder is a Velero plugin that records how it is called, for the parity suite. Velero starts it; see
// internal/lab/recorder.
package main

import (
	"fmt"
	"os"

	"github.com/velero-clipper/clipper/internal/lab/recorder"
)

func main() {
	dir := os.Getenv(recorder.DirVariable)
	if dir == "" {
		fmt.Fprintln(os.Stderr, "velero-recorder is started by a Velero server whose environment names a folder in "+recorder.DirVariable)
		os.Exit(2)
	}
	recorder.Serve(dir)
}
