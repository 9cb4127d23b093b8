// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cmd is the velero command line: Velero's own, with the server of package server in place of Velero's and
// the commands of packages preflight and snapshotrules added.
package cmd
