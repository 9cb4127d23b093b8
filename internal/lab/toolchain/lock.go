// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockRetry is how often a busy lock is tried again. The kernel's waiting lock
// can't be given up when a context ends, so this is one of the few places that ask repeatedly.
const lockRetry = 200 * time.Millisecond

// lockFile takes an exclusive lock on the file and returns what releases it. It
// calls busy once if it has to wait. The kernel drops the lock of a process
// that dies, so a stale one can't exist.
func lockFile(ctx context.Context, path string, busy func()) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = tryLock(file)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		busy()
		err = waitLock(ctx, file)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

func waitLock(ctx context.Context, file *os.File) error {
	again := time.NewTicker(lockRetry)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
			if err := tryLock(file); !errors.Is(err, syscall.EWOULDBLOCK) {
				return err
			}
		}
	}
}

func tryLock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
