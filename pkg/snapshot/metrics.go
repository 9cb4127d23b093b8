// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of a snapshot, as in the metrics' labels.
const (
	resultCut    = "cut"
	resultReady  = "ready"
	resultFailed = "failed"
)

// durationBuckets are those of external-snapshotter's own histograms, in seconds, so that the two can be laid over each
// other.
var durationBuckets = []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300, 600}

// Metrics of a Taker. It is a prometheus.Collector: the caller registers it. No series has a label for a backup, a claim or
// a namespace, so their number stays that of the drivers.
type Metrics struct {
	inFlight, queued, limit                *prometheus.GaugeVec
	failed, verdicts                       *prometheus.CounterVec
	queueSeconds, cutSeconds, readySeconds *prometheus.HistogramVec
}

// NewMetrics makes the metrics of one Taker.
func NewMetrics() *Metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"driver"})
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"driver", label})
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: durationBuckets}, append([]string{"driver"}, labels...))
	}
	return &Metrics{
		inFlight: gauge("velero_csi_snapshots_in_flight", "CSI snapshots whose creation has started and that are neither cut nor failed"),
		queued:   gauge("velero_csi_snapshots_queued", "CSI snapshots that wait for their turn"),
		limit:    gauge("velero_csi_snapshots_limit", "How many CSI snapshots of a driver may be in flight at present; +Inf when any number may"),
		failed:   counter("velero_csi_snapshots_failed_total", "CSI snapshots that failed before they were cut, by reason", "reason"),
		verdicts: counter("velero_csi_snapshot_verdicts_total", "Verdicts on errors that CSI snapshots showed", "verdict"),
		queueSeconds: histogram("velero_csi_snapshot_queue_seconds",
			"Time from the request for a CSI snapshot to its start"),
		cutSeconds: histogram("velero_csi_snapshot_cut_seconds",
			"Time from the creation of a VolumeSnapshot to its cut, or to its failure", "result"),
		readySeconds: histogram("velero_csi_snapshot_ready_seconds",
			"Time from the creation of a VolumeSnapshot that was cut to its readiness, or to the error that rules it out", "result"),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.inFlight, m.queued, m.limit, m.failed, m.verdicts, m.queueSeconds, m.cutSeconds, m.readySeconds,
	}
}

// load shows what a driver has to do.
func (m *Metrics) load(d *driver) {
	m.inFlight.WithLabelValues(d.name).Set(float64(d.inFlight))
	m.queued.WithLabelValues(d.name).Set(float64(d.queued))
}

// limits shows what a driver may have in flight; 0 means no limit.
func (m *Metrics) limits(driver string, limit int) {
	value := float64(limit)
	if limit == 0 {
		value = math.Inf(1)
	}
	m.limit.WithLabelValues(driver).Set(value)
}
