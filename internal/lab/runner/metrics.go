// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/server"
)

const (
	// metricsEvery is how often the server's metrics are read. They can't be watched.
	metricsEvery = 250 * time.Millisecond
	// metricsLimit bounds one reading, so that a server that is being stopped doesn't hold the next one up.
	metricsLimit = 2 * time.Second
	// limitFamily is the in-flight limit of each driver, whose changes are events.
	limitFamily = "velero_csi_snapshots_limit"
	driverLabel = "driver"
)

// metricsRecord is what was read of the server's metrics.
type metricsRecord struct {
	samples      int
	final, peaks map[string]float64
	// limits are the present in-flight limits by driver, and changes what became of them.
	limits  map[string]float64
	changes []limitChange
}

// limitChange is a new in-flight limit of a driver; infinite when there is none.
type limitChange struct {
	at       time.Time
	driver   string
	from, to float64
}

// sampleMetrics reads the server's metrics again and again until the context ends. It is a sampled instrument: what comes
// and goes between two readings isn't seen. A server that is away gives no sample.
func (r *run) sampleMetrics(ctx context.Context) {
	again := time.NewTicker(metricsEvery)
	defer again.Stop()
	for ctx.Err() == nil {
		r.sampleOnce(ctx)
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

func (r *run) sampleOnce(ctx context.Context) {
	current := r.server.server()
	if current == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, metricsLimit)
	defer cancel()
	families, err := current.Metrics(limited)
	if err != nil {
		return
	}
	values, now := flatten(families), time.Now()
	r.board.view(func(rec *recording) { rec.metrics.add(values, now) })
}

// add takes a reading in. Who waits on the board waits for none of this, so nobody is woken.
func (m *metricsRecord) add(values map[string]float64, now time.Time) {
	m.samples++
	m.final = maps.Clone(values)
	for key, value := range values {
		if math.IsInf(value, 0) {
			delete(m.final, key) // no number in JSON, and no peak that tells anything
			continue
		}
		if peak, seen := m.peaks[key]; !seen || value > peak {
			m.peaks[key] = value
		}
	}
	limits := map[string]float64{}
	for key, value := range values {
		if driver, ok := strings.CutPrefix(key, limitFamily+"{"+driverLabel+"=\""); ok {
			limits[strings.TrimSuffix(driver, "\"}")] = value
		}
	}
	for _, driver := range slices.Sorted(maps.Keys(limits)) {
		before, known := m.limits[driver]
		if !known {
			before = math.Inf(1)
		}
		if before != limits[driver] {
			m.changes = append(m.changes, limitChange{at: now, driver: driver, from: before, to: limits[driver]})
		}
	}
	m.limits = limits
}

// flatten writes the families that matter as one map.
func flatten(families server.Metrics) map[string]float64 {
	out := map[string]float64{}
	for name, family := range families {
		if !strings.HasPrefix(name, "velero_csi_") && !strings.HasPrefix(name, "velero_hook_") {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := labelText(metric.GetLabel())
			if histogram := metric.GetHistogram(); histogram != nil {
				out[name+"_count"+labels], out[name+"_sum"+labels] = float64(histogram.GetSampleCount()), histogram.GetSampleSum()
				continue
			}
			value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetUntyped().GetValue()
			if !math.IsNaN(value) {
				out[name+labels] = value
			}
		}
	}
	return out
}

func labelText(pairs []*dto.LabelPair) string {
	if len(pairs) == 0 {
		return ""
	}
	parts := make([]string, 0, len(pairs))
	for _, pair := range pairs {
		parts = append(parts, fmt.Sprintf("%s=%q", pair.GetName(), pair.GetValue()))
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ",") + "}"
}

// metrics writes what was read, and the changes of limits into the timeline.
func (a *analysis) metrics() {
	m := a.rec.metrics
	a.out.Metrics = result.Metrics{Samples: m.samples, Final: maps.Clone(m.final), Peaks: maps.Clone(m.peaks)}
	for _, change := range m.changes {
		a.event(change.at, result.KindDriver, change.driver, fmt.Sprintf("in-flight limit %s (was %s)", limitText(change.to), limitText(change.from)))
	}
}

func limitText(limit float64) string {
	if math.IsInf(limit, 0) {
		return "none"
	}
	return strconv.FormatFloat(limit, 'g', -1, 64)
}
