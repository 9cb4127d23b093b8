// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podexec runs commands in containers of pods, through the API server. It implements hook.Executor.
//
// # Map
//
//   - Executor (executor.go) is the entry: Run, and the repetition of commands that insist on being run.
//   - attempt.go makes one attempt and says how it ended.
//   - progress.go watches how far an attempt came, which decides whether its command may have run.
//   - transport.go makes the connections; verdict.go reads the API server's refusals; output.go keeps a command's output.
//
// # Whether a command has run
//
// A command starts when the container runtime has all the streams that were asked for: its result, its output and its errors. So
// one whose connection, request or streams failed before has certainly not run: the error is a hook.NotRunError. When the last
// stream was asked for and the connection broke before it was confirmed, nobody knows. A command that insists, a thaw, is then
// tried again: running it twice is better than an application that stays frozen. Once the last stream is confirmed the command
// counts as run, whatever becomes of it. A connection that ends without a result is an error, never a success.
//
// # Which pod it runs in
//
// The API runs a command in the pod that has a name at that moment, and knows no condition on its UID. So each attempt of a command that
// insists looks at the pod first; for the others their caller does (hook.Pods). A pod that is replaced between the look and the request,
// which follow each other at once, isn't noticed.
//
// # Limits
//
// Each attempt has the command's timeout. The command itself goes on in its container when the timeout is over: the API has no
// way to end it. A command that insists is tried again with growing pauses for as long as its pod is there, at most for
// Options.InsistFor, and not past the end of Options.Limit. Run obeys its context, and leaves no goroutine behind but those of a
// connection that is being closed, which end by themselves.
//
// # Protocols
//
// SPDY comes first and WebSockets second, the other way round than in kubectl: client-go's WebSocket client starts to read before
// it has made its streams, and a result that arrives in that moment is lost; a freeze that failed would look like one that
// worked. WebSockets are used where something between us and the API server lets no SPDY through.
package podexec
