// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight looks at a cluster before a backup does, and says what would keep CSI snapshots from being taken, or make
// them slow: each finding with a severity, a reason, a sentence and the line to change.
//
// # Map
//
//   - Read (read.go, workloads.go) reads the cluster into a State (state.go), in pages, and never gives up because a part of it
//     can't be read: what couldn't be read, and why, is part of the State.
//   - Examine (finding.go) gives the State to the checks and sorts what they find. A check is a pure function of the State:
//     crds.go, classes.go, controllers.go, rights.go and nodeagent.go.
//   - Permissions (permissions.go) is what the server needs to be allowed to. config/rbac grants it, and a test holds the two
//     together; Self and ServiceAccount (access.go) ask the cluster whether somebody has it.
//   - Report.Log (finding.go) is how the server shows a report; package cmd/preflight prints it for people.
//
// Nothing here changes anything in the cluster: access reviews are created, but not stored.
package preflight
