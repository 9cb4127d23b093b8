// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/velero-clipper/clipper/internal/lab/kubelet"
)

// execs are commands in one pod; each ends a second after it began, but for one that is written with dots.
func execs(commands string) (all []kubelet.ExecCall) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for command := range strings.FieldsSeq(commands) {
		call := kubelet.ExecCall{Namespace: "app", Pod: "db", Command: []string{strings.TrimSuffix(command, "...")}, Start: at}
		if !strings.HasSuffix(command, "...") {
			call.End = at.Add(time.Second)
		}
		at = at.Add(time.Minute)
		all = append(all, call)
	}
	return all
}

func TestHooks(t *testing.T) {
	cases := map[string]struct {
		execs    string
		frozen   int
		once     string // what is wrong when each freeze needs exactly one thaw
		anyTimes string // and when one is enough
	}{
		"nothing ran":        {},
		"frozen and thawed":  {execs: "freeze thaw"},
		"twice":              {execs: "freeze thaw freeze thaw"},
		"never thawed":       {execs: "freeze", frozen: 1, once: "is frozen", anyTimes: "is frozen"},
		"being frozen":       {execs: "freeze...", once: "is frozen", anyTimes: "is frozen"},
		"being thawed":       {execs: "freeze thaw...", frozen: 1, once: "is frozen", anyTimes: "is frozen"},
		"thawed twice":       {execs: "freeze thaw thaw", once: "1 times and thawed 2 times"},
		"thawed for nothing": {execs: "thaw", once: "0 times and thawed 1 times"},
		"frozen again":       {execs: "freeze freeze thaw", once: "frozen again", anyTimes: "frozen again"},
		"the second stays":   {execs: "freeze thaw freeze", frozen: 1, once: "is frozen", anyTimes: "is frozen"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &seen{execs: execs(tc.execs)}
			g.Expect(s.frozen()).To(Equal(tc.frozen))
			for once, want := range map[bool]string{true: tc.once, false: tc.anyTimes} {
				failures := checkHooks(s.hooks(), once)
				if want == "" {
					g.Expect(failures).To(BeEmpty())
					continue
				}
				g.Expect(failures).To(HaveExactElements(ContainSubstring(want)))
			}
		})
	}
}

func TestRest(t *testing.T) {
	cases := map[string]struct {
		change func(*seen)
		rest   bool
	}{
		"all has ended":         {change: func(*seen) {}, rest: true},
		"a backup goes on":      {change: func(s *seen) { s.backups["b"] = velerov1.BackupStatus{Phase: velerov1.BackupPhaseFinalizing} }},
		"a backup wasn't seen":  {change: func(s *seen) { s.backups["b"] = velerov1.BackupStatus{} }},
		"a VolumeSnapshot":      {change: func(s *seen) { s.snapshots["uid"] = "app/a" }},
		"a content":             {change: func(s *seen) { s.contents["uid"] = "a" }},
		"a freeze record":       {change: func(s *seen) { s.records["velero-frozen-1"] = true }},
		"a call of the driver":  {change: func(s *seen) { s.busy = true }},
		"a hook runs":           {change: func(s *seen) { s.execs = execs("freeze thaw thaw...") }},
		"a pod is frozen":       {change: func(s *seen) { s.execs = execs("freeze") }},
		"a pod that was thawed": {change: func(s *seen) { s.execs = execs("freeze thaw") }, rest: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newState()
			s.update(func(seen *seen) {
				seen.backups["a"] = velerov1.BackupStatus{Phase: velerov1.BackupPhaseFailed}
				tc.change(seen)
			})
			s.view(func(seen *seen) { NewWithT(t).Expect(isAtRest(seen)).To(Equal(tc.rest)) })
		})
	}
}

func TestStoreLog(t *testing.T) {
	g := NewWithT(t)
	s := newState()
	for _, line := range []string{
		"2026-03-01T12:00:00Z 200 PUT /velero/backups/b/b-logs.gz?x-id=PutObject 1ms\n",
		"2026-03-01T12:00:00Z 200 PUT /velero/backups/b/velero-backup.json 1ms\n",
		"2026-03-01T12:00:00Z 503 PUT /velero/backups/b/b.tar.gz 1ms\n",
		"2026-03-01T12:00:00Z 200 GET /velero/backups/b/b.tar.gz 1ms\n",
		"2026-03-01T12:00:00Z 200 PUT /velero/restores/r/b.tar.gz 1ms\n",
	} {
		n, err := storeLog{s}.Write([]byte(line))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(n).To(Equal(len(line)))
	}
	s.view(func(seen *seen) {
		g.Expect(seen.files).To(Equal([]string{logFile, metadataFile}))
		g.Expect(uploaded(metadataFile)(seen)).To(BeTrue())
		g.Expect(uploaded(contentsFile)(seen)).To(BeFalse())
	})
}

func TestPoints(t *testing.T) {
	g := NewWithT(t)
	points := Points(Full, 7, 25)
	names, short, server := map[string]bool{}, 0, 0
	for _, point := range points {
		key := point.Name
		if point.Seed > 0 {
			key = point.Name + " " + time.Duration(point.Seed).String()
		}
		g.Expect(names).NotTo(HaveKey(key))
		names[key] = true
		if point.Short {
			short++
		}
		if strings.Contains(point.Name, "kill") || strings.Contains(point.Name, "term") {
			server++
		}
	}
	g.Expect(short).To(BeNumerically("~", 20, 2))
	g.Expect(server).To(BeNumerically(">=", 60))
	again := Points(Full, 7, 25)
	for i := range points {
		g.Expect(again[i].Name).To(Equal(points[i].Name), "a seed is a point")
	}
	g.Expect(RandomPoint(Full, 7).Name).NotTo(Equal(RandomPoint(Full, 8).Name))
}

func TestLeaksAreFound(t *testing.T) {
	before := Usage{Goroutines: 300, OpenFiles: 40, Heap: 30 << 20}
	cases := map[string]struct {
		after Usage
		leak  bool
	}{
		"the same":              {after: before},
		"less":                  {after: Usage{Goroutines: 250, OpenFiles: 30, Heap: 20 << 20}},
		"a connection more":     {after: Usage{Goroutines: 304, OpenFiles: 42, Heap: 31 << 20}},
		"a goroutine each time": {after: Usage{Goroutines: 345, OpenFiles: 40, Heap: 30 << 20}, leak: true},
		"a file each time":      {after: Usage{Goroutines: 300, OpenFiles: 85, Heap: 30 << 20}, leak: true},
		"half a MiB each time":  {after: Usage{Goroutines: 300, OpenFiles: 40, Heap: 52 << 20}, leak: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(tc.after.exceeds(before)).To(Equal(tc.leak))
		})
	}
}
