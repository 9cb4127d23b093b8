// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"testing"
	"testing/synctest"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/velero-clipper/clipper/pkg/backup"
)

// limited sets a pod's own freeze limit.
func limited(pod *corev1.Pod, limit string) *corev1.Pod {
	pod.Annotations[backup.MaxFreezeAnnotation] = limit
	return pod
}

func freezeLimits(limits backup.FreezeLimits) func(*backup.Deps) {
	return func(deps *backup.Deps) { deps.FreezeLimits = limits }
}

func TestAPodIsThawedAtItsFreezeLimit(t *testing.T) {
	for name, test := range map[string]struct {
		pod, backup string
		limits      backup.FreezeLimits
		want        time.Duration // 0: when the snapshot is cut, after a minute
		warnings    int
	}{
		"without any":                   {},
		"its own":                       {pod: "20s", want: 20 * time.Second},
		"the backup's":                  {backup: "30s", want: 30 * time.Second},
		"the server's":                  {limits: backup.FreezeLimits{Default: 10 * time.Second}, want: 10 * time.Second},
		"its own before the others":     {pod: "25s", backup: "5s", limits: backup.FreezeLimits{Default: time.Second}, want: 25 * time.Second},
		"the backup's before the rest":  {backup: "15s", limits: backup.FreezeLimits{Default: time.Second}, want: 15 * time.Second},
		"its own zero is none":          {pod: "0", backup: "5s"},
		"its own, which nobody reads":   {pod: "soon", backup: "5s", want: 5 * time.Second, warnings: 1},
		"its own, which is negative":    {pod: "-5s", want: 0, warnings: 1},
		"longer than it takes":          {pod: "2m"},
		"longer than the soft limit":    {limits: backup.FreezeLimits{Warning: 10 * time.Second}, warnings: 1},
		"not longer than the soft one":  {limits: backup.FreezeLimits{Warning: time.Minute}},
		"shorter than the soft limit":   {pod: "5s", limits: backup.FreezeLimits{Warning: 10 * time.Second}, want: 5 * time.Second},
		"the soft limit before the end": {pod: "20s", limits: backup.FreezeLimits{Warning: 10 * time.Second}, want: 20 * time.Second, warnings: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.change = freezeLimits(test.limits)
				db := hooked("db", "data", "wal")
				if test.pod != "" {
					limited(db, test.pod)
				}
				if test.backup != "" {
					c.backup.Annotations = map[string]string{backup.MaxFreezeAnnotation: test.backup}
				}
				c.claims("data", "wal")
				c.add(db)
				c.taker.hold = holdOnly("wal")
				began := time.Now()
				r := c.start()
				after(time.Minute, func() {
					if test.want == 0 {
						c.taker.cut("wal")
					}
				})
				r.wait()
				c.Expect(r.err).NotTo(HaveOccurred())
				c.Expect(c.events.all("thaw")).To(Equal([]string{"thaw app/db"}))
				window := r.result.FreezeWindows[0]
				c.Expect(window.Start).To(Equal(began))
				if test.want == 0 {
					c.Expect(window.End.Sub(began)).To(Equal(time.Minute))
					c.Expect(c.errors()).To(BeEmpty())
					c.Expect(r.files()).To(ContainElements("pods app/db", "persistentvolumeclaims app/wal"))
					c.Expect(c.warnings()).To(HaveLen(test.warnings))
					return
				}
				c.Expect(window.End.Sub(began)).To(Equal(test.want))
				c.Expect(c.errors()).To(ConsistOf(And(ContainSubstring("thawed at its freeze limit of "+test.want.String()), ContainSubstring("app/db"))))
				c.Expect(r.files()).To(ContainElement("persistentvolumeclaims app/data"), "it was cut in time")
				c.Expect(r.files()).NotTo(ContainElements("persistentvolumeclaims app/wal"))
				c.Expect(r.files()).NotTo(ContainElements("pods app/db"))
				c.Expect(c.warnings()).To(HaveLen(1 + test.warnings))
			})
		})
	}
}

// after does something when a time has passed and everything has come to rest.
func after(d time.Duration, do func()) {
	<-time.After(d)
	synctest.Wait()
	do()
}

func TestTheFirstLimitOfABlockCounts(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("shared")
		c.add(limited(hooked("db-1", "shared"), "1m"), limited(hooked("db-2", "shared"), "20s"))
		c.taker.hold = holdAll
		r := c.start().wait()
		c.Expect(c.events.all("freeze", "thaw")).To(Equal([]string{"freeze app/db-1", "freeze app/db-2", "thaw app/db-1", "thaw app/db-2"}))
		for _, w := range r.result.FreezeWindows {
			c.Expect(w.End.Sub(w.Start)).To(Equal(20 * time.Second))
		}
	})
}

func TestALimitThatPassesWhilePodsAreBeingFrozen(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("shared")
		c.add(limited(hooked("db-1", "shared"), "20s"), hooked("db-2", "shared"))
		c.taker.hold = holdAll
		c.executor.answer = onCommand("freeze", func() error { <-time.After(30 * time.Second); return nil })
		r := c.start().wait()
		c.Expect(r.err).NotTo(HaveOccurred())
		c.Expect(c.events.all("freeze", "thaw")).To(Equal([]string{"freeze app/db-1", "thaw app/db-1"}), "the second isn't frozen for nothing")
		c.Expect(c.taker.requests()).To(HaveLen(1))
		c.Expect(r.files()).NotTo(ContainElements("pods app/db-1"))
		c.Expect(r.files()).NotTo(ContainElements("pods app/db-2"))
	})
}

func TestAPodThatCannotBeReachedDoesNotKeepOthersFrozen(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("shared")
		c.add(hooked("db-1", "shared"), hooked("db-2", "shared"), hooked("db-3", "shared"))
		c.executor.answer = func(command, pod string) error {
			if command == "thaw" && pod == "db-1" {
				<-time.After(2 * time.Minute)
			}
			return nil
		}
		r := c.take()
		c.Expect(c.events.all("thaw")).To(Equal([]string{"thaw app/db-1", "thaw app/db-2", "thaw app/db-3"}), "in order")
		for _, w := range r.result.FreezeWindows {
			if w.Pod == "db-1" {
				c.Expect(w.End.Sub(w.Start)).To(Equal(2 * time.Minute))
			} else {
				c.Expect(w.End.Sub(w.Start)).To(BeNumerically("<=", time.Second))
			}
		}
	})
}

func TestSnapshotsThatWereNotMadeInTheFreezeWindow(t *testing.T) {
	const tolerance = 5 * time.Second
	for name, test := range map[string]struct {
		made      *time.Duration // after the freeze began, which lasts 10 s
		tolerance time.Duration
		fails     bool
	}{
		"inside":                       {made: ptr.To(5 * time.Second), tolerance: tolerance},
		"not told":                     {tolerance: tolerance},
		"told as the year 1970":        {made: ptr.To(-time.Since(time.Unix(0, 0))), tolerance: tolerance},
		"a little early":               {made: ptr.To(-tolerance), tolerance: tolerance},
		"a little late":                {made: ptr.To(10*time.Second + tolerance), tolerance: tolerance},
		"too early":                    {made: ptr.To(-tolerance - 1), tolerance: tolerance, fails: true},
		"too late":                     {made: ptr.To(10*time.Second + tolerance + 1), tolerance: tolerance, fails: true},
		"years early, with no checks":  {made: ptr.To(-10000 * time.Hour)},
		"years early, and it is known": {made: ptr.To(-10000 * time.Hour), tolerance: tolerance, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				began := time.Now()
				c.change = freezeLimits(backup.FreezeLimits{Tolerance: test.tolerance})
				c.claims("data", "plain")
				c.add(hooked("db", "data"), pod("web", "plain"))
				c.taker.hold = holdAll
				c.taker.content = func(content *snapshotv1.VolumeSnapshotContent) {
					content.Status.CreationTime = nil
					if test.made != nil {
						content.Status.CreationTime = ptr.To(began.Add(*test.made).UnixNano())
					}
				}
				r := c.start()
				after(10*time.Second, func() { c.taker.cut("data") })
				after(10*time.Second, func() { c.taker.cut("plain") })
				r.wait()
				c.Expect(r.err).NotTo(HaveOccurred())
				c.Expect(r.files()).To(ContainElements("pods app/web", "persistentvolumeclaims app/plain"), "nobody was frozen for it")
				if !test.fails {
					c.Expect(c.errors()).To(BeEmpty())
					c.Expect(r.files()).To(ContainElements("pods app/db", "persistentvolumeclaims app/data"))
					return
				}
				c.Expect(c.errors()).To(ConsistOf(And(ContainSubstring("claim app/data was made at"), ContainSubstring("--freeze-window-tolerance"))))
				c.Expect(r.files()).NotTo(ContainElement("persistentvolumeclaims app/data"))
				c.Expect(r.files()).NotTo(ContainElement("pods app/db"))
				c.Expect(c.settler.removed).To(HaveLen(1), "the snapshot is removed")
				c.Expect(r.result.SnapshotsAttempted).To(Equal(2))
			})
		})
	}
}
