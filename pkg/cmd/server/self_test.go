// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/vmware-tanzu/velero/pkg/client"
	"github.com/vmware-tanzu/velero/pkg/constant"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
)

// hanging has one Lease, and never answers a list.
type hanging struct {
	instance.Leases
	lease   *coordinationv1.Lease
	renewed chan time.Time
	listed  chan time.Time
}

func (h *hanging) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return h.lease.DeepCopy(), nil
}

func (h *hanging) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	h.lease = lease.DeepCopy()
	h.renewed <- time.Now()
	return lease, nil
}

func (h *hanging) List(ctx context.Context, _ metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	<-ctx.Done()
	h.listed <- time.Now()
	return nil, ctx.Err()
}

func TestTheLeaseIsKeptWhileThoseOfOthersAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		log, _ := logrustest.NewNullLogger()
		leases := &hanging{lease: new(coordinationv1.Lease), renewed: make(chan time.Time, 100), listed: make(chan time.Time, 1)}
		id := instance.NewID("velero-0")
		s := &self{
			firstDeps: firstDeps{log: log}, events: record.NewBroadcaster(),
			lease: &instance.Lease{ID: id, Leases: leases, Clock: clock.RealClock{}, Log: log},
			watch: &instance.Watch{Self: id, Leases: leases, Clock: clock.RealClock{}},
		}
		g.Expect(s.lease.Take(t.Context())).To(Succeed())
		begun := <-leases.renewed
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.keep(ctx) }()
		g.Expect((<-leases.renewed).Sub(begun)).To(BeNumerically("<", instance.Duration))
		g.Expect((<-leases.listed).Sub(begun)).To(Equal(tidyLimit), "it isn't waited for for ever")
		cancel()
		<-done
	})
}

// A process that others take for dead ends, with an error, so that it is started again as another one.
func TestAServerThatHasLostItsLeaseEnds(t *testing.T) {
	g := NewWithT(t)
	log, _ := logrustest.NewNullLogger()
	stopped := 0
	s := &self{firstDeps: firstDeps{log: log, stop: func() error { stopped++; return errBoom }}, stopping: t.Context()}
	s.lost, s.lose = context.WithCancelCause(t.Context())
	g.Expect(owned{self: s}.whyLost()).To(Succeed())
	g.Expect(owned{}.whyLost()).To(Succeed(), "a server that takes no backups has no Lease")
	s.end(errors.New("another server has taken the Lease"))
	g.Expect(stopped).To(Equal(1))
	g.Expect(owned{self: s}.whyLost()).To(MatchError("the server has ended: another server has taken the Lease"))
}

// atHome is a cluster that nobody answers for.
type atHome struct{ client.Factory }

func (atHome) Namespace() string { return "velero" }
func (atHome) ClientConfig() (*rest.Config, error) {
	return &rest.Config{Host: "http://127.0.0.1:1"}, nil
}
func (atHome) KubeClient() (kubernetes.Interface, error)   { return fake.NewClientset(), nil }
func (atHome) KubebuilderClient() (crclient.Client, error) { return nil, nil }

// Velero's half ends at once on a second signal, and pods that are being thawed stay frozen.
func TestALeaseThatIsLostWhileTheServerStopsIsNoSecondSignal(t *testing.T) {
	g := NewWithT(t)
	log, _ := logrustest.NewNullLogger()
	stopped := 0
	stopping, stop := context.WithCancel(t.Context())
	stop()
	s, err := begin(stopping, firstDeps{
		settings: &settings{name: "velero-0"}, factory: atHome{}, log: log, names: []string{constant.ControllerBackup},
		limit: t.Context(), stop: func() error { stopped++; return nil },
	})
	g.Expect(err).NotTo(HaveOccurred())
	defer s.events.Shutdown()
	s.end(errors.New("another server has taken the Lease"))
	g.Expect(stopped).To(BeZero(), "it is being stopped already")
	g.Expect(owned{self: s}.whyLost()).To(MatchError(ContainSubstring("another server has taken the Lease")), "it ends with an error all the same")
}
