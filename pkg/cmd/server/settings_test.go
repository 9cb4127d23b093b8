// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/vmware-tanzu/velero/pkg/cmd/server/config"
)

// valueFor returns a value for a flag that isn't its default.
func valueFor(flag *pflag.Flag) string {
	special := map[string]string{
		"log-level": "debug", "log-format": "json", "restore-resource-priorities": "pods,services,-,secrets",
		"default-volume-snapshot-locations": "aws:east,gcp:only", "uploader-type": "other",
	}
	byType := map[string]string{"bool": "true", "duration": "7m", "string": "other", "int": "77", "float32": "7.5", "stringSlice": "schedule,restore"}
	if value, found := special[flag.Name]; found {
		return value
	}
	return byType[flag.Value.Type()]
}

func TestEveryFlagIsFollowed(t *testing.T) {
	count := 0
	newStock().server.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		count++
		t.Run(flag.Name, func(t *testing.T) {
			g := NewWithT(t)
			s := newStock()
			followed := follow(s.server)
			g.Expect(followed.config).To(Equal(s.config), "both begin with the defaults")

			value := valueFor(flag)
			g.Expect(value).NotTo(BeEmpty(), "type %s is new here", flag.Value.Type())
			g.Expect(s.server.ParseFlags([]string{"--" + flag.Name + "=" + value})).To(Succeed())
			g.Expect(s.config).NotTo(Equal(config.GetDefaultConfig()), "Velero's copy")
			g.Expect(followed.config).To(Equal(s.config), "our copy")
			g.Expect(s.server.Flag(flag.Name).Changed).To(BeTrue())
		})
	})
	NewWithT(t).Expect(count).To(BeNumerically(">", 30))
}

func TestFlagsOfEachTypeHaveTheirValues(t *testing.T) {
	g := NewWithT(t)
	s := newStock()
	followed := follow(s.server)
	g.Expect(s.server.ParseFlags([]string{
		"--default-snapshot-move-data", // a boolean without a value
		"--default-backup-ttl=1h30m", "--client-qps=12.5", "--item-block-worker-count=4", "--plugin-dir=/here",
		"--disable-controllers=schedule", "--disable-controllers=restore,gc", // a repeated list grows
		"--default-volume-snapshot-locations=aws:east,gcp:only", "--log-level=warning", "--log-format=json",
	})).To(Succeed())
	ours := followed.config
	g.Expect(ours.DefaultSnapshotMoveData).To(BeTrue())
	g.Expect(ours.DefaultBackupTTL.String()).To(Equal("1h30m0s"))
	g.Expect(ours.ClientQPS).To(Equal(float32(12.5)))
	g.Expect(ours.ItemBlockWorkerCount).To(Equal(4))
	g.Expect(ours.PluginDir).To(Equal("/here"))
	g.Expect(ours.DisabledControllers).To(Equal([]string{"schedule", "restore", "gc"}))
	g.Expect(ours.DefaultVolumeSnapshotLocations.Data()).To(Equal(map[string]string{"aws": "east", "gcp": "only"}))
	g.Expect(ours.LogLevel.Parse().String()).To(Equal("warning"))
	g.Expect(string(ours.LogFormat.Parse())).To(Equal("json"))
	g.Expect(ours).To(Equal(s.config))
}

func TestBadValueIsNotFollowed(t *testing.T) {
	g := NewWithT(t)
	s := newStock()
	followed := follow(s.server)
	g.Expect(s.server.ParseFlags([]string{"--client-burst=lots"})).NotTo(Succeed())
	g.Expect(followed.config.ClientBurst).To(Equal(100))
}

func TestHelpIsStocksAndOurFlags(t *testing.T) {
	g := NewWithT(t)
	plain, extended := newStock(), newStock()
	Extend(extended.server)
	isOurs := func(line string) bool {
		_, flag, _ := strings.Cut(line, "--")
		name, _, _ := strings.Cut(flag, " ")
		return plain.server.Flag(name) == nil
	}
	var before, after []string
	for line := range strings.Lines(plain.server.Flags().FlagUsages()) {
		before = append(before, strings.Join(strings.Fields(line), " "))
	}
	for line := range strings.Lines(extended.server.Flags().FlagUsages()) {
		if !isOurs(line) {
			after = append(after, strings.Join(strings.Fields(line), " "))
		}
	}
	g.Expect(after).To(Equal(before))
}

func TestControllersOfTheTwoHalves(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		ours   []string
		stocks []string // switched off in Velero's half
	}{
		{
			name:   "nothing said",
			ours:   []string{"backup", "backup-queue", "backup-operations", "backup-finalizer", "backup-deletion"},
			stocks: []string{"backup", "backup-queue", "backup-operations", "backup-finalizer", "backup-deletion"},
		},
		{
			name:   "others are off",
			args:   []string{"--disable-controllers=schedule,gc"},
			ours:   []string{"backup", "backup-queue", "backup-operations", "backup-finalizer", "backup-deletion"},
			stocks: []string{"schedule", "gc", "backup", "backup-queue", "backup-operations", "backup-finalizer", "backup-deletion"},
		},
		{
			name:   "some of ours are off",
			args:   []string{"--disable-controllers=backup-deletion,schedule", "--disable-controllers", "backup"},
			ours:   []string{"backup-queue", "backup-operations", "backup-finalizer"},
			stocks: []string{"backup-deletion", "schedule", "backup", "backup-queue", "backup-operations", "backup-finalizer"},
		},
		{
			name:   "all of ours are off",
			args:   []string{"--disable-controllers=backup,backup-queue,backup-operations,backup-finalizer,backup-deletion"},
			stocks: []string{"backup", "backup-queue", "backup-operations", "backup-finalizer", "backup-deletion"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			s := newStock()
			followed := follow(s.server)
			g.Expect(s.server.ParseFlags(c.args)).To(Succeed())
			asked := append([]string(nil), followed.config.DisabledControllers...)

			names := followed.ours()
			g.Expect(names).To(HaveExactElements(c.ours))
			g.Expect(disableControllers(s.server, names)).To(Succeed())
			g.Expect(s.config.DisabledControllers).To(ConsistOf(c.stocks), "each once")
			g.Expect(config.DisableableControllers).To(ContainElements(s.config.DisabledControllers))
			g.Expect(followed.config.DisabledControllers).To(Equal(asked), "ours keeps what the user said")
			for _, name := range backupControllers {
				g.Expect((&second{secondDeps: secondDeps{names: names}}).runs(name)).To(Equal(contains(c.ours, name)), name)
			}
		})
	}
	t.Run("blanks around names", func(t *testing.T) {
		s := &settings{config: &config.Config{DisabledControllers: []string{" backup ", "backup-queue"}}}
		NewWithT(t).Expect(s.ours()).To(HaveExactElements("backup-operations", "backup-finalizer", "backup-deletion"))
	})
}

func contains(list []string, name string) bool {
	for _, entry := range list {
		if entry == name {
			return true
		}
	}
	return false
}

func TestControllersThatCantBeSwitchedOff(t *testing.T) {
	g := NewWithT(t)
	g.Expect(disableControllers(&cobra.Command{}, backupControllers)).To(MatchError(ContainSubstring("has no flag --disable-controllers")))
	g.Expect(disableControllers(newStock().server, backupControllers)).To(MatchError(ContainSubstring("is not followed")))
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: a
contexts:
- {name: a, context: {cluster: a, user: u}}
- {name: b, context: {cluster: b, user: u}}
clusters:
- {name: a, cluster: {server: "https://a.example:6443"}}
- {name: b, cluster: {server: "https://b.example:6443"}}
users:
- {name: u, user: {token: secret}}
`

func TestFactoryServesTheClusterOfTheCommandLine(t *testing.T) {
	file := func(t *testing.T) string {
		path := filepath.Join(t.TempDir(), "config")
		NewWithT(t).Expect(os.WriteFile(path, []byte(kubeconfig), 0o600)).To(Succeed())
		return path
	}
	for _, c := range []struct {
		name      string
		args      func(path string) []string
		env       map[string]string
		namespace string
		host      string
		qps       float32
		burst     int
	}{
		{
			name: "flags",
			args: func(path string) []string {
				return []string{"--kubeconfig", path, "--namespace", "ops", "--client-qps=5", "--client-burst=6"}
			},
			env:       map[string]string{"VELERO_NAMESPACE": "of-the-environment"},
			namespace: "ops", host: "https://a.example:6443", qps: 5, burst: 6,
		},
		{
			name:      "short flag and context",
			args:      func(path string) []string { return []string{"--kubeconfig", path, "-n", "ops", "--kubecontext=b"} },
			namespace: "ops", host: "https://b.example:6443", qps: 100, burst: 100,
		},
		{
			name:      "namespace of the environment",
			args:      func(path string) []string { return []string{"--kubeconfig", path} },
			env:       map[string]string{"VELERO_NAMESPACE": "of-the-environment"},
			namespace: "of-the-environment", host: "https://a.example:6443", qps: 100, burst: 100,
		},
		{
			name:      "no namespace",
			args:      func(path string) []string { return []string{"--kubeconfig", path} },
			namespace: "velero", host: "https://a.example:6443", qps: 100, burst: 100,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			noCluster(t)
			for key, value := range c.env {
				t.Setenv(key, value)
			}
			s := newStock()
			followed := follow(s.server)
			g.Expect(s.server.ParseFlags(c.args(file(t)))).To(Succeed())
			factory, err := followed.factory(s.server)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(factory.Namespace()).To(Equal(c.namespace))
			rest, err := factory.ClientConfig()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(rest.Host).To(Equal(c.host))
			g.Expect(rest.QPS).To(Equal(c.qps))
			g.Expect(rest.Burst).To(Equal(c.burst))
			g.Expect(rest.UserAgent).To(HavePrefix("velero-server/"), "requests are told from those of the command line")
		})
	}
}
