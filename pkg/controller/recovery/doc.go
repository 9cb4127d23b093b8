// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recovery puts right what a server left behind that died while backups were in progress: it thaws pods, removes snapshots and
// gives the backups their end.
//
// # Map
//
//   - Recovery.AtStart (recovery.go) is run before anything else of the server is started; Recovery.Run looks again from time to time.
//   - find.go finds the cases: a Backup that is in progress, a freeze record, or both.
//   - case.go takes one case through its steps; thaw.go thaws its pods, in parallel.
//   - later.go lets a thaw wait while a later backup has the same pod frozen.
//   - mark.go gives the Backup its end: Failed with a reason, or, if asked for, back to the queue for a second try.
//   - reason.go puts what was done into words.
//
// # Rules
//
// A case is touched only when the server that it belongs to is dead; package instance knows that. The steps have an order: pods are
// thawed, then the snapshots are removed, then the Backup is marked, and only then the record is deleted. Each step is noted or can be
// seen, so that a recovery that is itself killed is taken up by the next one, and does nothing twice but what it could not note.
//
// What can't be done, such as thawing a pod whose node is away, doesn't keep the server from starting: it stays in the record, is
// told by an event and in the log, and is tried again by Run. What does keep it from starting is a backup that another living server
// has in progress: the start of Velero's own server would mark it Failed.
package recovery
