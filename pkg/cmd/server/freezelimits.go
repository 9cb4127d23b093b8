// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/velero-clipper/clipper/pkg/backup"
)

// Flags that say how long pods may be frozen.
const (
	MaxFreezeFlag       = "default-max-freeze"
	FreezeWarningFlag   = "freeze-warning-after"
	WindowToleranceFlag = "freeze-window-tolerance"
)

const (
	defaultFreezeWarning   = time.Minute
	defaultWindowTolerance = 5 * time.Second
)

func bindFreezeLimits(flags *pflag.FlagSet, limits *backup.FreezeLimits) {
	flags.DurationVar(&limits.Default, MaxFreezeFlag, 0,
		"The longest time that a pod may be frozen, from its first pre hook on. It is thawed then whatever is missing, and snapshots that are not "+
			"cut fail. The annotation "+backup.MaxFreezeAnnotation+" of a Backup or a pod comes before it. 0 is no limit.")
	flags.DurationVar(&limits.Warning, FreezeWarningFlag, defaultFreezeWarning,
		"Pods that were frozen for longer than this are warned of in the backup. 0 switches it off.")
	flags.DurationVar(&limits.Tolerance, WindowToleranceFlag, defaultWindowTolerance,
		"By how much the clocks of storage and server may differ. A snapshot that says it was made earlier before its pod was frozen, or "+
			"later after it was thawed, than that, fails. 0 switches the check off.")
}

// checkFreezeLimits refuses values that nobody can mean.
func checkFreezeLimits(limits backup.FreezeLimits) error {
	for name, value := range map[string]time.Duration{
		MaxFreezeFlag: limits.Default, FreezeWarningFlag: limits.Warning, WindowToleranceFlag: limits.Tolerance,
	} {
		if value < 0 {
			return fmt.Errorf("--%s=%s is negative; give a duration such as 90s, or 0 to switch it off", name, value)
		}
	}
	return nil
}
