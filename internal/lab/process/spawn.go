// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawner starts all children from one operating system thread that lives as
// long as the program: the kernel sends the parent death signal when the
// thread ends that started the child, and Go ends threads as it likes.
var spawner = struct {
	once     sync.Once
	requests chan spawnRequest
}{requests: make(chan spawnRequest)}

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func spawn(cmd *exec.Cmd) error {
	spawner.once.Do(func() { go serveSpawns() })
	request := spawnRequest{cmd: cmd, result: make(chan error, 1)}
	spawner.requests <- request
	return <-request.result
}

// serveSpawns is the one goroutine without an end: see spawner.
func serveSpawns() {
	runtime.LockOSThread()
	for request := range spawner.requests {
		request.result <- request.cmd.Start()
	}
}
