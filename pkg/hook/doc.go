// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hook finds out which backup hooks a pod has, and runs them: pre hooks freeze the application, post hooks thaw
// it. It knows nothing of snapshots, of item blocks or of the order in which a backup walks its items.
//
// # Map
//
//   - Hook (hook.go) is one command to run in one phase, and Source says where it was found.
//   - annotations.go reads the hook that a pod carries in its annotations.
//   - Set (set.go) is the resolved form of a backup's spec.hooks; Set.Hooks and Set.HasHooks answer for a pod.
//   - Runner (runner.go) runs the hooks of one backup's pods: Freeze, then Thaw.
//   - run.go runs a single hook: what is checked before, what becomes of its error or panic.
//   - Command and Executor (command.go) are what a hook comes to and what runs it; package podexec does, through the API server.
//   - Recorder (runner.go) keeps which pods are frozen beyond the life of the process; package freezerecord does, in ConfigMaps.
//   - ledger.go counts hooks for status.hookStatus and keeps the freeze windows.
//
// # Promises
//
// A pod of which any pre hook has started is thawed by Thaw on every path: also when a later pre hook failed, when a
// hook panicked, and when the backup's context has ended. Every freeze is thawed at most once, however often and from
// however many goroutines Thaw is called. A post hook that fails does not keep the next one from running. Freeze and
// Thaw of one pod exclude each other; different pods don't wait for each other.
//
// A running hook is never abandoned: if Freeze returned while the freeze command still ran, the thaw could overtake it
// and the application would stay frozen. Every hook is bounded by its timeout instead.
//
// The backup has listed its pods some time before it freezes them. A pod that was replaced by another of its name since gets no hook: its
// record would be that of a pod that is gone, and nobody would thaw the new one.
//
// With a Recorder, no command that may freeze a pod is sent before it is recorded how to thaw it. A pod without post hooks can't be
// thawed by anybody, and one without pre hooks isn't frozen; neither is recorded.
package hook
