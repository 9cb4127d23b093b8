// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/vmware-tanzu/velero/pkg/client"
	"github.com/vmware-tanzu/velero/pkg/cmd/server/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var errBoom = errors.New("boom")

// stock is a server command with Velero's flags below a root with Velero's global ones. Its Run only notes that it was called.
type stock struct {
	root, server *cobra.Command
	config       *config.Config
	runs         [][]string
}

func newStock() *stock {
	s := &stock{config: config.GetDefaultConfig(), root: &cobra.Command{Use: "velero"}}
	client.NewFactory("velero", client.VeleroConfig{}).BindFlags(s.root.PersistentFlags())
	s.server = &cobra.Command{Use: "server", Run: func(_ *cobra.Command, args []string) { s.runs = append(s.runs, args) }}
	s.config.BindFlags(s.server.Flags())
	s.root.AddCommand(s.server)
	return s
}

// execute runs `velero server` and returns what it printed.
func (s *stock) execute(args ...string) (string, error) {
	var out bytes.Buffer
	s.root.SetOut(&out)
	s.root.SetErr(&out)
	s.root.SetArgs(append([]string{"server"}, args...))
	err := s.root.Execute()
	return out.String(), err
}

// freshPrometheus gives a test defaults of its own, and returns the registry that stands for that of Velero's half.
func freshPrometheus(t testing.TB) *prometheus.Registry {
	t.Helper()
	registerer, gatherer := prometheus.DefaultRegisterer, prometheus.DefaultGatherer
	t.Cleanup(func() { prometheus.DefaultRegisterer, prometheus.DefaultGatherer = registerer, gatherer })
	registry := prometheus.NewRegistry()
	prometheus.DefaultRegisterer, prometheus.DefaultGatherer = registry, registry
	return registry
}

// keepBindAddress restores controller-runtime's metrics address after a test.
func keepBindAddress(t testing.TB) {
	t.Helper()
	before := metricsserver.DefaultBindAddress
	t.Cleanup(func() { metricsserver.DefaultBindAddress = before })
}

// noCluster takes every way to a cluster and to a user's configuration away.
func noCluster(t *testing.T) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("KUBECONFIG", home+"/missing")
	t.Setenv("KUBERNETES_MASTER", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("VELERO_NAMESPACE", "")
}
