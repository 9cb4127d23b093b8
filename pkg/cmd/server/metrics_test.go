// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/vmware-tanzu/velero/pkg/metrics"
	"google.golang.org/protobuf/proto"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// registerStock does what Velero's half does with its metrics when it starts.
func registerStock() *metrics.ServerMetrics {
	stock := metrics.NewServerMetrics()
	stock.RegisterAllMetrics()
	stock.InitSchedule("")
	return stock
}

// seriesOf returns the values of all series of a metric by the values of their labels; for a histogram the number of
// observations. It fails when a series is there twice.
func seriesOf(t testing.TB, name string) map[string]float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.Metric {
			key := ""
			for _, label := range metric.Label {
				key += label.GetValue()
			}
			NewWithT(t).Expect(values).NotTo(HaveKey(key), "%s is there twice", name)
			values[key] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestBothHalvesMetricsOnOneEndpoint(t *testing.T) {
	g := NewWithT(t)
	freshPrometheus(t)
	shared := shareMetrics()
	ours, stock := shared.server, registerStock()

	// Counters add up: each event is counted by one half only.
	ours.RegisterBackupAttempt("nightly")
	ours.RegisterBackupAttempt("nightly")
	ours.RegisterBackupDeletionAttempt("")
	stock.RegisterBackupAttempt("nightly")
	stock.RegisterRestoreAttempt("")
	g.Expect(seriesOf(t, "velero_backup_attempt_total")).To(Equal(map[string]float64{"": 0, "nightly": 3}))
	g.Expect(seriesOf(t, "velero_backup_deletion_attempt_total")).To(Equal(map[string]float64{"": 1}))
	g.Expect(seriesOf(t, "velero_restore_attempt_total")).To(Equal(map[string]float64{"": 1}))

	// Gauges of backups are ours, whatever Velero's half initialised them to.
	stock.InitSchedule("nightly")
	stock.InitSchedule("new")
	ours.RegisterBackupLastStatus("nightly", metrics.BackupLastStatusFailure)
	ours.SetBackupTotal(7)
	g.Expect(seriesOf(t, "velero_backup_last_status")).To(Equal(map[string]float64{"": 1, "nightly": 0, "new": 1}))
	g.Expect(seriesOf(t, "velero_backup_total")).To(Equal(map[string]float64{"": 7}))

	// Those of restores and of storage locations are not, though a location's begin as a backup's do.
	stock.SetRestoreTotal(4)
	stock.RegisterBackupLocationAvailable("default")
	ours.RegisterBackupLocationUnavailable("default")
	g.Expect(seriesOf(t, "velero_restore_total")).To(Equal(map[string]float64{"": 4}))
	g.Expect(seriesOf(t, "velero_backup_location_status_gauge")).To(Equal(map[string]float64{"default": 1}))

	// A histogram has the observations of the half that makes them.
	ours.RegisterBackupDuration("nightly", 12)
	g.Expect(seriesOf(t, "velero_backup_duration_seconds")).To(HaveKeyWithValue("nightly", 1.0))
}

func TestNamesAreStocks(t *testing.T) {
	g := NewWithT(t)
	names := func() (found []string) {
		families, err := prometheus.DefaultGatherer.Gather()
		g.Expect(err).NotTo(HaveOccurred())
		for _, family := range families {
			found = append(found, family.GetName())
		}
		return found
	}
	freshPrometheus(t)
	registerStock()
	alone := names()

	freshPrometheus(t)
	shared := shareMetrics()
	registerStock()
	g.Expect(names()).To(Equal(alone), "the same, once, and in order")

	extra := prometheus.NewGauge(prometheus.GaugeOpts{Name: "velero_extra"})
	g.Expect(shared.registry.Register(extra)).To(Succeed())
	extra.Set(3)
	g.Expect(seriesOf(t, "velero_extra")).To(Equal(map[string]float64{"": 3}))
	g.Expect(slices.IsSorted(names())).To(BeTrue())
}

func TestGatheringFailsWithEitherHalf(t *testing.T) {
	fine := prometheus.NewRegistry()
	failing := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errBoom })
	for name, both := range map[string]bothGatherers{"ours": {ours: failing, stock: fine}, "stock": {ours: fine, stock: failing}} {
		t.Run(name, func(t *testing.T) {
			_, err := both.Gather()
			NewWithT(t).Expect(err).To(MatchError(errBoom))
		})
	}
}

func TestMergeDoesNotChangeWhatWasGathered(t *testing.T) {
	g := NewWithT(t)
	counter := func(value float64) *dto.MetricFamily {
		return &dto.MetricFamily{Name: proto.String("velero_backup_attempt_total"), Type: dto.MetricType_COUNTER.Enum(), Metric: []*dto.Metric{{Counter: &dto.Counter{Value: proto.Float64(value)}}}}
	}
	stock, ours := counter(1), counter(2)
	merged := merge([]*dto.MetricFamily{stock}, []*dto.MetricFamily{ours})
	g.Expect(merged).To(HaveLen(1))
	g.Expect(merged[0].Metric).To(HaveLen(1))
	g.Expect(merged[0].Metric[0].GetCounter().GetValue()).To(Equal(3.0))
	g.Expect(stock.Metric[0].GetCounter().GetValue()).To(Equal(1.0))
	g.Expect(ours.Metric[0].GetCounter().GetValue()).To(Equal(2.0))
}

func TestStockIsUpWhenItRegistersItsOwnMetrics(t *testing.T) {
	gauge := func(name, help string) prometheus.Collector {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	t.Run("others say nothing", func(t *testing.T) {
		g := NewWithT(t)
		registry := freshPrometheus(t)
		g.Expect(registry.Register(gauge("velero_known", ""))).To(Succeed())
		shared := shareMetrics()
		prometheus.MustRegister(gauge("go_things", ""), gauge("my_velero_things", ""), gauge("things", `fqName: "velero_things"`))
		g.Expect(shared.registry.Register(gauge("velero_ours", ""))).To(Succeed())
		g.Expect(isClosed(shared.stockIsUp)).To(BeFalse())

		g.Expect(prometheus.Register(gauge("velero_known", ""))).NotTo(Succeed())
		g.Expect(func() { prometheus.MustRegister(gauge("velero_known", "")) }).To(Panic())
		g.Expect(isClosed(shared.stockIsUp)).To(BeFalse(), "a metric that wasn't registered says nothing either")
	})
	t.Run("its own do", func(t *testing.T) {
		g := NewWithT(t)
		freshPrometheus(t)
		shared := shareMetrics()
		g.Expect(isClosed(shared.stockIsUp)).To(BeFalse())
		registerStock() // some fifty of them; the signal is given once
		g.Expect(isClosed(shared.stockIsUp)).To(BeTrue())
		g.Expect(prometheus.Register(gauge("velero_later", ""))).To(Succeed())
	})
	t.Run("and they are in its registry", func(t *testing.T) {
		g := NewWithT(t)
		registry := freshPrometheus(t)
		shareMetrics()
		later := gauge("velero_later", "")
		prometheus.MustRegister(later)
		families, err := registry.Gather()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(families).To(HaveLen(1))
		g.Expect(prometheus.Unregister(later)).To(BeTrue())
	})
}

func TestWhoseMetricsAreOurs(t *testing.T) {
	for name, want := range map[string]bool{
		"velero_backup_total": true, "velero_backup_last_status": true, "velero_backup_deletion_attempt_total": true,
		"velero_csi_snapshot_attempt_total": true, "velero_volume_snapshot_attempt_total": true,
		"velero_backup_location_status_gauge": false, "velero_restore_total": false, "velero_repo_maintenance_total": false, "go_goroutines": false,
	} {
		NewWithT(t).Expect(isOurs(name)).To(Equal(want), name)
	}
}

func TestFreezeSecondsIsWellFormed(t *testing.T) {
	g := NewWithT(t)
	registry := prometheus.NewPedanticRegistry()
	g.Expect(registry.Register(newFreezeSeconds())).To(Succeed())
	problems, err := testutil.GatherAndLint(registry)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(problems).To(BeEmpty())
}
