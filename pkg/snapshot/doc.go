// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snapshot takes CSI volume snapshots for many volumes at once.
//
// It owns the whole life of a VolumeSnapshot that a backup needs: queueing it, creating it, following it until its
// point in time is fixed (the cut) and until it is usable (ready), judging the errors that show up on the way, and
// removing it to the very end when it is not wanted. It knows nothing of backups, pods or hooks: callers hand in
// Requests and get futures.
//
// # Map
//
// Read taker.go first, then loop.go.
//
//   - Taker (taker.go) is what callers use: Take queues requests and returns one Snapshot, a future, for each
//     (snapshot.go; what goes in and comes out is in request.go).
//   - loop (loop.go, decide.go, breaker.go) is the one goroutine that owns a Taker's state. Everything reaches it as a function in its
//     mailbox or by its agenda of deadlines. entry.go, driver.go and messages.go are what it works with; create.go makes
//     one VolumeSnapshot.
//   - next (schedule.go) is the pure function that says which queued requests may start now. pace (pace.go) learns how much a
//     driver that throttles may be asked; limits.go is what the configuration lets it have. Reserve (reserve.go) makes room
//     for an application before it is frozen.
//   - Tracker (tracker.go, lookup.go) follows VolumeSnapshots and VolumeSnapshotContents through shared informers and
//     wakes those who wait; history.go is what it remembers of errors. source.go and poller.go are how it lists and watches, with and without permission to watch.
//   - groups (group.go, groupop.go, groupleave.go) takes the snapshots of several claims at one moment, as one VolumeGroupSnapshot, and takes the
//     group apart again.
//   - Judge (judge.go) is the one-method interface that gives a verdict on an error seen while a snapshot isn't ready; package
//     rules has the one that the server uses.
//   - Remover (remover.go, settle.go, follow.go) deletes snapshots and follows the deletion until the objects are gone; erase.go
//     deletes physical snapshots that have no objects any more.
//   - Sweeper (sweep.go, named.go, lone.go) finds what is left over of dead servers and failed backups, and finishes or names it.
//     leftover (leftover.go) is the pure function that says what may be destroyed.
//   - Parallelism (parallelism.go) is the value of the --csi-snapshot-parallelism flag; Metrics (metrics.go) show the
//     load.
//
// # Promises
//
// A snapshot is in flight from the moment its creation starts until it is cut or has failed. The number in flight never
// exceeds the limit, and a request of priority Frozen never waits behind one of priority Batch. Every future is
// decided: at the latest when its timeout has passed since its creation, or when its driver has made no progress at all
// for that long since it was asked for, or when the caller's context ends. N volumes that hang cost one timeout, not N.
package snapshot
