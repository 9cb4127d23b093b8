// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are a server's metric families by name.
type Metrics map[string]*dto.MetricFamily

// Metrics reads the server's metrics.
func (s *Server) Metrics(ctx context.Context) (Metrics, error) {
	families, err := scrape(ctx, s.MetricsURL())
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of the Velero server: %w", err)
	}
	return families, nil
}

func scrape(ctx context.Context, url string) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return families, errors.Join(err, response.Body.Close())
}

// Value sums the samples of a counter or gauge, or the counts of a histogram or summary, that carry
// all the given labels. The second value is false when there is none.
func (m Metrics) Value(name string, labels map[string]string) (float64, bool) {
	sum, found := 0.0, false
	for _, metric := range m[name].GetMetric() {
		if !carries(metric, labels) {
			continue
		}
		found = true
		sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetUntyped().GetValue() +
			float64(metric.GetHistogram().GetSampleCount()) + float64(metric.GetSummary().GetSampleCount())
	}
	return sum, found
}

func carries(metric *dto.Metric, labels map[string]string) bool {
	matched := 0
	for _, pair := range metric.GetLabel() {
		if value, ok := labels[pair.GetName()]; ok {
			if value != pair.GetValue() {
				return false
			}
			matched++
		}
	}
	return matched == len(labels)
}
