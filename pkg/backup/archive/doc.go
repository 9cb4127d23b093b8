// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package archive is the backup tarball: where each object's files are in it, and the one writer that fills it.
//
// It owns points 90 and 176 to 178 of BEHAVIOURS.md. Stock Velero reads these tarballs, so the layout is not ours to
// change; the paths come from Velero's own helpers.
//
// # Map
//
//   - ItemFiles (files.go) turns one object into its one or two files.
//   - Writer (writer.go) writes files into a gzipped tar stream.
//
// # Promises
//
// The first entry is the format version. The files of one Add call stand together, and what was added first stands
// first. A Writer is safe for concurrent use; an error in the stream is final and every later call reports it, so that
// a damaged tarball can't be taken for a whole one.
package archive
