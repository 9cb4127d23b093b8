// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package audit counts API requests from the audit log of a kube-apiserver, one JSON object to a line.
//
// A request may be logged in several stages; it is counted once, by its audit ID. A watch is counted when it starts.
package audit
