// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/client"
	"github.com/vmware-tanzu/velero/pkg/constant"
	"github.com/vmware-tanzu/velero/pkg/features"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
	"github.com/velero-clipper/clipper/pkg/controller/recovery"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
	"github.com/velero-clipper/clipper/pkg/hook/podexec"
)

// The requests for the server's Lease have a rate of their own: a busy server must not look like a dead one.
const (
	leaseQPS   = 5
	leaseBurst = 10
)

// tidyLimit bounds the removal of the Leases of servers that are long gone. The next start removes what is left.
const tidyLimit = time.Minute

// firstDeps is what is known before either half is started.
type firstDeps struct {
	settings *settings
	factory  client.Factory
	log      *logrus.Logger
	names    []string
	// limit ends when nothing may be begun in pods any more.
	limit context.Context //nolint:containedctx // it is the life of the process, not that of a call
	// stop tells the process to stop.
	stop func() error
}

// self is what this process is to others: its Lease, its records of frozen pods, and what it does about those of dead ones.
type self struct {
	firstDeps
	id       instance.ID
	lease    *instance.Lease
	watch    *instance.Watch
	records  *freezerecord.Store
	executor *podexec.Executor
	rest     *rest.Config
	uncached crclient.Client
	kube     kubernetes.Interface
	events   record.EventBroadcaster
	// lost ends when the process has lost its Lease.
	lost context.Context //nolint:containedctx // see limit
	lose context.CancelCauseFunc
	// stopping ends when the process is told to stop.
	stopping context.Context //nolint:containedctx // see limit
}

// begin takes the server's Lease. A server that takes no backups has none. ctx ends when the process is told to stop.
func begin(ctx context.Context, deps firstDeps) (*self, error) {
	if !slices.Contains(deps.names, constant.ControllerBackup) {
		return nil, nil
	}
	s, err := newSelf(deps)
	if err != nil {
		return nil, fmt.Errorf("preparing for backups: %w", err)
	}
	s.stopping = ctx
	if err := s.lease.Take(ctx); err != nil {
		s.log.WithError(err).Warn("This server has no Lease; another one in its namespace would take it for dead. It goes on trying")
	}
	return s, nil
}

// recoverAtStart recovers what a server that died left behind, and returns when Velero's own server may be started.
func (s *self) recoverAtStart(ctx context.Context) {
	snapshots := &startSnapshots{rest: s.rest, namespace: s.factory.Namespace(), log: s.log}
	defer snapshots.stop()
	start := s.recovery(s.uncached)
	if features.IsEnabled(velerov1.CSIFeatureFlag) {
		start.Snapshots = snapshots
	}
	recovery.New(start).AtStart(ctx)
}

func newSelf(deps firstDeps) (*self, error) {
	s := &self{firstDeps: deps}
	var err error
	var errs []error
	s.rest, err = deps.factory.ClientConfig()
	errs = append(errs, err)
	s.kube, err = deps.factory.KubeClient()
	errs = append(errs, err)
	s.uncached, err = deps.factory.KubebuilderClient()
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	name, err := deps.settings.serverName()
	if err != nil {
		return nil, err
	}
	s.id = instance.NewID(name)
	own := rest.CopyConfig(s.rest)
	own.QPS, own.Burst, own.RateLimiter = leaseQPS, leaseBurst, nil
	leases, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, err
	}
	namespace := deps.factory.Namespace()
	inNamespace := leases.CoordinationV1().Leases(namespace)
	s.lost, s.lose = context.WithCancelCause(context.Background())
	s.lease = &instance.Lease{ID: s.id, Leases: inNamespace, Clock: clock.RealClock{}, Log: s.log, Lost: s.end}
	s.watch = &instance.Watch{Self: s.id, Leases: inNamespace, Clock: clock.RealClock{}}
	s.records = freezerecord.NewStore(freezerecord.Options{Client: s.uncached, Namespace: namespace, Server: string(s.id)})
	s.executor, err = podexec.New(podexec.Options{Config: s.rest, Limit: deps.limit})
	if err != nil {
		return nil, err
	}
	s.events = record.NewBroadcaster()
	s.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.kube.CoreV1().Events("")})
	return s, nil
}

// recovery is what a recovery works with; backups reads Backups.
func (s *self) recovery(backups crclient.Reader) recovery.Deps {
	return recovery.Deps{
		Client: s.uncached, Backups: backups, Records: s.records, Executor: s.executor, Instances: s.watch, Self: s.id,
		Events:    s.events.NewRecorder(s.uncached.Scheme(), corev1.EventSource{Component: "velero"}),
		Namespace: s.factory.Namespace(), Retry: s.settings.retryInterrupted, Log: s.log.WithField("component", "recovery"),
	}
}

// end ends the process, which others take for dead: what it runs it ends as if it were told to stop, except for what others see to. It is
// started again under another ID.
func (s *self) end(cause error) {
	s.lose(cause)
	if s.stopping.Err() != nil {
		return // a second signal would end the process at once, in the middle of its thaws
	}
	if err := s.stop(); err != nil {
		s.log.WithError(err).Error("The server can't be told to stop")
	}
}

// keep keeps the Lease until ctx ends. Those of others are removed beside that: whatever that waits for, the Lease is renewed in time.
func (s *self) keep(ctx context.Context) {
	var group errgroup.Group
	group.Go(func() error {
		tidying, cancel := context.WithTimeout(ctx, tidyLimit)
		defer cancel()
		if err := s.watch.Tidy(tidying); err != nil {
			s.log.WithError(err).Debug("Leases of servers that are long gone can't be removed")
		}
		return nil
	})
	s.lease.Keep(ctx)
	_ = group.Wait() // it returns no error
	s.events.Shutdown()
}

// serverName is the name that tells this server from others in its namespace.
func (s *settings) serverName() (string, error) {
	name := s.name
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("finding the name of this host: %w; give one with --%s", err, ServerNameFlag)
		}
		name = host
	}
	if err := instance.CheckName(name); err != nil {
		return "", fmt.Errorf("flag --%s: %w", ServerNameFlag, err)
	}
	return name, nil
}
