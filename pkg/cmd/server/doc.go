// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server runs Velero's server with the parallel engine.
//
// The process has two halves. The first is Velero's own server, with the five controllers switched off that have to do
// with the taking of a backup (its own flag --disable-controllers does that). The second is a controller manager of ours
// that runs these five: our backup reconciler and finalizer, and Velero's queue, operations and deletion controllers. They
// share one backup tracker. With --csi-snapshot-parallelism=0, and in restore-only mode, there is only the first
// half, with all its controllers.
//
// # Map
//
//   - Extend (command.go) changes Velero's server command: one more flag, and another Run.
//   - halves.go starts the halves in order and ends them together.
//   - second.go builds the second half; controllers.go its controllers, errorrules.go the judge of snapshot errors.
//   - preflight.go has the checks of "velero preflight" written to the log, once.
//   - metrics.go shows both halves' metrics on Velero's /metrics endpoint, each series once.
//   - settings.go keeps a copy of what the user set, which Velero's command doesn't hand out.
//   - credentials.go reads the credentials of storage and snapshot locations.
package server
