// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import "github.com/prometheus/client_golang/prometheus"

// Metrics of a Taker. It is a prometheus.Collector: the caller registers it.
type Metrics struct {
	inFlight, queued, limit *prometheus.GaugeVec
	cut, failed             *prometheus.CounterVec
	cutSeconds              *prometheus.HistogramVec
}

// NewMetrics makes the metrics of one Taker.
func NewMetrics() *Metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"driver"})
	}
	return &Metrics{
		inFlight: gauge("velero_csi_snapshots_in_flight", "CSI snapshots whose creation has started and that are neither cut nor failed"),
		queued:   gauge("velero_csi_snapshots_queued", "CSI snapshots that wait for their turn"),
		limit:    gauge("velero_csi_snapshots_driver_limit", "In-flight limit of a driver that throttles; 0 when it has none"),
		cut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "velero_csi_snapshots_cut_total", Help: "CSI snapshots that were cut",
		}, []string{"driver"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "velero_csi_snapshots_failed_total", Help: "CSI snapshots that failed, by reason",
		}, []string{"driver", "reason"}),
		cutSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "velero_csi_snapshot_cut_seconds",
			Help:    "Time from the creation of a VolumeSnapshot to its cut",
			Buckets: []float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800},
		}, []string{"driver"}),
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
	return []prometheus.Collector{m.inFlight, m.queued, m.limit, m.cut, m.failed, m.cutSeconds}
}

// load shows what a driver has to do.
func (m *Metrics) load(d *driver) {
	m.inFlight.WithLabelValues(d.name).Set(float64(d.inFlight))
	m.queued.WithLabelValues(d.name).Set(float64(d.queued))
	m.limit.WithLabelValues(d.name).Set(float64(d.pace.current()))
}
