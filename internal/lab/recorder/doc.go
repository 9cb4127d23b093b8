// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recorder is a Velero plugin that writes down how it is called, and does what a behaviour file says: it is what
// the parity suite compares the plugin calls of two engines with.
//
// Velero starts it like any other plugin binary (cmd/velero-recorder), so that everything goes through Velero's own plugin
// framework and its gRPC. It registers
//
//   - a BackupItemAction of version 1 ([ActionV1]) and two of version 2 ([ActionV2], [ActionV2Second]),
//   - an ItemBlockAction ([BlockAction]),
//   - a VolumeSnapshotter ([Snapshotter]) that keeps its snapshots in a file.
//
// The environment variable [DirVariable] names the folder that the plugin works in: behaviour.yaml is read at each call,
// so that it can be changed between two backups; each call appends one JSON line to calls.jsonl. A single write of a line is
// atomic, so several plugin processes may share a folder.
//
// behaviour.go says what the plugin can be told, record.go is the record and its reader, actions.go and snapshotter.go
// are the plugins.
package recorder
