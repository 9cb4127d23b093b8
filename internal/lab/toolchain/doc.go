// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package toolchain builds the programs of the lab's control plane, and the
// linter, from the Go modules that pin them under hack/tools.
//
// It promises that a program is built once for each combination of pinned
// modules, Go version, platform and build flags; that two callers never build
// the same program at once; and that a file found in the cache is complete.
// The cache lives outside the checkout (see [CacheDir]) and may be removed at
// any time.
//
// Building needs the network for the module downloads, so [Ensure] comes before
// anything that takes the network away (process.Isolate).
//
// Start with ensure.go; programs.go lists what can be built.
package toolchain
