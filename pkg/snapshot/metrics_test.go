// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// series gives the values of all series, by name, driver and reason; of a histogram, the number of observations.
func series(g *WithT, m *Metrics) map[string]float64 {
	registry := prometheus.NewPedanticRegistry()
	g.Expect(registry.Register(m)).To(Succeed())
	families, err := registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += "/" + label.GetValue()
			}
			found[name] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return found
}

func TestMetrics(t *testing.T) {
	inBubble(t, parallelism("2"), nil, func(h *harness) {
		snaps := h.taker.Take(h.ctx, requests(5)...)
		synctest.Wait()
		h.Expect(series(h.WithT, h.taker.Metrics())).To(And(
			HaveKeyWithValue("velero_csi_snapshots_in_flight/driver", 2.0),
			HaveKeyWithValue("velero_csi_snapshots_queued/driver", 3.0)))
		h.pass(time.Second)
		h.api.cut(keyOf(request(0)))
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(series(h.WithT, h.taker.Metrics())).To(And(
			HaveKeyWithValue("velero_csi_snapshots_in_flight/driver", 0.0),
			HaveKeyWithValue("velero_csi_snapshots_queued/driver", 0.0),
			HaveKeyWithValue("velero_csi_snapshot_cut_seconds/driver/cut", 1.0),
			HaveKeyWithValue("velero_csi_snapshot_cut_seconds/driver/failed", 3.0),
			HaveKeyWithValue("velero_csi_snapshot_queue_seconds/driver", 4.0),
			HaveKeyWithValue("velero_csi_snapshots_limit/driver", 2.0),
			HaveKeyWithValue("velero_csi_snapshots_failed_total/driver/TimedOut", 2.0),
			HaveKeyWithValue("velero_csi_snapshots_failed_total/driver/NoProgress", 2.0)))
	})
}

func TestMetricsAreWellFormed(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) { a.cutAfter(time.Second) }, func(h *harness) {
		h.Expect(Wait(h.ctx, h.taker.Take(h.ctx, requests(2)...)...)).To(Succeed())
		registry := prometheus.NewPedanticRegistry()
		h.Expect(registry.Register(h.taker.Metrics())).To(Succeed())
		problems, err := testutil.GatherAndLint(registry)
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(problems).To(BeEmpty())
		families, err := registry.Gather()
		h.Expect(err).NotTo(HaveOccurred())
		for _, family := range families {
			for _, label := range family.GetMetric()[0].GetLabel() {
				h.Expect(label.GetName()).To(BeElementOf("driver", "reason", "result", "verdict"), family.GetName())
			}
		}
	})
}
