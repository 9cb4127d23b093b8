// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec describes a child.
type Spec struct {
	// Name is used in errors. Default: the base name of Path.
	Name string
	// Path of the executable; absolute, since Velero starts its plugins by it.
	Path string
	// Args without the program's name.
	Args []string
	// Env is the whole environment. Nil means that of the lab.
	Env []string
	// Dir is the working directory. Default: that of the lab.
	Dir string
	// LogPath gets standard output and standard error, appended. Default: they
	// are discarded.
	LogPath string
	// ReadyLine, if set, is a text in the output after which [Process.Ready] is closed.
	ReadyLine string
	// MeasureMemory samples the memory of the group once a second, for
	// [Process.PeakMemory].
	MeasureMemory bool
}

// errorLines is how much of a log an error carries.
const errorLines = 20

// ExitStatus says how a process ended.
type ExitStatus struct {
	// Code is the exit code, or -1 when a signal ended the process.
	Code int
	// Signal that ended the process, or 0.
	Signal syscall.Signal
	// Started and Ended are wall-clock times.
	Started, Ended time.Time
	// Requested is true when the lab killed or terminated the process.
	Requested bool
}

// String is "exit code 1" or "signal killed".
func (s ExitStatus) String() string {
	if s.Signal != 0 {
		return "signal " + s.Signal.String()
	}
	return fmt.Sprintf("exit code %d", s.Code)
}

// Process is a running or ended child. Its methods may be called concurrently.
type Process struct {
	spec    Spec
	cmd     *exec.Cmd
	pid     int
	started time.Time
	memory  memory
	output  *output

	done chan struct{} // closed after status is set

	mu        sync.Mutex
	requested bool
	reaped    bool // no signal may be sent any more
	status    ExitStatus
}

// Start starts a child. The caller ends it with Kill or Terminate, or waits for it.
func Start(spec Spec) (*Process, error) {
	if spec.Name == "" {
		spec.Name = filepath.Base(spec.Path)
	}
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir = spec.Env, spec.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := newOutput(spec.LogPath, spec.ReadyLine)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	defer out.childStarted()
	if out.child != nil {
		cmd.Stdout, cmd.Stderr = out.child, out.child
	}
	started := time.Now()
	if err := spawn(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	p := &Process{spec: spec, cmd: cmd, pid: cmd.Process.Pid, started: started, output: out, done: make(chan struct{})}
	go p.watch()
	return p, nil
}

// PID returns the pid, which is also the id of the process group.
func (p *Process) PID() int { return p.pid }

// Name returns the name given in the Spec.
func (p *Process) Name() string { return p.spec.Name }

// LogPath returns the log file's path.
func (p *Process) LogPath() string { return p.spec.LogPath }

// LogTail returns the last lines of the log, for error messages.
func (p *Process) LogTail(lines int) string { return logTail(p.spec.LogPath, lines) }

// Ready is closed when Spec.ReadyLine has been seen. Without a ReadyLine it is
// closed from the start. See also [Process.WaitReady].
func (p *Process) Ready() <-chan struct{} { return p.output.ready }

// WaitReady waits for Ready. When the process ends first, the error carries the
// end of its log.
func (p *Process) WaitReady(ctx context.Context) error {
	select {
	case <-p.output.ready:
		return nil
	case <-p.done:
		return p.EndedError()
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to be ready: %w; the end of its log:\n%s",
			p.spec.Name, context.Cause(ctx), p.LogTail(errorLines))
	}
}

// EndedError describes the end of a process that wasn't meant to end, with the end
// of its log. It is for use after Done.
func (p *Process) EndedError() error {
	return fmt.Errorf("%s ended with %s; the end of its log %s:\n%s",
		p.spec.Name, p.status, p.spec.LogPath, p.LogTail(errorLines))
}

// Done is closed when the process has ended and been reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Status returns how the process ended. The second value is false while it runs.
func (p *Process) Status() (ExitStatus, bool) {
	select {
	case <-p.done:
		return p.status, true
	default:
		return ExitStatus{}, false
	}
}

// Wait returns how the process ended, or the context's error.
func (p *Process) Wait(ctx context.Context) (ExitStatus, error) {
	select {
	case <-p.done:
		return p.status, nil
	case <-ctx.Done():
		return ExitStatus{}, fmt.Errorf("waiting for %s to end: %w", p.spec.Name, context.Cause(ctx))
	}
}

// Kill ends the whole process group by SIGKILL and returns when the process has
// been reaped. It may be called more than once.
func (p *Process) Kill() ExitStatus {
	p.memory.sample(p.pid)
	p.signal(-p.pid, syscall.SIGKILL)
	<-p.done
	return p.status
}

// Terminate sends SIGTERM to the process alone, as a kubelet does, and kills
// the group when the context ends first.
func (p *Process) Terminate(ctx context.Context) ExitStatus {
	p.memory.sample(p.pid)
	p.signal(p.pid, syscall.SIGTERM)
	select {
	case <-p.done:
		return p.status
	case <-ctx.Done():
		return p.Kill()
	}
}

// PeakMemory returns the highest resident size seen, in bytes. While the process
// runs, the numbers are brought up to date first. The process alone is exact
// up to the last second before an unexpected end; the group is a maximum over samples
// and needs Spec.MeasureMemory.
func (p *Process) PeakMemory() Memory {
	p.memory.sample(p.pid)
	return p.memory.peak()
}

// signal sends to the process or, with a negative pid, to its group, unless it
// has been reaped: its number may belong to someone else by then.
func (p *Process) signal(pid int, signal syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	p.requested = true
	// The one possible error is that the process is gone, which is what was wanted.
	_ = syscall.Kill(pid, signal)
}

// watch waits for the child's end, ends the rest of its group and reaps it, in
// this order: as long as the child isn't reaped its group's number is taken.
func (p *Process) watch() {
	stop := p.memory.start(p.pid, p.spec.MeasureMemory)
	waitExited(p.pid)
	stop()

	p.mu.Lock()
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	requested := p.requested
	p.reaped = true
	p.mu.Unlock()

	_ = p.cmd.Wait() // the state says more than the error
	p.output.wait()
	p.status = exitStatus(p.cmd.ProcessState)
	p.status.Started, p.status.Ended, p.status.Requested = p.started, time.Now(), requested
	close(p.done)
}

// waitExited returns when the child has ended, and leaves it unreaped.
func waitExited(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

func exitStatus(state *os.ProcessState) ExitStatus {
	status := ExitStatus{Code: state.ExitCode()}
	if wait, ok := state.Sys().(syscall.WaitStatus); ok && wait.Signaled() {
		status.Signal = wait.Signal()
	}
	return status
}
