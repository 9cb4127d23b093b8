// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

func TestWorkloadIsTheOneThatIsDescribed(t *testing.T) {
	g := NewWithT(t)
	s, err := Workload()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Backups).To(HaveLen(1))
	g.Expect(s.Backups[0].Name).To(Equal("shop"))

	hooked, plain := []int{}, 0
	for _, pod := range s.Expand().Pods {
		if pod.Hooked() {
			hooked = append(hooked, len(pod.Claims))
		} else {
			plain += len(pod.Claims)
		}
	}
	g.Expect(hooked).To(ConsistOf(3, 2, 2))
	g.Expect(plain).To(Equal(12))
}

func TestVariantsDifferOnlyInTheServer(t *testing.T) {
	g := NewWithT(t)
	all := variants()
	g.Expect(all[0].floor).To(BeTrue())
	g.Expect(all[len(all)-1].server.Engine).To(Equal(scenario.EngineParallel))
	g.Expect(all[len(all)-1].server.Args).To(BeEmpty(), "ours is shown with its defaults")
	for _, v := range all[1 : len(all)-1] {
		g.Expect(v.server.Engine).To(Equal(scenario.EngineStock))
	}
}

func TestWriteTable(t *testing.T) {
	g := NewWithT(t)
	all := variants()
	rows := []row{
		{variant: all[0], result: &result.Result{FloorSeconds: 4.21}},
		{variant: all[1], result: &result.Result{
			Backups: map[string]*result.Backup{"shop": {Phase: "Completed", SecondsInProgress: 96.04, SecondsToTerminal: 101.5}},
			Pods:    map[string]*result.Pod{"a": {FreezeSeconds: 15.2}, "b": {FreezeSeconds: 10.2}, "c": {}},
			API:     result.API{PerPVC: 31.04},
			Order:   result.Order{MostFrozenPods: 1},
		}},
	}
	var out bytes.Buffer
	g.Expect(writeTable(&out, rows, "shop")).To(Succeed())
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	g.Expect(lines).To(HaveLen(3))
	g.Expect(strings.Fields(lines[1])).To(Equal([]string{"floor", "4.2", "s", "-", "-", "-", "-", "-"}))
	g.Expect(strings.Fields(lines[2])).To(Equal([]string{"stock", "96.0", "s", "101.5", "s", "15.2", "s", "1", "31.0", "Completed"}))
	g.Expect(strings.Index(lines[0], "longest freeze")).To(Equal(strings.Index(lines[2], "15.2 s")), "columns are aligned")
}
