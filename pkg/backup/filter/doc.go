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
//
// # Promises
//
// A Set doesn't change after Resolve: the same question gets the same answer for the whole backup. It is safe for
// concurrent use. Label selectors are not part of a Set: they apply when items are listed, and an item that a plugin
// brings in passes without them (146).
//
// # What is not here yet
//
// Resource policies come with a later issue. Their places are marked in the code: includeExcludePolicy (99) is combined
// with the lists at the end of resourceLists, and the name filters of the namespaced and cluster-scoped filter policies
// (101, 145, 148) are the last inclusion check in Set.Includes.
package filter
