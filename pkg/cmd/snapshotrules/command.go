// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshotrules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/velero-clipper/clipper/pkg/snapshot"
	"github.com/velero-clipper/clipper/pkg/snapshot/rules"
)

const (
	// timeout bounds the one request to the cluster.
	timeout = 30 * time.Second
	// maxMessage is how much of standard input is read.
	maxMessage = 1 << 20
)

// NewCommand returns the command. The flags that name the cluster and the namespace are those of the root command.
func NewCommand() *cobra.Command { return newCommand(clusterOf) }

func newCommand(connect func(*cobra.Command) (cluster, error)) *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot-rules",
		Short: "See which errors of CSI snapshots are final",
		Long: `A CSI driver that can't take a snapshot says so in an error, and is asked again for ever. Rules say what an error
means: terminal (the snapshot fails now), retryable (it is waited for), or throttled (it is waited for, and fewer snapshots of
this driver are in flight). The first rule that matches wins: yours from a ConfigMap, then those that are built in. What no
rule knows is retryable.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newCheck(connect), newList(connect))
	for _, sub := range c.Commands() {
		sub.SilenceUsage = true
		sub.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
			return fmt.Errorf("%w\nSee '%s --help' for all flags", err, c.CommandPath())
		})
	}
	return c
}

func newList(connect func(*cobra.Command) (cluster, error)) *cobra.Command {
	var from source
	var output string
	c := &cobra.Command{
		Use:   "list",
		Short: "Print all rules in the order in which they are asked",
		Example: `  velero snapshot-rules list
  velero snapshot-rules list --file my-rules.yaml -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			print, ok := listPrinters[output]
			if !ok {
				return outputError(output)
			}
			set, where, err := load(c, &from, connect)
			if err != nil {
				return err
			}
			return print(c.OutOrStdout(), set, where)
		},
	}
	from.bind(c.Flags())
	bindOutput(c, &output)
	return c
}

// asked is the error that check is asked about, as it is on the command line.
type asked struct {
	observation snapshot.Observation
	phase       string
}

func newCheck(connect func(*cobra.Command) (cluster, error)) *cobra.Command {
	var from source
	var output string
	var a asked
	c := &cobra.Command{
		Use:   "check --driver DRIVER --message MESSAGE",
		Short: "Print the verdict on an error, and the rule that it is from",
		Long: `Check prints the verdict on an error of a CSI snapshot, and the rule that it is from. Give the message as it stands in the
VolumeSnapshot or VolumeSnapshotContent, or only the driver's words together with --code.

Exit status: 0 when there is a verdict, whatever it is; 1 when the command line or the rules are wrong, or the cluster
can't be read.`,
		Example: `  velero snapshot-rules check --driver ebs.csi.aws.com --message "$(kubectl get volumesnapshotcontent NAME -o jsonpath='{.status.error.message}')"
  velero snapshot-rules check --file my-rules.yaml --driver block.example.com --code Internal --message 'the pool is full'
  kubectl get volumesnapshot NAME -o jsonpath='{.status.error.message}' | velero snapshot-rules check --driver block.example.com --message -`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			print, ok := checkPrinters[output]
			if !ok {
				return outputError(output)
			}
			observation, err := a.complete(c.InOrStdin())
			if err != nil {
				return err
			}
			set, where, err := load(c, &from, connect)
			if err != nil {
				return err
			}
			set.OnFailure(func(_ rules.Rule, err error) { c.PrintErrln("Warning:", err) })
			judgement, rule := set.Explain(observation)
			return print(c.OutOrStdout(), verdict{Observation: observation, Judgement: judgement, rule: rule, where: where})
		},
	}
	from.bind(c.Flags())
	bindOutput(c, &output)
	a.bind(c)
	return c
}

func (a *asked) bind(c *cobra.Command) {
	flags, o := c.Flags(), &a.observation
	flags.StringVar(&o.Driver, "driver", "", "The CSI driver's name, such as ebs.csi.aws.com. Required.")
	flags.StringVar(&o.Message, "message", "", "The error's text; - reads it from standard input. Required.")
	flags.StringVar(&o.Code, "code", "", "The gRPC code, such as Internal. By default it is taken from the message, where it stands as 'rpc error: code = ...'.")
	flags.DurationVar(&o.Age, "age", 0, "How long the snapshot has shown errors, such as 30s.")
	flags.IntVar(&o.Attempts, "attempts", 1, "How many different errors it has shown.")
	flags.StringVar(&a.phase, "phase", string(snapshot.PhaseCutting), "What was being done: cutting, until the point in time is fixed, or readying, until the snapshot is usable.")
	flags.StringVar(&o.StorageClass, "storage-class", "", "The claim's StorageClass.")
	flags.StringVar(&o.Namespace, "pvc-namespace", "", "The claim's namespace.")
	flags.StringVar(&o.PVC, "pvc", "", "The claim's name.")
}

// complete checks what was given, and finds the rest.
func (a *asked) complete(in io.Reader) (snapshot.Observation, error) {
	o := a.observation
	if o.Driver == "" || o.Message == "" {
		return o, errors.New("--driver and --message are required: which driver said what?")
	}
	if o.Message == "-" {
		text, err := io.ReadAll(io.LimitReader(in, maxMessage))
		if err != nil {
			return o, fmt.Errorf("reading the message from standard input: %w", err)
		}
		o.Message = strings.TrimRight(string(text), "\r\n")
		if o.Message == "" {
			return o, errors.New("--message=-: there is nothing on standard input")
		}
	}
	switch o.Phase = snapshot.ErrorPhase(a.phase); {
	case o.Phase != snapshot.PhaseCutting && o.Phase != snapshot.PhaseReadying:
		return o, fmt.Errorf("--phase=%s is not possible: use %s or %s", a.phase, snapshot.PhaseCutting, snapshot.PhaseReadying)
	case o.Attempts < 1:
		return o, fmt.Errorf("--attempts=%d is not possible: an error that stands has been shown once at least", o.Attempts)
	case o.Age < 0:
		return o, fmt.Errorf("--age=%s is not possible: use 0 or more", o.Age)
	}
	var err error
	o.Code, err = code(o)
	return o, err
}

// code is the code that was given or, when none was, the one in the message. The server knows only the latter.
func code(o snapshot.Observation) (string, error) {
	said, _ := snapshot.DriverError(o.Message)
	if o.Code == "" {
		return said, nil
	}
	at := slices.IndexFunc(rules.Codes, func(code string) bool { return strings.EqualFold(code, strings.ReplaceAll(o.Code, "_", "")) })
	if at < 0 {
		return "", fmt.Errorf("--code=%s is no gRPC code; those of errors are %s", o.Code, strings.Join(rules.Codes, ", "))
	}
	if said != "" && said != rules.Codes[at] {
		return "", fmt.Errorf("--code=%s contradicts the message, which has code %s; leave --code out", o.Code, said)
	}
	return rules.Codes[at], nil
}

func load(c *cobra.Command, from *source, connect func(*cobra.Command) (cluster, error)) (*rules.Set, string, error) {
	from.cluster = func() (cluster, error) { return connect(c) }
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return from.load(ctx)
}

func bindOutput(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "text", "Output format: text or json.")
}

func outputError(output string) error {
	return fmt.Errorf("--output=%s is not possible: use text or json", output)
}
