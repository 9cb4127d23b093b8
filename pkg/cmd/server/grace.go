// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
)

const (
	// ShutdownGraceFlag says how long the process may take to end after it was told to.
	ShutdownGraceFlag = "shutdown-grace"
	// defaultShutdownGrace is less than the 30 seconds after which Kubernetes kills a pod.
	defaultShutdownGrace = 25 * time.Second
	// shortestGrace leaves time for something.
	shortestGrace = 2 * time.Second
	// reservedPart of the grace is for what follows the last thaw: removing snapshots, and writing how the backup ended.
	reservedPart = 5
)

var errGraceOver = errors.New("the server must end now: its time for that, --" + ShutdownGraceFlag + ", is over")

func checkGrace(grace time.Duration) error {
	if grace < shortestGrace {
		return fmt.Errorf("flag --%s: %s is too short; give %s or more, and less than the terminationGracePeriodSeconds of the server's pod",
			ShutdownGraceFlag, grace, shortestGrace)
	}
	return nil
}

// bounded sees to it that a process that was told to stop ends.
type bounded struct {
	grace time.Duration
	log   logrus.FieldLogger
	// exit ends the process.
	exit func(code int)
}

// watch waits until stopping ends, and then for as long as the process may take. Shortly before its time is over it calls cut, so that
// nothing goes on in pods; when it is over it ends the process: what isn't done is done by the next start. It returns when done is
// closed.
func (b bounded) watch(stopping context.Context, done <-chan struct{}, cut context.CancelCauseFunc) {
	select {
	case <-stopping.Done():
	case <-done:
		return
	}
	b.log.Infof("The server is stopping, within %s: nothing new is frozen, what is frozen is thawed, and the snapshots of running backups are removed", b.grace)
	reserve := b.grace / reservedPart
	if b.after(b.grace-reserve, done) {
		return
	}
	cut(errGraceOver)
	if b.after(reserve, done) {
		return
	}
	b.log.Errorf("Not everything came to its end within %s; the next start goes on from here", b.grace)
	b.exit(1)
}

// after returns true when done was closed before the time has passed.
func (b bounded) after(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-done:
		return true
	}
}
