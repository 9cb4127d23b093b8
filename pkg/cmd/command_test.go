// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"flag"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	velerocmd "github.com/vmware-tanzu/velero/pkg/cmd/velero"

	"github.com/velero-clipper/clipper/pkg/cmd/server"
)

// fresh builds a command line as a process of its own would: Velero's adds klog's flags to the process's.
func fresh(t *testing.T, build func(string) *cobra.Command) *cobra.Command {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	before := flag.CommandLine
	defer func() { flag.CommandLine = before }()
	flag.CommandLine = flag.NewFlagSet("velero", flag.ContinueOnError)
	return build("velero")
}

func commandPaths(c *cobra.Command) []string {
	paths := []string{c.CommandPath()}
	for _, child := range c.Commands() {
		paths = append(paths, commandPaths(child)...)
	}
	return paths
}

func flagNames(c *cobra.Command) (names []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// own are the commands that Velero doesn't have.
var own = []string{"preflight", "snapshot-rules"}

// ownServerFlags are the flags of the server that Velero's doesn't have.
var ownServerFlags = []string{
	server.ParallelismFlag, server.DriverParallelismFlag, server.ErrorRulesFlag, server.SweepIntervalFlag,
	server.MaxFreezeFlag, server.FreezeWarningFlag, server.WindowToleranceFlag,
	server.ShutdownGraceFlag, server.RetryInterruptedFlag, server.ServerNameFlag,
}

func TestCommandsAreVeleros(t *testing.T) {
	g := NewWithT(t)
	stock, ours := fresh(t, velerocmd.NewCommand), fresh(t, NewCommand)
	for _, name := range own {
		command, _, err := ours.Find([]string{name})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(command.Short).NotTo(BeEmpty())
		ours.RemoveCommand(command)
	}
	g.Expect(commandPaths(ours)).To(Equal(commandPaths(stock)))

	for i, stocks := range stock.Commands() {
		command := ours.Commands()[i]
		if command.Name() != "server" {
			g.Expect(flagNames(command)).To(Equal(flagNames(stocks)), command.CommandPath())
			continue
		}
		g.Expect(command.Hidden).To(BeTrue(), "as in Velero")
		names := flagNames(command)
		g.Expect(names).To(ContainElements(ownServerFlags))
		g.Expect(slices.DeleteFunc(names, func(name string) bool {
			return stocks.Flags().Lookup(name) == nil && slices.Contains(ownServerFlags, name)
		})).To(Equal(flagNames(stocks)), "nothing else is added or gone")
	}
}

func TestBadParallelismEndsTheProcessWithOneSentence(t *testing.T) {
	g := NewWithT(t)
	root := fresh(t, NewCommand)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs([]string{"server", "--" + server.ParallelismFlag, "some"})
	g.Expect(root.Execute()).To(MatchError(ContainSubstring(`"unlimited"`)))
	g.Expect(out.String()).To(HavePrefix("Error: "))
	g.Expect(out.String()).NotTo(ContainSubstring("Usage:"))
}

func TestOtherCommandsStillShowTheirUsage(t *testing.T) {
	g := NewWithT(t)
	root := fresh(t, NewCommand)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs([]string{"backup", "create", "--no-such-flag"})
	g.Expect(root.Execute()).NotTo(Succeed())
	g.Expect(out.String()).To(ContainSubstring("Usage:"))
}
