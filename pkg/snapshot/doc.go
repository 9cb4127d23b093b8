// Package snapshot takes CSI volume snapshots for many volumes at once.
//
// It owns the whole life of a VolumeSnapshot that a backup needs: queueing it, creating it, following it until its
// point in time is fixed (the cut) and until it is usable (ready), judging the errors that show up on the way, and
// removing it to the very end when it is not wanted. It knows nothing of backups, pods or hooks: callers hand in
// Requests and get futures.
//
// # Map
//
//   - Taker (taker.go) is what callers use: Take queues requests and returns one Snapshot, a future, for each.
//   - Tracker (tracker.go) follows VolumeSnapshots and VolumeSnapshotContents through shared informers and resolves the
//     futures. It never polls and keeps no goroutine per snapshot.
//   - next (schedule.go) is the pure function that says which queued requests may start now.
//   - Judge (judge.go) is the one-method interface that gives a verdict on an error seen while a snapshot isn't cut.
//   - Remover (remover.go) deletes snapshots and follows the deletion until the objects are gone.
//   - Parallelism (parallelism.go) is the value of the --csi-snapshot-parallelism flag.
//
// # Promises
//
// A snapshot is in flight from the moment its creation starts until it is cut or has failed. The number in flight never
// exceeds the limit, and a request of priority Frozen never waits behind one of priority Batch. Every future is
// decided: at the latest when its timeout has passed since its creation, or when its driver has made no progress at all
// for that long, or when the caller's context ends. N volumes that hang cost one timeout, not N.
package snapshot
