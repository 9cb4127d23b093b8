// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"strings"

	dto "github.com/prometheus/client_model/go"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/velero-clipper/clipper/internal/lab/server"
)

// timedMetrics change with time, or hold one.
var timedMetrics = map[string]bool{
	"velero_backup_total":                     true, // recomputed every minute
	"velero_backup_last_successful_timestamp": true,
	"velero_backup_location_status_gauge":     true, // of the location, not of the backup
	"velero_backup_duration_seconds":          true,
	"velero_backup_tarball_size_bytes":        true, // times and names have different lengths
}

// comparedMetrics are the families that Velero documents about backups. What our engine adds has other names.
var comparedMetrics = []string{
	"velero_backup_", "velero_volume_snapshot_",
	"velero_csi_snapshot_attempt_", "velero_csi_snapshot_success_", "velero_csi_snapshot_failure_",
}

// readMetrics reads what the backup added to counters, and the values that gauges have now.
func (o observed) readMetrics(ctx context.Context, out *Observation) error {
	after, err := o.engine.server.Metrics(ctx)
	if err != nil {
		return err
	}
	values := map[string]any{}
	old := samples(o.before.metrics)
	for key, sample := range samples(after) {
		value := sample.value
		if !sample.gauge {
			value -= old[key].value
		}
		if sample.gauge && !o.setsGauges() && !strings.Contains(key, "last_status") {
			continue // it still has the value of the backup before
		}
		if value != 0 || strings.Contains(key, "last_status") {
			values[key] = value
		}
	}
	out.Sections["metrics"] = values
	return nil
}

// setsGauges says whether the backup came far enough to set all gauges.
func (o observed) setsGauges() bool {
	phase := o.backup.Status.Phase
	return phase == velerov1.BackupPhaseCompleted || phase == velerov1.BackupPhasePartiallyFailed
}

type sample struct {
	value float64
	gauge bool
}

func samples(metrics server.Metrics) map[string]sample {
	out := map[string]sample{}
	for name, family := range metrics {
		if timedMetrics[name] || !compared(name) {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, pair := range metric.GetLabel() {
				labels = append(labels, pair.GetName()+"="+pair.GetValue())
			}
			out[name+"{"+strings.Join(labels, ",")+"}"] = sample{
				value: metric.GetCounter().GetValue() + metric.GetGauge().GetValue(),
				gauge: family.GetType() == dto.MetricType_GAUGE,
			}
		}
	}
	return out
}

func compared(name string) bool {
	for _, prefix := range comparedMetrics {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
