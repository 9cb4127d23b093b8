// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freezerecord keeps in the cluster which pods are frozen, and how to thaw them, so that a server that starts after a crash
// can do it.
//
// # Map
//
//   - Store (store.go) is the records of one installation: Open begins that of a backup, List reads all.
//   - Record (record.go) is the record of a running backup. It implements hook.Recorder.
//   - Stored (stored.go) is a record as it was found; who recovers works through it.
//   - hands.go keeps a recovery and a running backup of this process from having the same pod in hand at the same time.
//   - entry.go is the form of an entry, for people too; parts.go divides a record into ConfigMaps; durable.go writes and repeats.
//
// # Form
//
// A record is one ConfigMap in Velero's namespace for each backup that freezes pods, or several when it is large. It has one key for
// each frozen pod, with the pod, the time, and the commands that thaw it, complete: neither the Backup nor the pod's annotations
// are needed. Labels and annotations name the backup and the server that runs it. It has an owner reference to its Backup, and a
// finalizer: a record whose Backup is deleted while a pod is frozen is needed more than ever.
//
// # Promises
//
// Record.Frozen returns no error only when the API server has confirmed the entry. Frozen and Thawed may be called from many
// goroutines; the writes of one backup come one after the other. An entry is removed when its pod's thaw has run; what has still
// to be run stays. The package knows nothing of snapshots, and thaws nothing by itself.
package freezerecord
