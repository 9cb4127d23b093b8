// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/vmware-tanzu/velero/pkg/metrics"
	"google.golang.org/protobuf/proto"
)

// sharedMetrics is what the two halves share.
type sharedMetrics struct {
	// server are the metrics of our half's controllers.
	server *metrics.ServerMetrics
	// registry has them, and takes more.
	registry prometheus.Registerer
	// stockIsUp is closed when Velero's half has cleaned up behind an earlier server and starts its controllers.
	stockIsUp <-chan struct{}
}

// shareMetrics prepares Prometheus's defaults for two halves. It must be called once, before Velero's half is started. That half
// registers its metrics once, between its clean-up and the start of its controllers, which is how we know that it is up.
//
// Velero's half serves what prometheus.DefaultGatherer has, so that is where the two come together.
func shareMetrics() sharedMetrics {
	stockRegisterer, stockGatherer := prometheus.DefaultRegisterer, prometheus.DefaultGatherer

	ours := prometheus.NewRegistry()
	prometheus.DefaultRegisterer = ours
	serverMetrics := metrics.NewServerMetrics()
	serverMetrics.RegisterAllMetrics()
	serverMetrics.InitSchedule("")

	up := make(chan struct{})
	prometheus.DefaultRegisterer = &announcing{Registerer: stockRegisterer, announce: sync.OnceFunc(func() { close(up) })}
	prometheus.DefaultGatherer = bothGatherers{ours: ours, stock: stockGatherer}
	return sharedMetrics{server: serverMetrics, registry: ours, stockIsUp: up}
}

// newFreezeSeconds makes the histogram of freeze windows. It has no labels: which pod was frozen for how long is in the
// backup's log.
func newFreezeSeconds() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "velero_hook_freeze_seconds",
		Help:    "Time from the start of a pod's first pre hook to the end of its last post hook",
		Buckets: []float64{0.5, 1, 2.5, 5, 10, 15, 30, 60, 120, 300, 600},
	})
}

// announcing tells when the first of Velero's server metrics is registered.
type announcing struct {
	prometheus.Registerer
	announce func()
}

// Register implements prometheus.Registerer.
func (a *announcing) Register(collector prometheus.Collector) error {
	err := a.Registerer.Register(collector)
	if err == nil && isServerMetric(collector) {
		a.announce()
	}
	return err
}

// MustRegister implements prometheus.Registerer.
func (a *announcing) MustRegister(collectors ...prometheus.Collector) {
	for _, collector := range collectors {
		if err := a.Register(collector); err != nil {
			panic(err)
		}
	}
}

func isServerMetric(collector prometheus.Collector) bool {
	descriptions := make(chan *prometheus.Desc)
	go func() { // ends when the collector has described itself
		collector.Describe(descriptions)
		close(descriptions)
	}()
	found := false
	for description := range descriptions {
		found = found || strings.Contains(description.String(), `fqName: "velero_`)
	}
	return found
}

// bothGatherers gathers the metrics of both halves, each series once.
type bothGatherers struct{ ours, stock prometheus.Gatherer }

// Gather implements prometheus.Gatherer.
func (b bothGatherers) Gather() ([]*dto.MetricFamily, error) {
	stock, err := b.stock.Gather()
	if err != nil {
		return nil, err
	}
	ours, err := b.ours.Gather()
	if err != nil {
		return nil, err
	}
	return merge(stock, ours), nil
}

// merge joins families of the same name. A counter that both halves have counts in only one of them, so its values add up.
// For gauges and histograms the half counts whose controllers set them.
func merge(stock, ours []*dto.MetricFamily) []*dto.MetricFamily {
	byName := map[string]*dto.MetricFamily{}
	for _, family := range stock {
		byName[family.GetName()] = proto.CloneOf(family)
	}
	for _, family := range ours {
		known := byName[family.GetName()]
		if known == nil {
			byName[family.GetName()] = family
			continue
		}
		mergeFamily(known, family)
	}
	merged := make([]*dto.MetricFamily, 0, len(byName))
	for _, family := range byName {
		merged = append(merged, family)
	}
	slices.SortFunc(merged, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return merged
}

func mergeFamily(known, family *dto.MetricFamily) {
	at := map[string]int{}
	for i, metric := range known.Metric {
		at[labelsOf(metric)] = i
	}
	for _, metric := range family.Metric {
		i, both := at[labelsOf(metric)]
		switch {
		case !both:
			known.Metric = append(known.Metric, metric)
		case known.GetType() == dto.MetricType_COUNTER:
			known.Metric[i].Counter.Value = proto.Float64(known.Metric[i].GetCounter().GetValue() + metric.GetCounter().GetValue())
		case isOurs(known.GetName()):
			known.Metric[i] = metric
		}
	}
	slices.SortFunc(known.Metric, func(a, b *dto.Metric) int { return cmp.Compare(labelsOf(a), labelsOf(b)) })
}

// isOurs says whether a metric is set by the five controllers of our half. Of Velero's other metrics only those of storage
// locations have a name that looks like one of a backup.
func isOurs(name string) bool {
	for _, prefix := range []string{"velero_backup_", "velero_csi_snapshot_", "velero_volume_snapshot_"} {
		if strings.HasPrefix(name, prefix) && !strings.HasPrefix(name, "velero_backup_location_") {
			return true
		}
	}
	return false
}

func labelsOf(metric *dto.Metric) string {
	var text strings.Builder
	for _, label := range metric.Label {
		text.WriteString(label.GetName() + "\x00" + label.GetValue() + "\x00")
	}
	return text.String()
}
