// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sampleEvery is how often the memory of a measured process is read. The kernel keeps
// the peak of one process, but not that of a group, and forgets both when the
// process is killed, before anyone can ask.
const sampleEvery = time.Second

// Memory is resident memory in bytes. A zero means that it was never read.
type Memory struct {
	// Process is the peak of the process itself, as the kernel kept it (VmHWM).
	Process uint64 `json:"process"`
	// Group is the largest sum over the processes of the group that a sample has found.
	Group uint64 `json:"group"`
}

type memory struct {
	mu    sync.Mutex
	group bool
	max   Memory
}

// start begins sampling, if asked for; the returned function ends it.
func (m *memory) start(pid int, measure bool) func() {
	if !measure {
		return func() {}
	}
	m.mu.Lock()
	m.group = true
	m.mu.Unlock()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				m.sample(pid)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// sample reads what the kernel says now. A process that is gone adds nothing.
func (m *memory) sample(pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.max.Process = max(m.max.Process, statusBytes(pid, "VmHWM"))
	if !m.group {
		return
	}
	var sum uint64
	for _, member := range groupMembers(pid) {
		sum += statusBytes(member, "VmRSS")
	}
	m.max.Group = max(m.max.Group, sum)
}

func (m *memory) peak() Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.max
}

// statusBytes reads one size from /proc/<pid>/status; 0 when it isn't there.
func statusBytes(pid int, field string) uint64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return parseStatusBytes(content, field)
}

func parseStatusBytes(content []byte, field string) uint64 {
	for line := range bytes.Lines(content) {
		value, ok := bytes.CutPrefix(line, []byte(field+":"))
		if !ok {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(string(value)), " kB"), 10, 64)
		if err != nil {
			return 0
		}
		return kib * 1024
	}
	return 0
}

// groupMembers lists the pids of a process group.
func groupMembers(group int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	var members []int
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		if pid, pgrp, ok := parseStat(string(content)); ok && pgrp == group {
			members = append(members, pid)
		}
	}
	return members
}

// parseStat returns pid and process group. The program's name, in brackets, may hold
// spaces and brackets itself, so the fields are counted from the last bracket:
// state, parent, group.
func parseStat(content string) (pid, pgrp int, ok bool) {
	open, end := strings.IndexByte(content, '('), strings.LastIndexByte(content, ')')
	if open < 0 || end < open {
		return 0, 0, false
	}
	fields := strings.Fields(content[end+1:])
	if len(fields) < 3 {
		return 0, 0, false
	}
	pid, err1 := strconv.Atoi(strings.TrimSpace(content[:open]))
	pgrp, err2 := strconv.Atoi(fields[2])
	return pid, pgrp, err1 == nil && err2 == nil
}
