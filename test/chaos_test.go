// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/velero-clipper/clipper/internal/lab/chaos"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

var (
	chaosSeed   = flag.Uint64("chaos-seed", 0, "seed of the first random chaos point (default: by the time)")
	chaosRandom = flag.Int("chaos-random", 25, "how many random chaos points to run")
	chaosShort  = flag.Bool("chaos-short", false, "run only the chaos points that continuous integration runs, with fewer pods and volumes")
	chaosOnly   = flag.String("chaos-point", "", "run only the chaos points whose name matches one of these patterns, with | between them")
	chaosDir    = flag.String("chaos-dir", "", "empty folder for logs, which is kept then (default: temporary ones; that of a failure is kept)")
	chaosReport = flag.String("chaos-report", "../_output/chaos/report.json", "where the results are written")
)

const (
	suiteChaos      = "chaos"
	suiteLeaks      = "leaks"
	chaosPointLimit = 12 * time.Minute
	leakLimit       = 30 * time.Minute
	leakBackups     = 50
)

func chaosSize() chaos.Size {
	if *chaosShort {
		return chaos.Small
	}
	return chaos.Full
}

// chaosAttempts is how often a point may be tried. Continuous integration is to tell of the change, not of a controller beside us that
// loses an event now and then; the full suite tells of everything.
func chaosAttempts() int {
	if *chaosShort {
		return attempts
	}
	return 1
}

func chaosPoints(seed uint64) []chaos.Point {
	var points []chaos.Point
	for _, point := range chaos.Points(chaosSize(), seed, *chaosRandom) {
		wanted := func(pattern string) bool { return matches(pattern, point.Name) }
		if (!*chaosShort || point.Short) && (*chaosOnly == "" || slices.ContainsFunc(strings.Split(*chaosOnly, "|"), wanted)) {
			points = append(points, point)
		}
	}
	return points
}

var _ = Describe("chaos", Ordered, ContinueOnFailure, func() {
	if *suite != suiteChaos && *suite != suiteLeaks {
		return
	}
	report := &chaos.Report{Seed: *chaosSeed}
	if report.Seed == 0 {
		report.Seed = uint64(time.Now().Unix()) % 1_000_000
	}
	labs := &chaosLabs{}
	BeforeAll(func() { ctrllog.SetLogger(logr.Discard()) })
	AfterAll(func() {
		labs.stop()
		AddReportEntry("results", ReportEntryVisibilityAlways, report.String())
		Expect(report.Write(*chaosReport)).To(Succeed())
	})
	if *suite == suiteChaos {
		for i, point := range chaosPoints(report.Seed) {
			title := point.Name
			if point.Seed > 0 {
				title += fmt.Sprintf(", SEED=%d", point.Seed)
			}
			It(title, func(ctx SpecContext) {
				outcome := labs.get(ctx).Run(ctx, fmt.Sprintf("p%d", i), point)
				report.Outcomes = append(report.Outcomes, outcome)
				Expect(report.Write(*chaosReport)).To(Succeed())
				if !outcome.Passed() {
					Fail(fmt.Sprintf("%v\nlogs: %s", outcome.Failures, labs.abandon()))
				}
			}, SpecTimeout(chaosPointLimit), FlakeAttempts(chaosAttempts()))
		}
		if *chaosOnly != "" || *chaosShort {
			return
		}
	}
	It(fmt.Sprintf("holds after %d backups what it held after the fifth", leakBackups), func(ctx SpecContext) {
		labs.stop() // a process of its own
		var err error
		report.Leaks, err = labs.get(ctx).Leaks(ctx, leakBackups)
		if err != nil {
			Fail(fmt.Sprintf("%v\nlogs: %s", err, labs.abandon()))
		}
	}, SpecTimeout(leakLimit))
})

// chaosLabs has one lab at a time. A lab in which something failed isn't used again.
type chaosLabs struct {
	lab *chaos.Lab
	n   int
}

// get returns the lab, and starts one if there is none.
func (c *chaosLabs) get(ctx context.Context) *chaos.Lab {
	GinkgoHelper()
	if c.lab != nil {
		return c.lab
	}
	binary, err := filepath.Abs(*velero)
	Expect(err).NotTo(HaveOccurred())
	Expect(binary).To(BeARegularFile(), "build it first: make chaos does")
	programs, err := toolchain.Ensure(ctx, toolchain.Options{Progress: GinkgoWriter}, toolchain.ControlPlane()...)
	Expect(err).NotTo(HaveOccurred())
	crds, err := toolchain.SnapshotCRDs(ctx, toolchain.Options{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	c.n++
	dir := filepath.Join(*chaosDir, fmt.Sprint(c.n))
	if *chaosDir == "" {
		// Short, since it holds unix sockets.
		dir, err = os.MkdirTemp("", "chaos-")
	} else {
		err = os.MkdirAll(dir, 0o755)
	}
	Expect(err).NotTo(HaveOccurred())
	c.lab, err = chaos.Start(ctx, chaos.Options{
		Velero: binary, Programs: programs, SnapshotCRDs: crds, Size: chaosSize(), Dir: dir, Progress: GinkgoWriter,
	})
	Expect(err).NotTo(HaveOccurred())
	return c.lab
}

// stop ends the lab and removes its folder.
func (c *chaosLabs) stop() {
	GinkgoHelper()
	if c.lab == nil {
		return
	}
	dir := c.abandon()
	if *chaosDir == "" {
		Expect(os.RemoveAll(dir)).To(Succeed())
	}
}

// abandon ends the lab and returns its folder, which is kept.
func (c *chaosLabs) abandon() string {
	GinkgoHelper()
	dir := c.lab.Dir()
	Expect(c.lab.Stop()).To(Succeed())
	c.lab = nil
	return dir
}
