// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package filter answers one question for everything that might go into a backup: is it in?
//
// It owns the rules of BEHAVIOURS.md groups I and J and the resolution of the backup's lists against the live cluster
// (points 91 to 98). The lists themselves are Velero's own public types, so that a pattern means here what it means in
// stock Velero.
//
// # Map
//
//   - Resolve (resolve.go) turns a backup's spec into a Set: it lists the namespaces once and expands wildcards.
//   - Set.Includes (set.go) is the decision about one object; it returns a reason and a sentence.
//   - Set.IncludesResource, Set.ExcludesResource and Set.IncludesNamespace are the parts of it that package collect and
//     the engine's CRD step need on their own.
//   - policies.go has the filters of resource policies. Set.Selection is their part in listing; their names are checked in
//     Set.Includes.
//
// # Promises
//
// A Set doesn't change after Resolve: the same question gets the same answer for the whole backup. It is safe for
// concurrent use. Label selectors are not looked at by Includes: they apply when items are listed, and an item that a plugin
// brings in passes without them (146).
package filter
