// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
)

func TestDriverLimits(t *testing.T) {
	g := NewWithT(t)
	var l DriverLimits
	g.Expect(l.String()).To(BeEmpty())
	g.Expect(l.Set("ebs.csi.aws.com=20, rbd.csi.ceph.com=5")).To(Succeed())
	g.Expect(l.Set("rbd.csi.ceph.com=6")).To(Succeed(), "the flag may be repeated, and the last one counts")
	g.Expect(l).To(Equal(DriverLimits{"ebs.csi.aws.com": 20, "rbd.csi.ceph.com": 6}))
	g.Expect(l.String()).To(Equal("ebs.csi.aws.com=20,rbd.csi.ceph.com=6"))
	var again DriverLimits
	g.Expect(again.Set(l.String())).To(Succeed())
	g.Expect(again).To(Equal(l))

	for _, bad := range []string{"", "20", "a", "a=", "=3", "a=0", "a=-1", "a=x", "a=1,", "a=10%", "a b=1"} {
		before := l.String()
		g.Expect(l.Set(bad)).To(MatchError(ContainSubstring("accepted are driver=N")), bad)
		g.Expect(l.String()).To(Equal(before), "nothing of a bad value is taken")
	}
	g.Expect(l.Set("a=1,a=2")).To(MatchError(ContainSubstring("two limits, 1 and 2")))
}

func TestADriversLimitHoldsForAllBackups(t *testing.T) {
	opts := parallelism("10")
	opts.DriverLimits = DriverLimits{"driver": 2}
	inBubble(t, opts, nil, func(h *harness) {
		first := h.taker.Take(h.ctx, requests(4)...)
		second := h.taker.Take(h.ctx, requests(4, ofOwner("other"), frozen)...)
		free := h.taker.Take(h.ctx, requests(4, ofOwner("third"), ofDriver("free"))...)
		h.pass(1)
		h.Expect(reasons(slices.Concat(first, second))).To(Equal(map[string]int{"Cutting": 2, "Queued": 6}))
		h.Expect(reasons(free)).To(Equal(map[string]int{"Cutting": 4}))
	})
}
