// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objectstore is the lab's S3 server: gofakes3 with everything in memory,
// on a loopback port, for the real velero-plugin-for-aws to talk to.
//
// It counts requests by method and can be told to refuse writes or everything, so that
// a scenario can take the object store away in the middle of a backup. What is stored is
// read by [Store.Keys] and [Store.Get], past the switch and the counters.
package objectstore
