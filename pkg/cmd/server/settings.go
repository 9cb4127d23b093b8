// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/vmware-tanzu/velero/pkg/client"
	"github.com/vmware-tanzu/velero/pkg/cmd/server/config"
	"github.com/vmware-tanzu/velero/pkg/constant"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/snapshot"
	"github.com/velero-clipper/clipper/pkg/snapshot/rules"
)

// settings are what the user asked for: a copy of the configuration that Velero's server command keeps to itself, and the
// flags that are ours.
type settings struct {
	config       *config.Config
	parallelism  snapshot.Parallelism
	driverLimits snapshot.DriverLimits
	errorRules   configMapName
	// freeze are the limits for frozen pods.
	freeze backup.FreezeLimits
	// sweepInterval is how often snapshots that are left over are looked for; 0 means never.
	sweepInterval time.Duration
	// grace is how long the process may take to end after it was told to.
	grace time.Duration
	// retryInterrupted has backups run again that were in progress when the server died.
	retryInterrupted bool
	// name tells this server from others in its namespace; empty means that of the host.
	name string
}

// follow returns settings that are set together with the flags of Velero's server command.
func follow(stock *cobra.Command) *settings {
	s := &settings{config: config.GetDefaultConfig(), errorRules: rules.DefaultConfigMap}
	own := pflag.NewFlagSet(stock.Name(), pflag.ContinueOnError)
	s.config.BindFlags(own)
	if err := s.parallelism.Set(fmt.Sprint(snapshot.DefaultParallelism)); err != nil {
		panic(err) // a default that isn't a value of its own flag
	}
	stock.Flags().VisitAll(func(flag *pflag.Flag) {
		twin := own.Lookup(flag.Name)
		if twin == nil {
			return
		}
		if emptyDefaults[flag.Value.Type()] == flag.DefValue {
			flag.DefValue = ""
		}
		flag.Value = both{Value: flag.Value, twin: twin.Value}
	})
	return s
}

// emptyDefaults are the defaults, by type, that the help text doesn't show for pflag's own values. It would for ours.
var emptyDefaults = map[string]string{"duration": "0s", "stringSlice": "[]"}

// both sets two flag values at once and shows the first.
type both struct {
	pflag.Value
	twin pflag.Value
}

// Set implements pflag.Value.
func (b both) Set(text string) error {
	if err := b.Value.Set(text); err != nil {
		return err
	}
	return b.twin.Set(text)
}

// factory makes clients for the cluster and namespace that the command line names, at the server's request rates.
func (s *settings) factory(c *cobra.Command) (client.Factory, error) {
	file, err := client.LoadConfig()
	if err != nil {
		return nil, fmt.Errorf("reading Velero's client configuration: %w", err)
	}
	factory := client.NewFactory("velero-server", file)
	flags := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	factory.BindFlags(flags)
	var failure error
	flags.VisitAll(func(flag *pflag.Flag) {
		given := c.Flag(flag.Name)
		if given == nil || !given.Changed || failure != nil {
			return
		}
		if err := flag.Value.Set(given.Value.String()); err != nil {
			failure = fmt.Errorf("flag --%s: %w", flag.Name, err)
		}
	})
	factory.SetClientQPS(s.config.ClientQPS)
	factory.SetClientBurst(s.config.ClientBurst)
	return factory, failure
}

// backupControllers are run by the second half.
var backupControllers = []string{
	constant.ControllerBackup,
	constant.ControllerBackupQueue,
	constant.ControllerBackupOperations,
	constant.ControllerBackupFinalizer,
	constant.ControllerBackupDeletion,
}

// ours returns those backup controllers that the user has not switched off.
func (s *settings) ours() []string {
	off := map[string]bool{}
	for _, name := range s.config.DisabledControllers {
		off[strings.TrimSpace(name)] = true
	}
	var names []string
	for _, name := range backupControllers {
		if !off[name] {
			names = append(names, name)
		}
	}
	return names
}

// disableControllers switches controllers of Velero's half off, beside those that the user has switched off.
func disableControllers(c *cobra.Command, names []string) error {
	flag := c.Flags().Lookup("disable-controllers")
	if flag == nil {
		return fmt.Errorf("this version of Velero has no flag --disable-controllers; run with --%s=0", ParallelismFlag)
	}
	stock, ok := flag.Value.(both)
	if !ok {
		return fmt.Errorf("flag --disable-controllers is not followed")
	}
	if len(names) == 0 {
		return nil
	}
	// Velero's copy only: ours keeps saying what the user asked for.
	if err := stock.Value.Set(strings.Join(names, ",")); err != nil {
		return fmt.Errorf("flag --disable-controllers: %w", err)
	}
	return nil
}
