// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package test holds the suites that run on the lab: a real API server, the real snapshot controllers and a real object
// store on this machine. Each spec is a scenario of test/scenarios, run by bin/velero-lab as a user would.
//
//	go test ./test/... -args -suite=short   what continuous integration runs
//	go test ./test/... -args -suite=full    everything
//	go test ./test -args -suite=parity      the same backups with Velero's engine and ours; see test/parity/README.md
//	go test ./test -args -suite=chaos       things are killed while backups run; see test/README.md
//	go test ./test -args -suite=leaks       what a server holds after fifty backups
package test
