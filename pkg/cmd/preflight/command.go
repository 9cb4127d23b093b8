// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/velero-clipper/clipper/pkg/preflight"
)

// Exit statuses. 0 means that nothing is worse than a warning.
const (
	statusErrors = 1
	statusFailed = 2
)

// timeout bounds the whole command: a cluster that doesn't answer is an answer too.
const timeout = time.Minute

// exitError ends the process with a status of its own; see ExitStatus.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

// ExitStatus is what main ends with.
func (e *exitError) ExitStatus() int { return e.status }

// errFound says that there is at least one finding of severity error.
var errFound = errors.New("the pre-flight checks found errors")

// sources finds out what the checks read from.
type sources func(asServiceAccount string) (preflight.Sources, error)

// NewCommand returns the command. The flags that name the cluster and the namespace are those of the root command.
func NewCommand() *cobra.Command { return newCommand(clusterSources) }

func newCommand(from func(*cobra.Command) sources) *cobra.Command {
	var output, account string
	c := &cobra.Command{
		Use:   "preflight",
		Short: "Check whether the cluster is fit for CSI snapshots",
		Long: `Preflight looks at what CSI snapshots depend on - the snapshot CRDs, a VolumeSnapshotClass for each driver with
volumes, the limits of the snapshot-controller and the csi-snapshotter sidecars, permissions, the node agent - and prints
what it found, with the line to change. It changes nothing.

Permissions are those of whoever runs the command; --as-service-account asks for those of the server.

Exit status: 0 when nothing is worse than a warning, 1 when there is an error among the findings, 2 when the cluster
could not be looked at.`,
		Example: `  velero preflight
  velero preflight --as-service-account velero/velero
  velero preflight -o json | jq '.findings[] | select(.severity != "info")'`,
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.NoArgs(c, args); err != nil {
				return fail(c, err)
			}
			return nil
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			err := run(c, from(c), account, output)
			if err == nil || errors.Is(err, errFound) {
				return err // the findings say it all
			}
			return fail(c, err)
		},
	}
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fail(c, fmt.Errorf("%w\nSee '%s --help' for all flags", err, c.CommandPath()))
	})
	c.Flags().StringVarP(&output, "output", "o", "table", "Output display format: table or json.")
	c.Flags().StringVar(&account, "as-service-account", "",
		"Check the permissions of this service account, as namespace/name, instead of your own. You need to be allowed to create SubjectAccessReviews.")
	return c
}

// fail prints an error, which cobra doesn't do here: it would print that of the findings too.
func fail(c *cobra.Command, err error) error {
	c.PrintErrln("Error:", err)
	return &exitError{status: statusFailed, err: err}
}

func run(c *cobra.Command, from sources, account, output string) error {
	print, ok := printers[output]
	if !ok {
		return fmt.Errorf("--output=%s is not possible: use table or json", output)
	}
	read, err := from(account)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(c.Context(), timeout, fmt.Errorf("the cluster didn't answer everything within %s", timeout))
	defer cancel()
	state, err := preflight.Read(ctx, read)
	if err != nil {
		return err
	}
	report := preflight.Examine(state)
	if err := print(c.OutOrStdout(), report); err != nil {
		return fmt.Errorf("printing the findings: %w", err)
	}
	if report.Errors > 0 {
		return &exitError{status: statusErrors, err: errFound}
	}
	return nil
}
