// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package driver is the lab's CSI driver: a storage that exists in memory only and can be told, volume by volume and
// while it runs, to be slow, full, busy, broken or silent.
//
// It serves the Identity service and the snapshot part of the Controller service on a unix socket, for the real
// csi-snapshotter sidecar. Volume handles are "namespace/pvc".
//
// # Map
//
//   - Driver (driver.go) is what the lab uses: New, Serve, SetBehaviours, and what was seen.
//   - Behaviour (behaviour.go) says how the storage treats a volume; Validate checks a list of them.
//   - service.go answers the RPCs: validation, idempotency, the order in which a behaviour's parts apply.
//   - storage.go is the storage: cuts under way, their queue, and the snapshots that exist.
//   - recorder.go keeps every call, the JSON lines log, and tells waiters of changes.
//
// # How the storage behaves
//
// A cut belongs to the storage, not to the call that asked for it: when a caller gives up, the cut goes on, and the next
// call of the same name joins it or finds the snapshot. That is how a real array behaves, and how snapshots come to
// exist that nobody was told of. A call that hangs or fails asks for no cut, unless lateCut is set.
//
// CreateSnapshot is idempotent by name, as the CSI specification demands: the same name and source give the same
// snapshot, also to calls at the same time; the same name with another source gives ALREADY_EXISTS.
package driver
