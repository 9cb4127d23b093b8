// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var (
	suite  = flag.String("suite", "short", "which scenarios to run: short, full, or the name of one")
	lab    = flag.String("lab", "../bin/velero-lab", "the lab's program")
	velero = flag.String("velero", "../bin/velero", "the velero binary that the lab runs")
)

// short are the scenarios that continuous integration runs: each promise once, in little time.
var short = []string{
	"api-restart",
	"bad-flag",
	"breaker-two-drivers",
	"data-mover",
	"everyday",
	"hang-short",
	"missing-class",
	"missing-container-hook",
	"missing-kubeconfig",
	"missing-snapshot-crds",
	"names",
	"order",
	"plain-30",
	"plugins-misbehave",
	"plugins-workers",
	"rbac-least-privilege",
	"rbac-snapshots-forbidden",
	"rbac-without-watch",
	"restart-phases",
	"restore-and-delete",
	"server-terminated",
	"throttle",
	"two-drivers",
	"vs-deleted",
}

// scenarioTimeout bounds one scenario; each has a shorter one of its own, which says more when it is reached.
const scenarioTimeout = 20 * time.Minute

// attempts is how often a scenario may be tried: those with a time in their expectations can meet a machine that is busy
// with something else once.
const attempts = 2

func TestScenarios(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Scenarios on the lab")
}

var _ = Describe("scenario", func() {
	files, err := filepath.Glob("scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		panic(fmt.Sprintf("no scenarios found: %v", err))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		It(name, func(ctx SpecContext) {
			if !selected(name) {
				Skip("not in suite " + *suite)
			}
			run(ctx, file)
		}, SpecTimeout(scenarioTimeout), FlakeAttempts(attempts))
	}
})

func selected(name string) bool {
	switch *suite {
	case "full":
		return true
	case "short":
		return slices.Contains(short, name)
	default:
		return name == *suite
	}
}

// run runs a scenario and passes when all its expectations do; the lab's own report says which did not.
func run(ctx context.Context, file string) {
	GinkgoHelper()
	binary, err := filepath.Abs(*velero)
	Expect(err).NotTo(HaveOccurred())
	Expect(binary).To(BeARegularFile(), "build it first: make build")
	Expect(*lab).To(BeARegularFile(), "build it first: make build")

	command := exec.CommandContext(ctx, *lab, "run", file, "--velero", binary)
	// An interrupt lets the lab stop what it has started.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	output, err := command.CombinedOutput()
	AddReportEntry("report", ReportEntryVisibilityFailureOrVerbose, string(output))
	Expect(err).NotTo(HaveOccurred(), "%s", output)
}
