// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package velero is the only place that reaches values of Velero whose types can't be named outside its module.
//
// Velero keeps them in internal packages but hands them out, and takes them, in its public ones. Type inference is enough to
// make one and to pass it on; their exported fields and methods can be used. There is no reflection, no unsafe and no
// linkname here: what Velero changes breaks the build.
//
// # Map
//
//   - Policies (policies.go) are the resource policies of a backup: parsed, merged with the global ones, validated. What is
//     in them is given in types of our own; what Velero's own functions need goes through its methods.
//   - EndOfVolumes (volumeinfo.go) tells a backup's volume information what became of volumes after the walk.
//   - NativeSnapshot (snapshots.go) is a snapshot of a VolumeSnapshotter plugin, as Velero's records have it.
package velero
