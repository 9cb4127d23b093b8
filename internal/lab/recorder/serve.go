// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
)

// Serve runs the plugins in a folder until Velero ends the process.
func Serve(dir string) {
	r := newRecorder(dir)
	give := func(plugin any) func(logrus.FieldLogger) (any, error) {
		return func(logrus.FieldLogger) (any, error) { return plugin, nil }
	}
	framework.NewServer().
		BindFlags(pflag.CommandLine).
		RegisterBackupItemAction(ActionV1, give(actionV1{action{recorder: r, name: ActionV1}})).
		RegisterBackupItemActionV2(ActionV2, give(actionV2{action{recorder: r, name: ActionV2}})).
		RegisterBackupItemActionV2(ActionV2Second, give(actionV2{action{recorder: r, name: ActionV2Second}})).
		RegisterItemBlockAction(BlockAction, give(blockAction{action{recorder: r, name: BlockAction}})).
		RegisterVolumeSnapshotter(Snapshotter, func(logrus.FieldLogger) (any, error) { return &native{recorder: r}, nil }).
		Serve()
}
