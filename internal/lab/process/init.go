// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// readyMessage is what the init stage writes to readyFD when the namespaces are set up.
// Anything else is the reason why it couldn't.
const (
	readyMessage = "ready"
	readyFD      = 3
)

// InitStage must be called first in main. In the first process of a new
// namespace it runs the lab, reaps what the lab leaves behind, and returns true with
// the code to exit with; everywhere else it returns false.
//
// The lab isn't the first process itself, because such a process has to reap
// orphans, which os/exec doesn't expect, and ignores signals that it doesn't handle.
func InitStage() (int, bool) {
	if os.Getenv(stageEnv) != stageInit {
		return 0, false
	}
	ready := os.NewFile(readyFD, "ready")
	code, err := runInit(ready)
	if err != nil {
		// Nobody reads a second message, so a late error isn't lost on standard error.
		_, werr := fmt.Fprint(ready, err)
		if werr != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return exitCannotRun, true
	}
	return code, true
}

func runInit(ready *os.File) (int, error) {
	if len(os.Args) < 2 {
		return 0, errors.New("the init stage was started without its level")
	}
	level := Level(os.Args[1])
	syscall.CloseOnExec(readyFD)
	if err := setUp(level); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)

	cmd := selfCommand(stageLab + string(level))
	cmd.Args = append(cmd.Args, os.Args[2:]...)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting the lab in its namespaces: %w", err)
	}
	if _, err := ready.WriteString(readyMessage); err != nil {
		return 0, fmt.Errorf("telling the outer process: %w", err)
	}
	if err := ready.Close(); err != nil {
		return 0, fmt.Errorf("telling the outer process: %w", err)
	}
	return reap(cmd, signals), nil
}

// setUp makes the new namespaces usable: /proc shows the new pids, loopback is up.
func setUp(level Level) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if level != LevelNetwork {
		return nil
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bringing loopback up: %w", err)
	}
	return nil
}

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

// reap waits for every process of the namespace that has lost its parent and
// returns the lab's exit code as soon as the lab has ended. The kernel kills
// the rest when this process exits.
func reap(lab *exec.Cmd, signals <-chan os.Signal) int {
	ended := make(chan int)
	go func() {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, 0, nil)
			switch {
			case errors.Is(err, syscall.EINTR):
			case err != nil: // no child is left, so the lab has been reaped and reported
				return
			case pid == lab.Process.Pid:
				ended <- shellCode(status)
				return
			}
		}
	}()
	for {
		select {
		case code := <-ended:
			return code
		case received := <-signals:
			_ = syscall.Kill(lab.Process.Pid, received.(syscall.Signal)) // it may just have ended
		}
	}
}
