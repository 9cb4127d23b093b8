// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"github.com/spf13/cobra"
	velerocmd "github.com/vmware-tanzu/velero/pkg/cmd/velero"

	"github.com/velero-clipper/clipper/pkg/cmd/preflight"
	"github.com/velero-clipper/clipper/pkg/cmd/server"
	"github.com/velero-clipper/clipper/pkg/cmd/snapshotrules"
)

// NewCommand returns the root command. Velero's own commands are untouched but for the server; ours stand beside them. An error
// with a method ExitStatus says what the process is to end with instead of 1.
func NewCommand(name string) *cobra.Command {
	root := velerocmd.NewCommand(name)
	for _, command := range root.Commands() {
		if command.Name() == "server" {
			server.Extend(command)
		}
	}
	root.AddCommand(preflight.NewCommand(), snapshotrules.NewCommand())
	return root
}
