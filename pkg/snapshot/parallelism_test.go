// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
)

func TestParallelism(t *testing.T) {
	tests := []struct {
		text, shown          string
		disabled             bool
		none, twelve, server int
		owner                int
	}{
		{text: "1", shown: "1", none: 1, twelve: 1, server: 1},
		{text: "200", shown: "200", none: 200, twelve: 200, server: 200},
		{text: " 7 ", shown: "7", none: 7, twelve: 7, server: 7},
		{text: "10%", shown: "10%", none: 1, twelve: 2, server: 0, owner: 50},
		{text: "1%", shown: "1%", none: 1, twelve: 1, server: 0, owner: 50},
		{text: "100%", shown: "100%", none: 1, twelve: 12, server: 0, owner: 50},
		{text: "unlimited", shown: "unlimited"},
		{text: "Unlimited", shown: "unlimited"},
		{text: "0", shown: "0", disabled: true, none: 1, twelve: 1, server: 1},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			g := NewWithT(t)
			p, err := ParseParallelism(test.text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(p.String()).To(Equal(test.shown))
			g.Expect(p.Disabled()).To(Equal(test.disabled))
			g.Expect(p.Limit(0)).To(Equal(test.none))
			g.Expect(p.Limit(12)).To(Equal(test.twelve))
			g.Expect(p.serverLimit()).To(Equal(test.server))
			g.Expect(p.ownerLimit()).To(Equal(test.owner))
			again, err := ParseParallelism(p.String())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(p))
		})
	}
}

func TestBadParallelism(t *testing.T) {
	for _, text := range []string{"", "-1", "+1", "1.5", "0%", "101%", "%", "ten", "10 %", "99999999999", "1e3"} {
		t.Run(text, func(t *testing.T) {
			_, err := ParseParallelism(text)
			NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("unlimited"), ContainSubstring("100%"), ContainSubstring(`"0"`))))
		})
	}
}

func TestParallelismAsFlag(t *testing.T) {
	g := NewWithT(t)
	var p Parallelism
	g.Expect(p.Limit(1000)).To(Equal(DefaultParallelism))
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.Var(&p, "csi-snapshot-parallelism", "")
	g.Expect(flags.Lookup("csi-snapshot-parallelism").DefValue).To(Equal("50"))
	g.Expect(flags.Parse([]string{"--csi-snapshot-parallelism=10%"})).To(Succeed())
	g.Expect(p.Limit(30)).To(Equal(3))
	g.Expect(flags.Parse([]string{"--csi-snapshot-parallelism=many"})).To(MatchError(ContainSubstring("accepted are")))
	g.Expect(p.Limit(30)).To(Equal(3), "a bad value changes nothing")
}
