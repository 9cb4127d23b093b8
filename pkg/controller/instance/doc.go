// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package instance tells the server processes of a namespace apart, and says which of them are alive.
//
// Each process has an ID of its server's name, which is that of its pod, and of something that is new with each start. It holds a
// Lease of that name, which it renews every few seconds (Lease, lease.go). Whoever finds something that belongs to an ID asks
// Watch.Look (watch.go) whether that process is alive:
//
//   - The Lease has another holder: a process of the same name was started later. In Kubernetes no two pods of a namespace have the
//     same name, so the one before is dead. That is known at once; it is what happens when a container is started again.
//   - The Lease has no holder, or there is none: the process ended in order.
//   - Otherwise it is dead when its Lease wasn't renewed for Duration while somebody watched, with looks that are seconds apart
//     and all of which were answered: an API server that is away keeps the holder from renewing too. Clocks are not compared: those of
//     two nodes may differ. Whoever finds that empties the Lease before anything else, if it hasn't been renewed in that moment.
//
// A process that was taken for dead and lives, such as one that was cut off from the cluster, finds its Lease empty, or another's, when it
// renews it (Lease.Lost). An API server that was away for long does no harm as long as nobody has taken the Lease.
//
// Two servers must not have the same name. Where that can't be helped, such as two processes on one machine, the names are given.
package instance
