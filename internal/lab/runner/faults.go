// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/velero-clipper/clipper/internal/lab/apiproxy"
	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// stopComponent kills the sidecars or the snapshot-controller.
func (r *run) stopComponent(target string) error {
	if target == scenario.TargetSnapshotController {
		return r.lab.cluster.StopSnapshotController()
	}
	var errs []error
	for driver := range r.lab.drivers {
		errs = append(errs, r.lab.cluster.StopSidecar(driver))
	}
	return errors.Join(errs...)
}

// startComponent starts what was stopped or killed.
func (r *run) startComponent(ctx context.Context, background *errgroup.Group, target string) error {
	switch target {
	case scenario.TargetServer:
		return r.startAgain(ctx, background)
	case scenario.TargetSnapshotController:
		return r.lab.cluster.StartSnapshotController(ctx)
	}
	var errs []error
	for driver := range r.lab.drivers {
		errs = append(errs, r.lab.cluster.StartSidecar(ctx, driver))
	}
	return errors.Join(errs...)
}

// misbehave lets something go wrong between a client and the API server.
func (r *run) misbehave(f scenario.APIFault) {
	proxy := r.lab.cluster.Proxy(apiUsers[f.Of])
	object := "API for the " + f.Of
	switch {
	case f.Clear:
		proxy.Clear()
		r.note(result.KindScenario, object, "works again")
	case f.CutWatches:
		r.note(result.KindScenario, object, "%d watches cut", proxy.CutWatches())
	case f.ExpireWatches:
		r.note(result.KindScenario, object, "%d watches expired", proxy.ExpireWatches())
	default:
		proxy.Add(apiproxy.Fault{
			Verbs: f.Verbs, Resources: f.Resources, Answer: f.Answer, RetryAfter: f.RetryAfter.Duration(),
			Slow: f.Slow.Duration(), For: f.For.Duration(), Times: f.Times,
		})
		r.note(result.KindScenario, object, "%s", faultText(f))
	}
}

// faultText is a fault as a line of the timeline.
func faultText(f scenario.APIFault) string {
	var parts []string
	if f.Slow > 0 {
		parts = append(parts, fmt.Sprintf("slow by %s", f.Slow))
	}
	if f.Answer != 0 {
		parts = append(parts, fmt.Sprintf("answers %d", f.Answer))
	}
	for _, list := range [][]string{f.Verbs, f.Resources} {
		if len(list) > 0 {
			parts = append(parts, strings.Join(list, ", "))
		}
	}
	if f.For > 0 {
		parts = append(parts, fmt.Sprintf("for %s", f.For))
	}
	if f.Times > 0 {
		parts = append(parts, fmt.Sprintf("%d times", f.Times))
	}
	return strings.Join(parts, "; ")
}
