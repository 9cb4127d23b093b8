// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	_ "embed"

	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

//go:embed demo.yaml
var workload []byte

// Workload parses the demo's scenario. Each call gives a value of its own.
func Workload() (*scenario.Scenario, error) { return scenario.Parse("demo.yaml", workload) }

// variant is one row of the table.
type variant struct {
	name, explanation string
	// floor takes the snapshots with no Velero.
	floor  bool
	server scenario.Server
}

// variants are the rows in the order of the table. The last is the one whose timeline is shown.
func variants() []variant {
	return []variant{
		{
			name: "floor", floor: true,
			explanation: "the same VolumeSnapshots with no Velero at all: nothing can be faster",
		},
		{
			name: "stock", explanation: "Velero's own engine, as shipped",
			server: scenario.Server{Engine: scenario.EngineStock},
		},
		{
			name: "stock, tuned", explanation: "20 item-block workers and early frequent polling",
			server: scenario.Server{
				Engine: scenario.EngineStock, Args: []string{"--item-block-worker-count=20"},
				Env: map[string]string{"CSI_SNAPSHOT_EARLY_FREQUENT_POLLING": "true"},
			},
		},
		{
			name: "clipper", explanation: "Clipper's engine with its defaults",
			server: scenario.Server{Engine: scenario.EngineParallel},
		},
	}
}
