// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/parity"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

var (
	recorderBinary = flag.String("recorder", "../bin/velero-recorder", "the recording plugin")
	parityOnly     = flag.String("parity-case", "", "run only the parity cases whose name, or whose file, matches this pattern")
	parityShort    = flag.Bool("parity-short", false, "run only the parity cases with the tag short")
	parityWorkers  = flag.Int("parity-workers", 1, "the servers' --item-block-worker-count")
	paritySeed     = flag.Uint64("parity-seed", 0, "seed of the first random parity case (default: by the time)")
	parityRandom   = flag.Int("parity-random", 25, "how many random parity cases to run")
	parityDir      = flag.String("parity-dir", "", "empty folder for logs, which is kept then (default: a temporary one)")
)

const (
	suiteParity     = "parity"
	parityFiles     = "parity/*.case.yaml"
	parityAllowed   = "parity/allowed.yaml"
	parityLabStart  = 3 * time.Minute
	parityCaseLimit = 6 * time.Minute
)

// parityCases are the cases of one run, those with the same server flags side by side.
func parityCases() []parity.Case {
	cases, err := parity.Load(parityFiles)
	if err != nil {
		panic(err)
	}
	cases = slices.DeleteFunc(cases, func(c parity.Case) bool {
		if *parityShort && !slices.Contains(c.Tags, parity.TagShort) {
			return true
		}
		return *parityOnly != "" && !matches(*parityOnly, c.Name) && !matches(*parityOnly, strings.TrimSuffix(filepath.Base(c.File), ".case.yaml"))
	})
	parity.SortByServer(cases)
	return cases
}

func matches(pattern, name string) bool {
	matched, err := filepath.Match(pattern, name)
	return err == nil && matched
}

var _ = Describe("parity", Ordered, ContinueOnFailure, func() {
	if *suite != suiteParity {
		return
	}
	var (
		lab     *parity.Lab
		allowed *parity.Allowed
	)
	BeforeAll(func(ctx SpecContext) {
		lab, allowed = startParity(ctx)
	}, NodeTimeout(parityLabStart))
	AfterAll(func() {
		if lab != nil {
			Expect(lab.Stop()).To(Succeed())
		}
	})
	cases := parityCases()
	for _, c := range cases {
		It(c.Name, func(ctx SpecContext) {
			compareEngines(ctx, lab, allowed, c)
		}, SpecTimeout(parityCaseLimit))
	}
	for seed := range parityRandomSeeds() {
		It(fmt.Sprintf("random, SEED=%d", seed), func(ctx SpecContext) {
			c, err := parity.Generate(seed)
			Expect(err).NotTo(HaveOccurred())
			compareEngines(ctx, lab, allowed, c)
		}, SpecTimeout(parityCaseLimit))
	}
	It("has shown no data race in our engine", func() { // with -velero=bin/velero-race
		races, err := lab.Races()
		Expect(err).NotTo(HaveOccurred())
		Expect(races).To(BeEmpty())
	})
	It("has no stale entry in the list of allowed differences", func() {
		if *parityOnly != "" || *parityShort || *parityWorkers > 1 {
			Skip("not all cases ran")
		}
		Expect(allowed.Stale()).To(Succeed())
	})
})

// parityRandomSeeds are the seeds of the random cases. They are in the names of the specs, so that each can be made again.
func parityRandomSeeds() iter.Seq[uint64] {
	first := *paritySeed
	if first == 0 {
		first = uint64(time.Now().Unix())
	}
	return func(yield func(uint64) bool) {
		for n := range *parityRandom {
			if !yield(first + uint64(n)) {
				return
			}
		}
	}
}

// startParity starts the lab, with everything that it needs built.
func startParity(ctx context.Context) (*parity.Lab, *parity.Allowed) {
	GinkgoHelper()
	binary, err := filepath.Abs(*velero)
	Expect(err).NotTo(HaveOccurred())
	recorder, err := filepath.Abs(*recorderBinary)
	Expect(err).NotTo(HaveOccurred())
	for _, needed := range []string{binary, recorder} {
		Expect(needed).To(BeARegularFile(), "build it first: make parity does")
	}
	allowed, err := parity.LoadAllowed(parityAllowed)
	Expect(err).NotTo(HaveOccurred())
	programs, err := toolchain.Ensure(ctx, toolchain.Options{Progress: GinkgoWriter}, toolchain.ControlPlane()...)
	Expect(err).NotTo(HaveOccurred())
	crds, err := toolchain.SnapshotCRDs(ctx, toolchain.Options{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	dir := *parityDir
	if dir == "" {
		// Short, since it holds unix sockets.
		dir, err = os.MkdirTemp("", "parity-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return os.RemoveAll(dir) })
	}
	lab, err := parity.Start(ctx, parity.Options{
		Velero: binary, Recorder: recorder, Programs: programs, SnapshotCRDs: crds, Dir: dir, Workers: *parityWorkers,
		Progress: GinkgoWriter,
	})
	Expect(err).NotTo(HaveOccurred())
	return lab, allowed
}

// compareEngines runs a case and fails with what differs and isn't allowed to.
func compareEngines(ctx context.Context, lab *parity.Lab, allowed *parity.Allowed, c parity.Case) {
	GinkgoHelper()
	stock, ours, err := lab.Run(ctx, c)
	if c.Random && errors.Is(err, parity.ErrStockPanics) {
		Skip(fmt.Sprintf("nothing to compare with,: %v", err))
	}
	Expect(err).NotTo(HaveOccurred())
	Expect(ours.Concurrent).To(BeNumerically("<=", *parityWorkers), "calls of item actions at once")
	differences := allowed.Filter(c, parity.Compare(stock, ours))
	if *parityWorkers > 1 || c.Unordered {
		differences = slices.DeleteFunc(differences, parity.Difference.IsOrder)
	}
	// What a random case comes to is whatever stock makes of it.
	if err := c.Check(stock, ours); err != nil && !c.Random {
		Fail(fmt.Sprintf("the case isn't about what it says: %s\n%s", err, report(c, differences, stock, ours)))
	}
	if len(differences) > 0 {
		Fail(report(c, differences, stock, ours))
	}
}

// report is the small diff.
func report(c parity.Case, differences []parity.Difference, stock, ours *parity.Observation) string {
	const most = 60
	var b strings.Builder
	alike := parity.Group(differences)
	fmt.Fprintf(&b, "case %s (%s): %d differences, %d apart from likes\n", c.Name, c.File, len(differences), len(alike))
	for i, d := range alike {
		if i == most {
			fmt.Fprintf(&b, "... and %d more\n", len(alike)-most)
			break
		}
		fmt.Fprintln(&b, d)
	}
	fmt.Fprintf(&b, "messages with stock:\n  %s\nmessages with ours:\n  %s\n",
		strings.Join(stock.Notes, "\n  "), strings.Join(ours.Notes, "\n  "))
	return b.String()
}
