// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo is "velero-lab demo": one workload backed up four times, each time in a fresh cluster - by nothing but
// the snapshot controllers (the floor), by Velero's own engine as shipped, by the same engine tuned as far as it goes,
// and by Clipper's engine - and a table of what that took.
//
// All engines run from one binary. demo.yaml is the workload, variants.go what differs between the runs.
package demo
