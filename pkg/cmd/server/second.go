// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/client"
	velerodiscovery "github.com/vmware-tanzu/velero/pkg/discovery"
	"github.com/vmware-tanzu/velero/pkg/features"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt/process"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework/common"
	"github.com/vmware-tanzu/velero/pkg/repository"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// discoveryInterval is how often the cluster's resource types are read again, as in Velero's half: discovery can't be
// watched.
const discoveryInterval = 5 * time.Minute

// secondDeps is what the second half is built from.
type secondDeps struct {
	settings *settings
	factory  client.Factory
	metrics  sharedMetrics
	log      *logrus.Logger
	// names of the controllers to run.
	names []string
	// self is nil for a server that takes no backups.
	self *self
}

// second is the half of the server that takes backups.
type second struct {
	secondDeps
	// life ends when the server stops; for what Velero calls without a context.
	life      context.Context //nolint:containedctx // see above
	mgr       manager.Manager
	rest      *rest.Config
	kube      kubernetes.Interface
	dynamic   dynamic.Interface
	uncached  crclient.Client
	discovery velerodiscovery.Helper
	plugins   func(logrus.FieldLogger) clientmgmt.Manager
	// deleteActions are the names of the plugins that act on items of backups that are deleted.
	deleteActions func() []string
	files         *credentialFiles
	secrets       credentialSecrets
	stores        persistence.ObjectBackupStoreGetter
	snapshots     snapshots
	// repositories keep the data of volumes that isn't in snapshots.
	repositories repositories
}

// repositories has the locks on backup repositories, of which all controllers of a server share one set each.
type repositories struct {
	locker  *repository.RepoLocker
	ensurer *repository.Ensurer
}

// snapshots take and follow CSI snapshots for all backups of the server.
type snapshots struct {
	tracker *snapshot.Tracker
	taker   *snapshot.Taker
	remover *snapshot.Remover
	nudger  *snapshot.Nudger
	judge   snapshot.Judge
	sweeper *snapshot.Sweeper
}

// runSecond runs the second half until ctx ends, and waits for what it began.
func runSecond(ctx context.Context, deps secondDeps) error {
	s := &second{secondDeps: deps, life: ctx}
	for _, build := range []func() error{s.clients, s.manager, s.velero, s.snapshotting, s.controllers, s.preflight} {
		if err := build(); err != nil {
			return fmt.Errorf("building the backup controllers: %w", err)
		}
	}
	s.log.WithField("parallelism", s.settings.parallelism.String()).Infof("Starting the parallel engine with controllers %v", s.names)
	if err := serve(ctx, s.mgr, ifSnapshotsAreOn(s.snapshots.tracker)); err != nil {
		return fmt.Errorf("running the backup controllers: %w", err)
	}
	return nil
}

// startable runs until its context ends.
type startable interface {
	Start(ctx context.Context) error
}

// ifSnapshotsAreOn leaves the tracker out when Velero's CSI feature is off: no snapshot is asked for then, and a cluster without
// snapshot CRDs is no error.
func ifSnapshotsAreOn(tracker startable) startable {
	if features.IsEnabled(velerov1.CSIFeatureFlag) {
		return tracker
	}
	return manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}

// serve runs the manager until ctx ends, and the tracker until the manager has ended: backups that are given up remove their
// snapshots then, and see by the tracker what there is to remove and when it is gone.
func serve(ctx context.Context, mgr, tracker startable) error {
	tracking, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	group.Go(func() error { return tracker.Start(tracking) })
	err := mgr.Start(ctx)
	stop()
	return errors.Join(err, group.Wait())
}

func (s *second) clients() (err error) {
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	s.rest, err = s.factory.ClientConfig()
	note(err)
	s.kube, err = s.factory.KubeClient()
	note(err)
	s.dynamic, err = s.factory.DynamicClient()
	note(err)
	s.uncached, err = s.factory.KubebuilderClient()
	note(err)
	return errors.Join(errs...)
}

// manager makes the controller manager. Its cache holds Velero's namespace, as that of Velero's half does.
func (s *second) manager() error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		velerov1.AddToScheme, velerov2alpha1.AddToScheme, corev1.AddToScheme, snapshotv1.AddToScheme, batchv1.AddToScheme, appsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("building the scheme: %w", err)
		}
	}
	mgr, err := ctrl.NewManager(s.rest, ctrl.Options{
		Scheme: scheme,
		Cache:  cache.Options{DefaultNamespaces: map[string]cache.Config{s.factory.Namespace(): {}}},
		// Waiting is bounded by the hooks' timeouts and, from outside, by the pod's grace period, which the manager doesn't
		// know. Its own 30 seconds would end the process while pods are still being thawed.
		GracefulShutdownTimeout: ptr.To(time.Duration(-1)),
	})
	if err != nil {
		return fmt.Errorf("creating the controller manager: %w", err)
	}
	s.mgr = mgr
	return nil
}

// velero sets up what Velero's packages need: discovery, plugins, credentials and storage.
func (s *second) velero() error {
	discoveryClient, err := s.factory.DiscoveryClient()
	if err != nil {
		return fmt.Errorf("creating the discovery client: %w", err)
	}
	if s.discovery, err = velerodiscovery.NewHelper(discoveryClient, s.log); err != nil {
		return fmt.Errorf("reading the cluster's resource types: %w", err)
	}
	err = s.mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		wait.UntilWithContext(ctx, func(context.Context) {
			if err := s.discovery.Refresh(); err != nil {
				s.log.WithError(err).Warn("The cluster's resource types can't be read again; the last known ones stay")
			}
		}, discoveryInterval)
		return nil
	}))
	if err != nil {
		return err
	}

	registry := process.NewRegistry(s.settings.config.PluginDir, s.log, s.log.Level)
	if err := registry.DiscoverPlugins(); err != nil {
		return fmt.Errorf("looking for plugins in %s: %w", s.settings.config.PluginDir, err)
	}
	s.deleteActions = func() []string {
		var names []string
		for _, plugin := range registry.List(common.PluginKindDeleteItemAction) {
			names = append(names, plugin.Name)
		}
		return names
	}
	s.plugins = func(log logrus.FieldLogger) clientmgmt.Manager {
		return clientmgmt.NewManager(log, s.log.Level, registry)
	}

	namespace := s.factory.Namespace()
	if s.files, err = newCredentialFiles(s.mgr.GetClient(), namespace, s.settings.config.CredentialsDirectory); err != nil {
		return err
	}
	s.secrets = credentialSecrets{client: s.mgr.GetClient(), namespace: namespace}
	s.repositories = repositories{
		locker: repository.NewRepoLocker(), ensurer: repository.NewEnsurer(s.mgr.GetClient(), s.log, s.settings.config.ResourceTimeout),
	}
	s.stores = persistence.NewObjectBackupStoreGetterWithSecretStore(s.files, s.secrets)
	return nil
}

// snapshotting sets up the tracker and the taker that all backups share.
func (s *second) snapshotting() error {
	snapshotClient, err := snapshot.NewClient(s.rest)
	if err != nil {
		return err
	}
	log := s.log.WithField("component", "snapshots")
	tracker := snapshot.NewTracker(snapshotClient, snapshot.TrackerOptions{Clock: clock.RealClock{}, Logger: log})
	remover := snapshot.NewRemover(snapshotClient, tracker, snapshot.RemoverOptions{Clock: clock.RealClock{}, Logger: log, Groups: s.dynamic})
	judge, err := s.errorRules(log)
	if err != nil {
		return err
	}
	taker := snapshot.NewTaker(snapshotClient, tracker, snapshot.TakerOptions{
		Parallelism: s.settings.parallelism, DriverLimits: s.settings.driverLimits, Clock: clock.RealClock{}, Logger: log,
		Remover: remover, Judge: judge, Groups: s.dynamic,
	})
	if err := s.metrics.registry.Register(taker.Metrics()); err != nil {
		return fmt.Errorf("registering the snapshot metrics: %w", err)
	}
	s.snapshots = snapshots{
		tracker: tracker, taker: taker, remover: remover, judge: judge,
		nudger: snapshot.NewNudger(snapshotClient, tracker, clock.RealClock{}),
	}
	return s.mgr.Add(taker)
}

// runs says whether a controller is to be run.
func (s *second) runs(name string) bool { return slices.Contains(s.names, name) }
