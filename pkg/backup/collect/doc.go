// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package collect finds the items of a backup and puts them in order.
//
// It owns the rules of BEHAVIOURS.md groups G and H: which resource types are listed and in which order, one list
// request per type (or per type and namespace), label selectors, ordered resources, resource types that show the same
// objects twice, and which namespace objects belong into the backup.
//
// # Map
//
//   - Collect (collect.go) is the whole: a walk over what discovery knows.
//   - Item (item.go) is one object with what is needed to store it, decoded when its turn comes.
//   - list.go makes the list requests: selectors of the spec and of filter policies, paging, duplicates.
//   - namespaces.go decides which namespace objects stay.
//   - order.go holds the orders: of resource types in the core group, of items by spec.orderedResources.
//   - Fetcher (fetch.go) gets single objects that a plugin names and that were not collected.
//
// # Promises
//
// The order of the result is the same for the same cluster and spec. A resource type that can't be listed costs one
// error line per failed request and nothing else. Objects are held in memory, never in files (106 is changed: what isn't on
// disk can't be left there), but as JSON, which takes a fraction of the room that maps need; only one page of a list at a time
// is held as maps. Shared discovery data isn't changed.
package collect
