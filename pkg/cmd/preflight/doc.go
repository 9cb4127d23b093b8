// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight is the command "velero preflight": it runs the checks of package pkg/preflight and prints what they found.
//
// command.go is the command, sources.go says what the checks read from, print.go has the two forms of output.
package preflight
