// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package parity makes the same backup with stock Velero's engine and with ours, in one cluster, and compares everything
// that can be read afterwards: the Backup, the tarball's paths, order and contents, all other uploaded files, the
// objects in the cluster, hook calls, plugin calls with their arguments, and metrics.
//
// A [Case] is data: what is in the cluster, how server, storage and plugins behave, and the backup's spec. [Load] reads
// cases from YAML, [Generate] makes one from a seed. A [Lab] is one cluster with two servers of the same binary, each in a namespace
// of its own and with its own part of the object store; [Lab.Run] runs a case with one after the other and
// gives two [Observation] values, in which names and times that differ by nature are already alike. [Compare] lists what differs then, and [Allowed]
// takes out what is meant to: allowed.yaml in test/parity is the one list of deliberate differences.
//
// Map: case.go and item.go are the format, world.go makes its objects, lab.go, servers.go and standin.go are what runs,
// run.go is the list of steps of one backup, observe*.go reads, normalise.go, compare.go and allowed.go judge, generate.go invents.
package parity
