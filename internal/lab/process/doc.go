// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process starts the lab's programs and makes sure that none of them
// outlives the lab.
//
// It promises:
//
//   - Each child leads a process group of its own. When the child ends, by itself
//     or by [Process.Kill], what is left of its group (the plugins of a
//     Velero server) is killed before the child is reaped, so that a reused pid
//     can't be hit.
//   - A child dies with the lab: by [Isolate] where namespaces are permitted,
//     which covers grandchildren and kill -9 too; by the kernel's parent death signal
//     otherwise, which covers the children themselves.
//   - Only processes that this package started are ever signalled.
//
// A main function that wants isolation calls [InitStage] first and [Isolate]
// later:
//
//	func main() {
//		if code, ok := process.InitStage(); ok {
//			os.Exit(code)
//		}
//		// parse flags, build what is missing (needs the network), then:
//		isolated, err := process.Isolate(process.IsolateOptions{Network: true})
//		if isolated.Done {
//			os.Exit(isolated.ExitCode)
//		}
//		// Here the lab runs: inside, or outside when isolated.Level is LevelNone.
//	}
//
// Start with process.go for children and isolate.go for namespaces. Linux only.
package process
