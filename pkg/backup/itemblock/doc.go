// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package itemblock decides which items of a backup belong together.
//
// It owns the rules of BEHAVIOURS.md group K that concern the making of blocks (149 to 158): a block starts with a
// collected item, and everything that ItemBlockActions name as related to it joins, and what is related to that, and so
// on. A pod, its PVCs, their PVs and the other pods on the same PVCs are the usual case. What is done with a block is not
// known here.
//
// # Map
//
//   - Build (build.go) makes all blocks of a backup.
//   - Block (block.go) is one of them, with the ways to look into it.
//   - Action is the narrow view of an ItemBlockAction; Actions converts Velero's resolved ones.
//
// # Promises
//
// An object is in at most one block, and all its versions are in the same one (149, 150). Objects that the filter
// leaves out are in none. The same items and the same answers of the actions give the same blocks in the same order:
// blocks are ordered by their first item, and in a block an item comes before what it brought in. Actions are called
// one at a time.
package itemblock
