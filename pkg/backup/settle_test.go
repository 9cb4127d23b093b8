// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"errors"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

func TestLeftoversAreNamedOnceWhenTheBackupIsEndedWhileItSettles(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("good", "bad")
		c.taker.hold = holdOnly("bad")
		c.taker.neverReady = true
		c.settler.left = []snapshot.Leftover{{Ref: snapshot.Ref{Namespace: "app", Name: snapshotOf("bad")}, Reason: "the driver is asleep"}}
		r := c.start()
		c.taker.fail("bad", snapshot.ReasonTerminalError, "broken")
		synctest.Wait() // everything is written; the good snapshot could still become ready
		c.Expect(r.isOver()).To(BeFalse())
		stopping := errors.New("the server is shutting down")
		c.cancel(stopping)
		c.Expect(r.wait().err).To(MatchError(stopping))
		c.Expect(c.settler.asked).To(HaveLen(1))
		c.Expect(c.warnings()).To(ConsistOf(ContainSubstring("the driver is asleep")))
	})
}
