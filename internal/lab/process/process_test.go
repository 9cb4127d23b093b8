// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// shell starts a script whose output goes to a log.
func shell(t *testing.T, script string, change ...func(*Spec)) *Process {
	t.Helper()
	g := NewWithT(t)
	spec := Spec{
		Name: "script", Path: "/bin/sh", Args: []string{"-c", script},
		LogPath: filepath.Join(t.TempDir(), "logs", "script.log"),
	}
	for _, c := range change {
		c(&spec)
	}
	p, err := Start(spec)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { p.Kill() })
	return p
}

// readyLine makes a script's "ready" line awaited.
func readyLine(s *Spec) { s.ReadyLine = "ready" }

// witness is a named pipe that reads as ended when the last process that holds it is gone. Nobody needs to
// look for processes again and again that way.
type witness struct{ path string }

func newWitness(t *testing.T) witness {
	t.Helper()
	path := filepath.Join(t.TempDir(), "witness")
	NewWithT(t).Expect(syscall.Mkfifo(path, 0o600)).To(Succeed())
	return witness{path: path}
}

// open returns when a process has opened the pipe for writing.
func (w witness) open(t *testing.T) *os.File {
	t.Helper()
	reader, err := os.Open(w.path)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = reader.Close() })
	return reader
}

func TestExitStatus(t *testing.T) {
	cases := map[string]struct {
		script string
		want   string
		code   int
	}{
		"success":     {script: "exit 0", want: "exit code 0"},
		"failure":     {script: "exit 3", want: "exit code 3", code: 3},
		"by a signal": {script: "kill -KILL $$", want: "signal killed", code: -1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := shell(t, tc.script)
			status, err := p.Wait(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status.String()).To(Equal(tc.want))
			g.Expect(status.Code).To(Equal(tc.code))
			g.Expect(status.Requested).To(BeFalse())
			g.Expect(status.Ended).NotTo(BeTemporally("<", status.Started))
		})
	}
}

func TestStatusWhileRunning(t *testing.T) {
	g := NewWithT(t)
	p := shell(t, "read x")
	p2 := shell(t, "sleep 600")
	<-p.Done() // its standard input is empty
	_, ended := p2.Status()
	g.Expect(ended).To(BeFalse())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	_, err := p2.Wait(ctx)
	g.Expect(err).To(MatchError(ContainSubstring("waiting for script to end: enough")))
}

func TestStartNamesWhatIsMissing(t *testing.T) {
	g := NewWithT(t)
	_, err := Start(Spec{Path: "/nonexistent/etcd"})
	g.Expect(err).To(MatchError(os.ErrNotExist))
	g.Expect(err).To(MatchError(ContainSubstring("starting etcd")))
}

func TestKillEndsTheGroup(t *testing.T) {
	g := NewWithT(t)
	w := newWitness(t)
	p := shell(t, "exec 9>"+w.path+"; sleep 600 & sleep 600 & wait")
	alive := w.open(t)

	status := p.Kill()
	g.Expect(status.Signal).To(Equal(syscall.SIGKILL))
	g.Expect(status.Requested).To(BeTrue())
	_, err := io.ReadAll(alive) // returns when all three are gone
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Kill()).To(Equal(status), "a second kill changes nothing")
}

func TestOrphansOfAnEndedChildAreKilled(t *testing.T) {
	g := NewWithT(t)
	w := newWitness(t)
	p := shell(t, "exec 9>"+w.path+"; sleep 600 & exit 0")
	alive := w.open(t)
	status, err := p.Wait(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Code).To(BeZero())
	_, err = io.ReadAll(alive)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestTerminate(t *testing.T) {
	t.Run("a child that obeys", func(t *testing.T) {
		g := NewWithT(t)
		p := shell(t, "trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done", readyLine)
		g.Expect(p.WaitReady(t.Context())).To(Succeed())
		status := p.Terminate(t.Context())
		g.Expect(status.Code).To(Equal(4))
		g.Expect(status.Requested).To(BeTrue())
	})
	t.Run("a child that doesn't", func(t *testing.T) {
		g := NewWithT(t)
		p := shell(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done", readyLine)
		g.Expect(p.WaitReady(t.Context())).To(Succeed())
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		g.Expect(p.Terminate(ctx).Signal).To(Equal(syscall.SIGKILL))
	})
}

func TestReadyLine(t *testing.T) {
	t.Run("seen", func(t *testing.T) {
		g := NewWithT(t)
		p := shell(t, "echo one; echo it is ready now >&2; echo two", readyLine)
		g.Expect(p.WaitReady(t.Context())).To(Succeed())
		<-p.Done()
		g.Expect(p.LogTail(3)).To(Equal("one\nit is ready now\ntwo"))
	})
	t.Run("the child ends first", func(t *testing.T) {
		g := NewWithT(t)
		p := shell(t, "echo first; echo port in use; exit 1", readyLine)
		g.Expect(p.WaitReady(t.Context())).To(MatchError(And(
			ContainSubstring("script ended with exit code 1"), ContainSubstring("first\nport in use"))))
	})
	t.Run("never", func(t *testing.T) {
		g := NewWithT(t)
		p := shell(t, "echo loading; sleep 600", readyLine)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("too slow"))
		defer cancel()
		g.Expect(p.WaitReady(ctx)).To(MatchError(ContainSubstring("waiting for script to be ready: too slow")))
	})
	t.Run("none", func(t *testing.T) {
		g := NewWithT(t)
		p := shell(t, "sleep 600")
		g.Expect(p.WaitReady(t.Context())).To(Succeed())
	})
}

func TestLogTail(t *testing.T) {
	g := NewWithT(t)
	p := shell(t, "i=0; while [ $i -lt 5 ]; do echo line $i; i=$((i+1)); done")
	<-p.Done()
	g.Expect(p.LogTail(2)).To(Equal("line 3\nline 4"))
	g.Expect(p.LogTail(9)).To(HavePrefix("line 0\n"))
	g.Expect(logTail("", 1)).To(Equal("(no log)"))
	g.Expect(logTail(filepath.Join(t.TempDir(), "none"), 1)).To(ContainSubstring("no such file"))
}

func TestPeakMemory(t *testing.T) {
	g := NewWithT(t)
	p := shell(t, "sleep 600 & echo ready; wait", readyLine, func(s *Spec) { s.MeasureMemory = true })
	g.Expect(p.WaitReady(t.Context())).To(Succeed())
	running := p.PeakMemory()
	g.Expect(running.Process).To(BeNumerically(">", 100<<10))
	g.Expect(running.Group).To(BeNumerically(">", 100<<10))
	p.Kill()
	g.Expect(p.PeakMemory().Process).To(BeNumerically(">=", running.Process), "the peak survives the process")
}

func TestParseStatusBytes(t *testing.T) {
	status := []byte("Name:\tvelero\nVmPeak:\t  900 kB\nVmHWM:\t   12345 kB\nVmRSS:\t 7 kB\n")
	g := NewWithT(t)
	g.Expect(parseStatusBytes(status, "VmHWM")).To(Equal(uint64(12345 * 1024)))
	g.Expect(parseStatusBytes(status, "VmSwap")).To(BeZero())
	g.Expect(parseStatusBytes([]byte("VmHWM: many kB\n"), "VmHWM")).To(BeZero())
}

func TestParseStat(t *testing.T) {
	cases := map[string]struct {
		stat      string
		pid, pgrp int
		ok        bool
	}{
		"plain":          {stat: "12 (etcd) S 1 34 34 0", pid: 12, pgrp: 34, ok: true},
		"odd name":       {stat: "12 (a) (b c) S 1 34 34 0", pid: 12, pgrp: 34, ok: true},
		"cut off":        {stat: "12 (etcd) S", ok: false},
		"without a name": {stat: "12 etcd", ok: false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			pid, pgrp, ok := parseStat(tc.stat)
			g.Expect(ok).To(Equal(tc.ok))
			g.Expect([]int{pid, pgrp}).To(Equal([]int{tc.pid, tc.pgrp}))
		})
	}
}

func TestFreePorts(t *testing.T) {
	g := NewWithT(t)
	ports, err := FreePorts(5)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ports).To(HaveLen(5))
	seen := map[int]bool{}
	for _, port := range ports {
		g.Expect(port).To(BeNumerically(">", 0))
		seen[port] = true
	}
	g.Expect(seen).To(HaveLen(5))
}
