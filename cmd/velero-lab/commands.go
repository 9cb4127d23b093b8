// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/velero-clipper/clipper/internal/lab/demo"
	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/runner"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

func runCommand() *cobra.Command {
	var (
		flags  labFlags
		output string
	)
	cmd := &cobra.Command{
		Use:   "run SCENARIO.yaml",
		Short: "Run one experiment and hold its expectations against the result",
		Long: `Run starts a fresh cluster, does what the scenario says, prints the result and removes everything again.
The format of scenarios is described in test/scenarios/README.md.

Exit status: 0, 1 when an expectation failed, 2 when the experiment could not be made.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "json" && output != "text" {
				return fmt.Errorf("--output=%s is not possible: use json or text", output)
			}
			return runScenario(cmd, flags, args[0], output)
		},
	}
	flags.register(cmd, true)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "how to print the result: text, or json for one object")
	return cmd
}

func runScenario(cmd *cobra.Command, flags labFlags, path, output string) error {
	s, err := scenario.Load(path)
	if err != nil {
		return err
	}
	opts, err := flags.prepare(cmd.Context(), true)
	if err != nil {
		return err
	}
	opts.Scenario = s
	r, err := runner.Run(cmd.Context(), opts)
	if err != nil {
		return err
	}
	if err := printResult(r, output); err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	if opts.Keep {
		fmt.Fprintln(os.Stderr, "logs and state are in", r.Server.LogDir)
	}
	if len(r.Failures) > 0 || r.Unfinished != "" {
		return errFailed
	}
	return nil
}

// printResult writes the result to standard output; failures go to standard error too when that is not for people.
func printResult(r *result.Result, output string) error {
	if output == "text" {
		result.WriteText(os.Stdout, r)
		return nil
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	result.WriteFailures(os.Stderr, r)
	return encoder.Encode(r)
}

func demoCommand() *cobra.Command {
	var flags labFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Make one backup with stock Velero and with Clipper, and compare",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := flags.prepare(cmd.Context(), true)
			if err != nil {
				return err
			}
			failures, err := demo.Run(cmd.Context(), demo.Options{Runner: opts, Out: os.Stdout})
			if err == nil && len(failures) > 0 {
				return errFailed
			}
			return err
		},
	}
	cmd.Flags().StringVar(&flags.velero, "velero", "", "velero binary to run, one with Clipper's engine (default: the one beside velero-lab)")
	return cmd
}

func compareCommand() *cobra.Command {
	var flags labFlags
	cmd := &cobra.Command{
		Use:   "compare SCENARIO.yaml",
		Short: "Make a scenario's first backup with no Velero, with stock Velero and with Clipper, and compare",
		Long: `Compare makes the first backup of a scenario four times, each in a fresh cluster: the snapshots alone, Velero's own
engine as shipped, the same tuned as far as it goes, and Clipper's with its defaults. The scenario's events, steps and
expectations are left out.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			load := func() (*scenario.Scenario, error) { return scenario.Load(args[0]) }
			s, err := load()
			if err != nil {
				return err
			}
			opts, err := flags.prepare(cmd.Context(), true)
			if err != nil {
				return err
			}
			_, err = demo.Run(cmd.Context(), demo.Options{Runner: opts, Out: os.Stdout, Load: load, Introduction: s.Description + "\n"})
			return err
		},
	}
	cmd.Flags().StringVar(&flags.velero, "velero", "", "velero binary to run, one with Clipper's engine (default: the one beside velero-lab)")
	return cmd
}

func upCommand() *cobra.Command {
	var flags labFlags
	cmd := &cobra.Command{
		Use:   "up [SCENARIO.yaml]",
		Short: "Keep a cluster with a Velero server and a workload until Ctrl-C",
		Long: `Up starts a cluster with a Velero server and prints how to reach it. The workload, the storage and the server's
settings are those of the scenario, or of the demonstration when none is given; no backup is made.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := demo.Workload()
			if len(args) == 1 {
				s, err = scenario.Load(args[0])
			}
			if err != nil {
				return err
			}
			// No network namespace: the cluster is to be reached from other terminals.
			opts, err := flags.prepare(cmd.Context(), false)
			if err != nil {
				return err
			}
			opts.Scenario = s
			return runner.Up(cmd.Context(), opts, func(info runner.Info) { explain(info, flags.velero, s) })
		},
	}
	flags.register(cmd, true)
	return cmd
}

// explain says how to look around.
func explain(info runner.Info, velero string, s *scenario.Scenario) {
	namespace := "app"
	if len(s.Workload) > 0 {
		namespace = s.Workload[0].Namespace
	}
	fmt.Printf(`
The lab is up until Ctrl-C. In another terminal:

    export KUBECONFIG=%[1]s
    %[2]s backup create first --include-namespaces %[3]s --wait
    %[2]s backup describe first --details
    %[2]s backup logs first
    kubectl get pods,pvc,volumesnapshots -A      (if you have kubectl)

Logs of every part:  %[4]s
Object store (S3):   %[5]s, bucket %[6]s
`, info.Kubeconfig, velero, namespace, info.LogDir, info.StoreURL, info.Bucket)
}

func toolsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tools [PROGRAM...]",
		Short: "Build the programs of the control plane that are missing, and print their paths",
		RunE: func(cmd *cobra.Command, args []string) error {
			programs := toolchain.ControlPlane()
			if len(args) > 0 {
				programs = nil
			}
			for _, name := range args {
				program, err := toolchain.Parse(name)
				if err != nil {
					return err
				}
				programs = append(programs, program)
			}
			paths, err := toolchain.Ensure(cmd.Context(), toolchain.Options{Progress: os.Stderr}, programs...)
			if err != nil {
				return err
			}
			for _, program := range programs {
				fmt.Println(paths[program])
			}
			return nil
		},
	}
}
