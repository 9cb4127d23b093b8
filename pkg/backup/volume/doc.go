// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volume decides how a volume is protected, and does what follows from the decision for the objects that
// describe it.
//
// A claim is protected by a CSI snapshot, whose data may be moved, or it is skipped and the reason is kept. A volume that no
// CSI driver provides may have a native snapshot. File-system backups are decided about where pods are backed up.
//
// # Map
//
//   - Planner (planner.go) turns a claim into a Plan: the method, and for a CSI snapshot the request for it. Plans are
//     made before anything is frozen, so that a wrong snapshot class is found while the application is still running.
//   - group.go is about claims that are snapshotted together, as a volume group.
//   - Native (native.go) takes native snapshots by VolumeSnapshotter plugins; zone.go finds the zone that these ask for.
//   - policy.go asks what the backup's spec and its volume policies want, and why no snapshot.
//   - Objects (objects.go) knows each volume, claim and snapshot class once per backup, whoever asks.
//   - Describe* (describe.go) put what a cut snapshot tells into the claim, the VolumeSnapshot and its content, the way
//     Velero's restore and deletion read it.
//   - Mover (mover.go) is about snapshots whose data is moved to the backup storage location: whether that is possible, the
//     DataUpload that asks for it, and what the claim tells of it.
//   - Ledger (ledger.go) collects what the backup's volume information file is made of.
//
// The package knows nothing of item blocks, hooks or the tarball.
package volume
