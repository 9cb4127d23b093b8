// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup is the engine: it takes one backup of a cluster, from the backup's spec to a tarball and everything
// that is told about it.
//
// # Map
//
// Start at Engine.Run (engine.go): it is the list of steps that a backup consists of. Each step is a method of run, in
// a file of its own:
//
//   - resolve.go: filters, hooks and plugins of this backup
//   - plan.go: items are collected and put into blocks; how each volume is protected is decided
//   - hooked.go: blocks with hooks, each frozen, snapshotted in one pass, thawed, and only then written
//   - frozen.go: what is taken of a block while it is frozen, and in which order
//   - batch.go: all other blocks, whose snapshots are taken as one batch and waited for once
//   - definitions.go: the CRDs of what was backed up
//   - podvolumes.go: which volumes of pods are backed up by their file systems, and the wait for that
//   - settle.go: the last looks at the snapshots, taken and removed ones
//   - result.go: what a finished run tells its caller
//
// What follows when everything that went on after the walk has ended is Finalizer.Look (secondlook.go) and the release of the
// snapshots (finalize.go).
//
// One item's way into the tarball is in walker.go; visits.go keeps which items were met, so that nothing is written twice
// and nobody goes on before an item that somebody else is at. actions.go calls plugins, when scope.go says so, for no longer
// than calls.go lets it, and again where deliver.go finds that nobody was there; csi.go has the actions on claims, snapshots
// and their classes that Velero runs as plugins and the engine runs itself, because they would wait; move.go is the claims'
// action when the snapshots' data is moved.
//
// # Rules
//
// Plugins are called by at most Deps.Workers goroutines at once. A block that waits for its snapshots in the batch holds
// no worker. Only archive.Writer writes to the tarball. The numbers in comments are points of the list of behaviours of
// Velero's own engine that this one keeps.
package backup
