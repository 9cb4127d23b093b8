// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server runs a Velero server, ours or any other velero binary, as a process against the lab's
// cluster and object store.
//
// [Start] creates the backup storage location, starts the process and returns when the server has validated that location
// itself: the phase that an earlier server left there doesn't count. A server and the plugins that it
// started form one process group and end together. A stopped or killed server is started again by another Start with the
// same Options; logs and state folders are shared, each process has a log of its own.
//
// Read options.go for what can be set, server.go for the rest, location.go for readiness.
package server
