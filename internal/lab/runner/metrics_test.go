// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"math"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
	"github.com/velero-clipper/clipper/internal/lab/server"
)

func TestFlatten(t *testing.T) {
	g := NewWithT(t)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(`
# TYPE velero_csi_snapshots_in_flight gauge
velero_csi_snapshots_in_flight{driver="a"} 3
velero_csi_snapshots_in_flight{driver="b"} NaN
# TYPE velero_csi_snapshot_verdicts_total counter
velero_csi_snapshot_verdicts_total{verdict="throttled",driver="a"} 2
# TYPE velero_hook_freeze_seconds histogram
velero_hook_freeze_seconds_bucket{le="1"} 1
velero_hook_freeze_seconds_bucket{le="+Inf"} 2
velero_hook_freeze_seconds_sum 3.5
velero_hook_freeze_seconds_count 2
# TYPE velero_backup_total gauge
velero_backup_total 1
`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(flatten(server.Metrics(families))).To(Equal(map[string]float64{
		`velero_csi_snapshots_in_flight{driver="a"}`:                         3,
		`velero_csi_snapshot_verdicts_total{driver="a",verdict="throttled"}`: 2,
		"velero_hook_freeze_seconds_count":                                   2,
		"velero_hook_freeze_seconds_sum":                                     3.5,
	}))
	g.Expect(math.IsNaN(families["velero_csi_snapshots_in_flight"].GetMetric()[1].GetGauge().GetValue())).To(BeTrue(), "the case is in the table")
}

func TestMetricsInTheResult(t *testing.T) {
	g := NewWithT(t)
	origin := time.Unix(1000, 0)
	rec := newRecording()
	rec.origin = origin
	limit := limitFamily + `{driver="a"}`
	for i, values := range []map[string]float64{
		{limit: math.Inf(1), "x": 1}, {limit: 8, "x": 5}, {limit: 8, "x": 2}, {limit: 4}, {limit: math.Inf(1), "x": 3},
	} {
		rec.metrics.add(values, origin.Add(time.Duration(i)*time.Second))
	}
	out := analyse(rec, &scenario.Scenario{})
	g.Expect(out.Metrics).To(Equal(result.Metrics{
		Samples: 5, Final: map[string]float64{"x": 3}, Peaks: map[string]float64{limit: 8, "x": 5},
	}))
	g.Expect(out.Timeline).To(Equal([]result.Event{
		{At: 1, Kind: result.KindDriver, Object: "a", Message: "in-flight limit 8 (was none)"},
		{At: 3, Kind: result.KindDriver, Object: "a", Message: "in-flight limit 4 (was 8)"},
		{At: 4, Kind: result.KindDriver, Object: "a", Message: "in-flight limit none (was 4)"},
	}))
}
