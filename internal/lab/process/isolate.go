// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// stageEnv tells a copy of the lab which part it plays: stageInit, or
// stageLab followed by the level.
const (
	stageEnv  = "CLIPPER_LAB_STAGE"
	stageInit = "init"
	stageLab  = "lab:"
)

// exitCannotRun is the lab's exit status for "could not run".
const exitCannotRun = 2

// Level says how far the lab is separated from the rest of the machine.
type Level string

// The levels of isolation.
const (
	// LevelNone: process groups and the parent death signal only; other programs share the ports.
	LevelNone Level = "none"
	// LevelPID: the kernel ends every process of the lab when the lab ends.
	LevelPID Level = "pid"
	// LevelNetwork: as LevelPID, with a network of its own that has loopback only.
	LevelNetwork Level = "pid+network"
)

// IsolateOptions says what is wanted.
type IsolateOptions struct {
	// Network asks for a network namespace too. Whatever the lab
	// serves can't be reached from outside then.
	Network bool
	// Warn gets one line when namespaces aren't permitted. Default: standard error.
	Warn io.Writer
}

// Isolated is the outcome of Isolate.
type Isolated struct {
	// Done is true in the outer process, after the isolated copy of the lab has
	// ended: the program has nothing left to do but to exit with ExitCode.
	Done     bool
	ExitCode int
	// Level under which the caller runs on, if not Done.
	Level Level
}

// Isolate runs the whole program again, with the same arguments, inside new PID,
// mount and (optionally) network namespaces and returns when that copy has ended.
// In the copy, Isolate returns at once with Done false. Where namespaces
// aren't permitted it returns at once too, with LevelNone.
//
// Root gets the namespaces directly, anyone else through a user namespace where the machine
// permits that. The copy inherits standard input, output and error, lives in
// a background process group of the terminal, and gets SIGINT, SIGTERM, SIGHUP,
// SIGQUIT, SIGUSR1 and SIGUSR2 passed on. If the outer process dies, however it
// does, the kernel ends the copy and everything that it started.
func Isolate(opts IsolateOptions) (Isolated, error) {
	stage := os.Getenv(stageEnv)
	if level, ok := strings.CutPrefix(stage, stageLab); ok {
		return Isolated{Level: Level(level)}, os.Unsetenv(stageEnv)
	}
	if stage != "" {
		return Isolated{}, errors.New("process.InitStage must be called at the start of main")
	}
	if opts.Warn == nil {
		opts.Warn = os.Stderr
	}
	code, err := runOuter(opts)
	if err != nil {
		fmt.Fprintf(opts.Warn, "running without namespaces of its own, on free loopback ports: %v\n", err)
		return Isolated{Level: LevelNone}, nil
	}
	return Isolated{Done: true, ExitCode: code}, nil
}

// runOuter starts the init stage and stands for it towards the caller. An error
// means that nothing of the lab has run.
func runOuter(opts IsolateOptions) (int, error) {
	level := LevelPID
	if opts.Network {
		level = LevelNetwork
	}
	ready, readyInit, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer ready.Close()

	cmd := selfCommand(stageInit)
	cmd.Args = append(cmd.Args, string(level))
	cmd.Args = append(cmd.Args, os.Args[1:]...)
	cmd.ExtraFiles = []*os.File{readyInit}
	cmd.SysProcAttr = namespaces(level)

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)

	err = spawn(cmd)
	_ = readyInit.Close() // the child has its own
	if err != nil {
		return 0, fmt.Errorf("new namespaces are not permitted: %w", err)
	}
	if reason := readReady(ready); reason != "" {
		_ = cmd.Wait() // it has told why
		return 0, errors.New(reason)
	}
	return waitForwarding(cmd, signals), nil
}

// readReady returns "" when the init stage says that it is set up, and what went wrong
// otherwise.
func readReady(ready io.Reader) string {
	content, err := io.ReadAll(ready)
	switch {
	case err != nil:
		return err.Error()
	case string(content) == readyMessage:
		return ""
	case len(content) == 0:
		return "the first process of the new namespace ended early"
	default:
		return string(content)
	}
}

// namespaces is what the init stage is started with.
func namespaces(level Level) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		// A terminal's Ctrl-C would reach every process of the group; in a
		// group of its own the copy gets exactly what the outer process passes on.
		Setpgid:   true,
		Pdeathsig: syscall.SIGKILL,
	}
	if level == LevelNetwork {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// selfCommand prepares a copy of this program that plays the given part.
func selfCommand(stage string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{os.Args[0]}
	cmd.Env = append(os.Environ(), stageEnv+"="+stage)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// forwarded are the signals that a user or a supervisor sends.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// waitForwarding waits for the command, passes signals on to it meanwhile, and returns
// the exit code as a shell would: 128 plus the number of a fatal signal.
func waitForwarding(cmd *exec.Cmd, signals <-chan os.Signal) int {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the state says more than the error
	}()
	for {
		select {
		case <-ended:
			return shellCode(cmd.ProcessState.Sys())
		case received := <-signals:
			_ = cmd.Process.Signal(received) // it may just have ended
		}
	}
}

func shellCode(state any) int {
	status, ok := state.(syscall.WaitStatus)
	switch {
	case !ok:
		return exitCannotRun
	case status.Signaled():
		return 128 + int(status.Signal())
	default:
		return status.ExitStatus()
	}
}
