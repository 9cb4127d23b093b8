// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller runs backups: it reconciles Backup objects that are ready to start, from validation over the engine
// to the files in object storage.
//
// BackupReconciler.Reconcile (backup.go) is the flow. prepare.go fills in defaults, policies.go reads resource policies,
// validate.go refuses what can't be run, execute.go runs the engine, persist.go uploads what came of it, finish.go
// writes the end to the Backup, operations.go looks after what goes on after the walk. FinalizerReconciler (finalizer.go) gives those their end that have nothing more to wait for. The rest
// belongs to Velero's own controllers: the queue makes a Backup ready to start, the operations controller waits, the deletion controller
// removes it.
//
// Numbers in comments are points of the list of behaviours of Velero's own backup controller that this one keeps.
package controller
