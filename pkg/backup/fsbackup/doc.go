// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fsbackup has pod volumes backed up by their file systems: it makes PodVolumeBackups, which Velero's node agent
// works on, and knows when they have ended.
//
// # Map
//
//   - Service (service.go) is what all backups of a server share; Begin makes a Session.
//   - Session (session.go) makes the PodVolumeBackups of one backup through Velero's own backupper, waits for some or all
//     of them, and cancels what has no time left.
//   - follower (follower.go) is told by an informer what becomes of them. There is no polling here, and Velero's own wait,
//     which can't be ended and polls for hooks, isn't used.
package fsbackup
