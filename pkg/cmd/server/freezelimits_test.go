// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"

	"github.com/velero-clipper/clipper/pkg/backup"
)

func TestFreezeLimitFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want backup.FreezeLimits
		err  string
	}{
		"none": {want: backup.FreezeLimits{Warning: time.Minute, Tolerance: 5 * time.Second}},
		"all": {
			args: []string{"--default-max-freeze=90s", "--freeze-warning-after=0", "--freeze-window-tolerance=0"},
			want: backup.FreezeLimits{Default: 90 * time.Second},
		},
		"a negative limit":     {args: []string{"--default-max-freeze=-1s"}, err: "--default-max-freeze=-1s is negative"},
		"a negative warning":   {args: []string{"--freeze-warning-after=-1s"}, err: "--freeze-warning-after=-1s is negative"},
		"a negative tolerance": {args: []string{"--freeze-window-tolerance=-1s"}, err: "--freeze-window-tolerance=-1s is negative"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var limits backup.FreezeLimits
			flags := pflag.NewFlagSet("server", pflag.ContinueOnError)
			bindFreezeLimits(flags, &limits)
			g.Expect(flags.Parse(test.args)).To(Succeed())
			if test.err != "" {
				g.Expect(checkFreezeLimits(limits)).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(checkFreezeLimits(limits)).To(Succeed())
			g.Expect(limits).To(Equal(test.want))
		})
	}
}
