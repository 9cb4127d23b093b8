// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"github.com/spf13/cobra"
	velerocmd "github.com/vmware-tanzu/velero/pkg/cmd/velero"

	"github.com/velero-clipper/clipper/pkg/cmd/server"
)

// NewCommand returns the root command. Everything but the server is Velero's, untouched.
func NewCommand(name string) *cobra.Command {
	root := velerocmd.NewCommand(name)
	for _, command := range root.Commands() {
		if command.Name() == "server" {
			server.Extend(command)
		}
	}
	return root
}
