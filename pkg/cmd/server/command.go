// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// ParallelismFlag says how many CSI snapshots may be in flight in the whole server.
const ParallelismFlag = "csi-snapshot-parallelism"

// DriverParallelismFlag says how many of them may be for single CSI drivers.
const DriverParallelismFlag = "csi-snapshot-driver-parallelism"

// SweepIntervalFlag says how often snapshots that are left over are looked for.
const SweepIntervalFlag = "csi-snapshot-sweep-interval"

const defaultSweepInterval = 10 * time.Minute

// RetryInterruptedFlag has backups run again that were in progress when the server died.
const RetryInterruptedFlag = "retry-interrupted-backups"

// ServerNameFlag gives the server another name than its host's.
const ServerNameFlag = "server-name"

// Extend turns Velero's server command into one that can run the parallel engine. All flags keep their meaning.
func Extend(stock *cobra.Command) {
	settings := follow(stock)
	stock.Flags().Var(&settings.parallelism, ParallelismFlag,
		"How many CSI snapshots may be in flight (created, and their point in time not yet fixed) in the whole server: a number, "+
			"a percentage of the backup's PVCs such as 10%, or unlimited. 0 runs Velero's own engine, which takes them one by one.")
	stock.Flags().Var(&settings.driverLimits, DriverParallelismFlag,
		"How many CSI snapshots of single CSI drivers may be in flight, within --"+ParallelismFlag+", such as "+
			"ebs.csi.aws.com=20,rbd.csi.ceph.com=5. A driver that throttles is asked less by itself.")
	stock.Flags().Var(&settings.errorRules, ErrorRulesFlag,
		"The ConfigMap in the server's namespace with rules of your own that say which errors of CSI snapshots are final. "+
			"'velero snapshot-rules check' tries them.")
	stock.Flags().DurationVar(&settings.sweepInterval, SweepIntervalFlag, defaultSweepInterval,
		"How often CSI snapshots that are left over of failed backups are looked for and removed, beside the look at every start. "+
			"0 switches it off.")
	bindFreezeLimits(stock.Flags(), &settings.freeze)

	stock.Flags().DurationVar(&settings.grace, ShutdownGraceFlag, defaultShutdownGrace,
		"How long the server may take to end after it was told to: frozen pods are thawed, and the snapshots of running backups are removed. "+
			"It must be less than the terminationGracePeriodSeconds of the server's pod.")
	stock.Flags().BoolVar(&settings.retryInterrupted, RetryInterruptedFlag, false,
		"Run a backup again from its beginning, once, that was in progress when the server died, instead of marking it Failed.")
	stock.Flags().StringVar(&settings.name, ServerNameFlag, "",
		"What tells this server from others in its namespace. Default: the name of its host, which in a cluster is that of its pod.")

	// Velero's server has some fifty flags. Listing them after each error would drown the error.
	stock.SilenceUsage = true
	stock.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w\nSee '%s --help' for all flags", err, c.CommandPath())
	})

	runStock := stock.Run
	stock.Run = nil
	stock.RunE = func(c *cobra.Command, args []string) error {
		// Velero's server leaves controller-runtime's own metrics endpoint on *:8080 and has no flag for it. Nothing is
		// served there that /metrics doesn't need, and two servers on a host would collide.
		metricsserver.DefaultBindAddress = "0"
		if settings.parallelism.Disabled() || settings.config.RestoreOnly {
			runStock(c, args)
			return nil
		}
		if err := checkSweepInterval(settings.sweepInterval); err != nil {
			return err
		}
		if err := checkFreezeLimits(settings.freeze); err != nil {
			return err
		}
		if err := checkGrace(settings.grace); err != nil {
			return err
		}
		if _, err := settings.serverName(); err != nil {
			return err
		}
		factory, err := settings.factory(c)
		if err != nil {
			return err
		}
		if _, err := factory.ClientConfig(); err != nil {
			return fmt.Errorf("finding a cluster to serve: %w; pass --kubeconfig, set KUBECONFIG (it is %q), or run in a pod with a service account",
				err, os.Getenv("KUBECONFIG"))
		}
		return runHalves(c.Context(), halves{
			settings: settings,
			factory:  factory,
			first:    begin,
			stock:    func() { runStock(c, args) },
			disable:  func(names []string) error { return disableControllers(c, names) },
			second:   runSecond,
			signals:  ctrl.SetupSignalHandler, // a second signal ends the process at once, as it does in Velero's half
			stop:     stopProcess,
			onFatal:  logrus.RegisterExitHandler,
			exit:     os.Exit,
		})
	}
}
