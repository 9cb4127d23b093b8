// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runner runs the experiments of the lab: it puts cluster, storage, kubelet stand-in, object store and Velero
// server together as a scenario says, makes the backups and whatever is to happen to them, watches, and hands back a
// result.
//
// It promises that nothing is running any more when Run or Up returns, that an error means that the experiment could not be made (an
// expectation that fails is no error, it is in the result), and that nothing is found out by asking again and again:
// Kubernetes objects are watched, the drivers and the kubelet stand-in tell of their calls.
//
// Map:
//
//   - run.go is the list of steps of an experiment, up.go the lab that stays.
//   - lab.go starts and stops the parts, workload.go fills the cluster, exec.go says what commands in containers do,
//     server.go starts and stops Velero and notes its exits.
//   - floor.go measures the snapshots without Velero; backups.go, events.go and steps.go do what the scenario asks for;
//     settle.go waits for rest. objects.go creates and patches objects of the scenario's own, command.go runs Velero's
//     command line, second.go adds the second cluster.
//   - board.go owns everything that was seen (recording.go); watch.go writes to it.
//   - analyse.go and analyse_pods.go turn the recording into a result; collect.go adds what the object store, the audit
//     log and the logs hold.
package runner
