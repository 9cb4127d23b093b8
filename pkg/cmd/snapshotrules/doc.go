// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snapshotrules is the command "velero snapshot-rules": which rules judge the errors of CSI snapshots, and what they say
// about one.
//
// command.go has the commands, rules.go finds the rules they are about, print.go has the forms of output.
package snapshotrules
