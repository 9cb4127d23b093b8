// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"time"
)

var (
	errQuiet       = errors.New("nothing more happened")
	errSettleLimit = errors.New("the limit of the wait for rest passed")
)

// settle waits until the cluster is at rest, or for the scenario's limit, and notes how long that took.
func (r *run) settle(ctx context.Context) error {
	begin := time.Now()
	err := r.rest(ctx)
	r.leftovers.SettleSeconds = time.Since(begin).Seconds()
	return err
}

// rest returns when there have been no leftovers and no driver call in flight for the quiet time, or when the limit
// has passed; what is left then stays left.
func (r *run) rest(ctx context.Context) error {
	limited, cancel := context.WithTimeoutCause(ctx, r.scenario.Settle.Limit.Duration(), errSettleLimit)
	defer cancel()
	for {
		err := r.board.wait(limited, r.atRest)
		if err == nil {
			err = r.staysAtRest(limited)
		}
		switch {
		case errors.Is(err, errQuiet), errors.Is(err, errSettleLimit):
			return nil
		case err != nil:
			return err
		}
	}
}

// staysAtRest returns errQuiet when rest lasted for the quiet time, and nil when something happened before.
func (r *run) staysAtRest(ctx context.Context) error {
	quiet, cancel := context.WithTimeoutCause(ctx, r.scenario.Settle.Quiet.Duration(), errQuiet)
	defer cancel()
	return r.board.wait(quiet, func(rec *recording) bool { return !r.atRest(rec) })
}

func (r *run) atRest(rec *recording) bool {
	if vs, vsc := rec.leftovers(); len(vs)+len(vsc) > 0 {
		return false
	}
	for _, call := range r.driverCalls(time.Time{}) {
		if call.end.IsZero() {
			return false
		}
	}
	return true
}
