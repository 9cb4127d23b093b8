// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chaos breaks things while backups run, and checks that nothing stays frozen and nothing is orphaned.
//
// A [Lab] is one cluster with hooked pods and plain volumes in two namespaces. A [Point] says when something is done, and what: the
// server is killed, the API refuses, the object store is away. [Lab.Run] takes two backups at the same time, does the harm, repairs
// it, waits for rest, checks what must always hold, takes the next backup of the same namespaces, and removes all backups, so
// that the next point begins with an empty cluster. [Points] is the list; the random ones among them come from a seed.
//
// # What must hold after a point
//
//   - No pod is frozen. Each freeze was followed by a thaw; by exactly one where the harm leaves no doubt whether a thaw has run.
//   - There is no VolumeSnapshot, no VolumeSnapshotContent and no freeze record.
//   - Each physical snapshot is named by a Backup in the object store that hasn't failed.
//   - Each Backup has an end. One that reads Completed has the same in the object store.
//   - The next backup is Completed.
//   - The server has ended only when it was told to.
//
// # Map
//
// points.go is the table, harm.go what is done, conditions.go when. run.go is the list of steps of a point, check.go judges. lab.go starts
// the parts, servers.go the server, workload.go fills the cluster. state.go keeps what was seen, watch.go and storelog.go write to
// it. leaks.go compares the server's goroutines, files and heap; report.go is the table of results.
package chaos
