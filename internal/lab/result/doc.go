// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package result holds what one lab experiment found out: the Result value that "velero-lab run -o json" prints, the
// expectations that are held against it, and its text timeline.
//
// Result is plain data. The runner fills it in, this package never looks at a cluster. Its JSON names are also the
// names an expectation uses, and the expressions are type-checked against these very structs, so a misspelt field is
// found before anything is started.
//
// Every point in time is a number of seconds since the first backup was created (Result.StartedAt), measured with
// sub-second precision. Zero means that it never happened. Every duration is a number of seconds.
//
// Read result.go first, then expect.go, then timeline.go.
package result
