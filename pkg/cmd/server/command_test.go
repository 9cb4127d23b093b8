// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func TestParallelismFlag(t *testing.T) {
	t.Run("default", func(t *testing.T) {
		g := NewWithT(t)
		s := newStock()
		Extend(s.server)
		flag := s.server.Flag(ParallelismFlag)
		g.Expect(flag.Value.String()).To(Equal("50"))
		g.Expect(flag.DefValue).To(Equal("50"))
	})
	for given, want := range map[string]string{"0": "0", "1": "1", "200": "200", "10%": "10%", "100%": "100%", "unlimited": "unlimited", "Unlimited": "unlimited"} {
		t.Run(given, func(t *testing.T) {
			g := NewWithT(t)
			s := newStock()
			Extend(s.server)
			g.Expect(s.server.ParseFlags([]string{"--" + ParallelismFlag, given})).To(Succeed())
			g.Expect(s.server.Flag(ParallelismFlag).Value.String()).To(Equal(want))
		})
	}
	for _, bad := range []string{"", "-1", "many", "1.5", "0%", "101%", "%", "10 %", "99999999999"} {
		t.Run("refused "+bad, func(t *testing.T) {
			g := NewWithT(t)
			s := newStock()
			Extend(s.server)
			output, err := s.execute("--" + ParallelismFlag + "=" + bad)
			g.Expect(err).To(HaveOccurred())
			g.Expect(s.runs).To(BeEmpty())
			g.Expect(output).To(And(
				ContainSubstring("--"+ParallelismFlag),
				ContainSubstring("a number of at least 1"), ContainSubstring(`from "1%" to "100%"`), ContainSubstring(`"unlimited"`), ContainSubstring(`"0" for Velero's own engine`),
				ContainSubstring("See 'velero server --help' for all flags"),
			))
			g.Expect(output).NotTo(Or(ContainSubstring("Usage:"), ContainSubstring("--plugin-dir")), "the usage text drowns the error")
		})
	}
}

func TestOtherFlagErrorsAreShortToo(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {"--default-backup-ttl=soon"}, {"--log-level=loud"}, {"--restore-only=perhaps"}} {
		t.Run(args[0], func(t *testing.T) {
			g := NewWithT(t)
			s := newStock()
			Extend(s.server)
			output, err := s.execute(args...)
			g.Expect(err).To(HaveOccurred())
			g.Expect(s.runs).To(BeEmpty())
			g.Expect(output).To(ContainSubstring("See 'velero server --help'"))
			g.Expect(output).NotTo(ContainSubstring("Usage:"))
		})
	}
	t.Run("help has them all", func(t *testing.T) {
		g := NewWithT(t)
		s := newStock()
		Extend(s.server)
		output, err := s.execute("--help")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(output).To(And(ContainSubstring("--plugin-dir"), ContainSubstring("--"+ParallelismFlag), Not(ContainSubstring("See 'velero"))))
	})
}

func TestStockServerIsRunUntouched(t *testing.T) {
	for name, args := range map[string][]string{
		"stock engine":                {"--" + ParallelismFlag + "=0", "--disable-controllers=schedule"},
		"restore only":                {"--restore-only", "--disable-controllers=schedule"},
		"restore only and a parallel": {"--restore-only", "--" + ParallelismFlag + "=10", "--disable-controllers=schedule"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			noCluster(t) // nothing of ours may look for one
			keepBindAddress(t)
			registry := freshPrometheus(t)
			s := newStock()
			Extend(s.server)
			output, err := s.execute(append(args, "an", "argument")...)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(output).To(BeEmpty())
			g.Expect(s.runs).To(Equal([][]string{{"an", "argument"}}))
			g.Expect(s.config.DisabledControllers).To(Equal([]string{"schedule"}))
			g.Expect(prometheus.DefaultRegisterer).To(BeIdenticalTo(registry))
			g.Expect(prometheus.DefaultGatherer).To(BeIdenticalTo(registry))
			g.Expect(metricsserver.DefaultBindAddress).To(Equal("0"), "two servers on a host would collide")
		})
	}
}

func TestNoCluster(t *testing.T) {
	for name, args := range map[string][]string{"nothing said": nil, "missing file": {"--kubeconfig=/missing/file"}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			noCluster(t)
			keepBindAddress(t)
			registry := freshPrometheus(t)
			s := newStock()
			Extend(s.server)
			output, err := s.execute(args...)
			g.Expect(err).To(MatchError(And(
				ContainSubstring("finding a cluster to serve"), ContainSubstring("pass --kubeconfig, set KUBECONFIG (it is "), ContainSubstring(os.Getenv("KUBECONFIG")),
			)))
			g.Expect(output).NotTo(ContainSubstring("Usage:"))
			g.Expect(s.runs).To(BeEmpty())
			g.Expect(prometheus.DefaultGatherer).To(BeIdenticalTo(registry))
		})
	}
	t.Run("unreadable client configuration", func(t *testing.T) {
		g := NewWithT(t)
		noCluster(t)
		keepBindAddress(t)
		dir := filepath.Join(os.Getenv("HOME"), ".config", "velero")
		g.Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, "config.json"), []byte("{"), 0o600)).To(Succeed())
		s := newStock()
		Extend(s.server)
		_, err := s.execute()
		g.Expect(err).To(MatchError(ContainSubstring("reading Velero's client configuration")))
		g.Expect(s.runs).To(BeEmpty())
	})
}
