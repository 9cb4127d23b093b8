// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenario reads the experiments of the lab. A scenario is a YAML file: a cluster, its storage, what runs in
// it, a Velero server, the backups, what happens to them in the meantime, and what is expected of the result. The
// format is described for its users in test/scenarios/README.md.
//
// Load is the way in. It promises that the Scenario it returns can be run as it is: unknown keys, impossible values,
// references to things that are not declared and expectations that do not compile are refused with file, line and
// the way out, and every default is filled in (defaults.go is the one place for them).
//
// The package knows nothing of clusters or processes. Read types.go first (actions.go has what happens to the
// backups), then decode.go (YAML to structs), validate.go and expand.go (templates to single pods and claims).
package scenario
