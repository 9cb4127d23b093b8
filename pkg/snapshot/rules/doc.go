// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules says what an error of a snapshot means: fail now, wait, or wait and slow down.
//
// external-snapshotter retries for ever, and the gRPC code alone doesn't tell what can heal: EBS has rate limits that come as
// Internal, and quotas that come as ResourceExhausted. So the words decide, with the driver's name beside them. The first rule that
// matches wins, in this order:
//
//  1. the platform's own rules, CEL expressions in a ConfigMap;
//  2. what single drivers are known to say; a terminal verdict of these doesn't hold when the text also speaks of a rate limit or
//     a lost connection;
//  3. words that mean the same with any driver, and external-snapshotter's own errors;
//  4. what the CSI specification says about the code.
//
// What no rule knows is retryable: the deadline decides. A built-in rule is terminal only where the facts are certain; where a
// message can mean both, it waits.
//
// # Map
//
//   - Set (set.go) is an unchanging list of rules, a snapshot.Judge. BuiltIn has only the built-in rules; Parse (parse.go, manifest.go)
//     puts the platform's before them, or says what is wrong with them and where.
//   - Live (live.go) is the snapshot.Judge that the server uses: it follows the ConfigMap and holds the set that is in force.
//   - Rule (rule.go) is what people see of a rule. pattern.go makes a matcher of a built-in one, cel.go a program of a user's.
//   - builtin.go orders the built-in rules; builtin_clouds.go, builtin_storage.go and builtin_general.go are the table.
//   - text.go prepares an error for all of them at once: its code, the driver's unquoted words, valid UTF-8, bounded size.
//
// # Costs
//
// A judgement must not keep the snapshot loop waiting: 200 user rules and the built-in ones take less than 50 microseconds for an
// ordinary error (BenchmarkJudge200Rules). Of a text longer than 16 KiB the first and the last 8 KiB are looked at. The cost
// of each user rule is bounded: by a proof when it is loaded, or, where there is none, by counting while it runs.
package rules
