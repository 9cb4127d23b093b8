// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// wakeDelay is how long the sweep waits after it was woken, for what else happens at the same moment.
	wakeDelay = time.Second
	// againSoon and againLater are when the sweep looks again at what will be decided soon, and at removals under way.
	againSoon  = 3 * time.Second
	againLater = longRemoval
)

// SweeperDeps is what a Sweeper works with. All but Suspects and the last two are required.
type SweeperDeps struct {
	Tracker *Tracker
	// Remover removes; what it removes is followed by the Taker that shares it.
	Remover *Remover
	// Owners knows the backups.
	Owners Owners
	// Suspects names the failed backups of the installation, and the claims of a namespace by their UIDs. By these it is found out
	// whose a content was whose VolumeSnapshot is gone. Default: such a content is only named.
	Suspects func(ctx context.Context, namespace string) (failed []OwnerID, claims []types.UID, err error)
	// Namespace of the installation: only what was made for its backups is removed.
	Namespace string
	// Interval between two sweeps; 0 switches them off.
	Interval time.Duration
	// Clock; the default is the real one.
	Clock clock.WithTicker
	// Logger; the default is logrus's standard logger.
	Logger logrus.FieldLogger
}

// Sweeper finds snapshots that are left over - of a server that was killed, of a removal that didn't come to its end - and
// finishes them, or names them with the reason. It looks at the tracker's cache when it starts, at every interval and when it
// is woken; while there is nothing to do it asks the API for nothing. What it may destroy is decided by leftover alone.
type Sweeper struct {
	SweeperDeps
	wake  chan struct{}
	gauge *prometheus.GaugeVec
	named *names
}

// NewSweeper makes a Sweeper.
func NewSweeper(deps SweeperDeps) *Sweeper {
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	if deps.Logger == nil {
		deps.Logger = logrus.StandardLogger()
	}
	return &Sweeper{
		SweeperDeps: deps,
		wake:        make(chan struct{}, 1),
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "velero_csi_snapshot_leftovers",
			Help: "CSI snapshots that no running backup needs and that are still there, by what keeps them",
		}, []string{"reason"}),
		named: newNames(),
	}
}

// Metrics is the gauge of leftovers, to be registered by the caller.
func (s *Sweeper) Metrics() prometheus.Collector { return s.gauge }

// Wake asks for a sweep, such as when a backup has failed. It never blocks.
func (s *Sweeper) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Start sweeps until ctx ends. It implements controller-runtime's manager.Runnable.
func (s *Sweeper) Start(ctx context.Context) error {
	if s.Interval <= 0 {
		s.Logger.Info("Snapshots that are left over are not swept")
		return nil
	}
	if !s.synced(ctx) {
		return nil
	}
	stop, err := s.listen()
	if err != nil {
		return err
	}
	defer stop()
	for ctx.Err() == nil {
		s.pause(ctx, s.sweep(ctx))
	}
	return nil
}

// synced waits for the tracker, also while CRDs or permissions are missing; false when ctx ended first.
func (s *Sweeper) synced(ctx context.Context) bool {
	for ctx.Err() == nil {
		news := s.Tracker.watchNews()
		if s.Tracker.hasSynced() {
			return true
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
	return false
}

// pause waits for the next sweep.
func (s *Sweeper) pause(ctx context.Context, next time.Duration) {
	timer := s.Clock.NewTimer(next)
	defer timer.Stop()
	select {
	case <-timer.C():
		return
	case <-ctx.Done():
		return
	case <-s.wake:
	}
	delay := s.Clock.NewTimer(wakeDelay)
	defer delay.Stop()
	select {
	case <-delay.C():
	case <-ctx.Done():
	}
}

// finding is a sighting with what has to be known for dealing with it.
type finding struct {
	sighting
	decision
	key types.NamespacedName
	// id is the owner, if it is known.
	id OwnerID
	// trouble is why the owner is unknown.
	trouble error
}

func (f *finding) ref() Ref {
	ref := Ref{Namespace: f.key.Namespace, Name: f.key.Name}
	switch {
	case f.vs != nil:
		ref.UID = f.vs.UID
	case f.content != nil:
		ref.UID = f.content.Spec.VolumeSnapshotRef.UID
	}
	if f.content != nil {
		ref.ContentName = f.content.Name
	}
	return ref
}

// sweep looks once at everything, does what is to be done, and returns when to look again.
func (s *Sweeper) sweep(ctx context.Context) time.Duration {
	s.named.begin()
	next := s.Interval
	cached := &ownerStates{ask: s.Owners.Cached, known: map[OwnerID]OwnerState{}}
	var doomed []*finding
	for _, f := range s.find(ctx, cached) {
		f.decision = leftover(f.sighting)
		switch f.step {
		case leave:
		case waitFor:
			next = min(next, againSoon)
		case finish:
			doomed = append(doomed, f)
		default:
			next = min(next, s.treat(ctx, f))
		}
	}
	next = min(next, s.finish(ctx, doomed))
	s.show()
	return next
}

// find lists what could be left over.
func (s *Sweeper) find(ctx context.Context, owners *ownerStates) []*finding {
	now, suspects := s.Clock.Now(), map[string]suspects{}
	var found []*finding
	for _, vs := range s.Tracker.allSnapshots() {
		if !isTaken(vs, s.Namespace) {
			continue
		}
		key := types.NamespacedName{Namespace: vs.Namespace, Name: vs.Name}
		owner, err := owners.of(ctx, backupOf(vs))
		f := &finding{key: key, id: backupOf(vs), trouble: err, sighting: sighting{
			vs: vs, content: s.Tracker.contentOf(key, vs.UID, vs), owner: owner, now: now,
		}}
		f.followed = s.Remover.isFollowed(f.ref())
		// The Taker goes on following what is cut until it is ready. Nobody who fails needs that, and it may never come.
		f.held = s.Remover.isPending(key) || !f.followed && s.Tracker.isWaitedFor(key) && !(owner == OwnerFailed && handleOf(f.content) != "")
		found = append(found, f)
	}
	for _, content := range s.Tracker.allContents() {
		key := refOf(content)
		if !isTakenContent(content) || s.Tracker.hasSnapshot(key, content.Spec.VolumeSnapshotRef.UID) {
			continue
		}
		found = append(found, s.lone(ctx, content, owners, suspects))
	}
	return found
}

// treat does what is to be done about a snapshot that isn't to be destroyed, and returns when to look again.
func (s *Sweeper) treat(ctx context.Context, f *finding) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	var err error
	switch f.step {
	case wakeSidecar:
		err = s.Remover.nudge(ctx, f.content)
	case keep:
		err = s.Remover.protect(ctx, f.content)
	}
	switch {
	case err != nil:
		s.note(f, kindFailed, err.Error())
	case f.kind == kindRemoving:
		s.noteRemoving(ctx, f)
	case f.kind == kindUnknown && f.trouble != nil:
		s.note(f, f.kind, f.trouble.Error())
	case f.kind != "":
		s.note(f, f.kind, f.reason)
	}
	if f.step == wakeSidecar {
		return againLater
	}
	return s.Interval
}

// finish removes snapshots to their end: it asks for the removal and hands it over to be followed. It returns when to
// look again. The API's word on each owner comes first: a cache that lags must not destroy data.
func (s *Sweeper) finish(ctx context.Context, doomed []*finding) (next time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	next = s.Interval
	live := &ownerStates{ask: s.Owners.Live, known: map[OwnerID]OwnerState{}}
	var asked []*finding
	var refs []Ref
	for _, f := range doomed {
		owner, err := live.of(ctx, f.id)
		if err != nil {
			s.note(f, kindFailed, err.Error())
			continue
		}
		f.owner = owner
		if leftover(f.sighting).step != finish {
			next = againLater // the cache will know, too
			continue
		}
		s.Logger.WithFields(logrus.Fields{"backup": f.id.Label, "namespace": f.key.Namespace, "volumeSnapshot": f.key.Name}).
			Infof("Removing a snapshot that is left over: its Backup is %s", owner)
		asked, refs = append(asked, f), append(refs, f.ref())
	}
	if len(refs) == 0 {
		return next
	}
	for i, err := range s.remove(ctx, refs) {
		if err != nil {
			s.note(asked[i], kindFailed, err.Error())
		}
	}
	return againSoon
}

// remove asks for removals and has them followed to their end.
func (s *Sweeper) remove(ctx context.Context, refs []Ref) []error {
	for _, ref := range refs {
		defer s.Remover.pend(ref)()
	}
	return s.Remover.removeAll(ctx, refs)
}

// RemoveOwned removes every snapshot of a backup to its end, and returns, when all is done or ctx ends, how many there were and what is
// left. It is for a backup that the caller knows to be dead, whatever its phase says, and works without Start; the tracker must be
// running. What is left goes on being followed. The error says that it could not be known, or not be asked for.
func (s *Sweeper) RemoveOwned(ctx context.Context, owner types.UID) (found int, left []Leftover, err error) {
	if err := s.Tracker.WaitForSync(ctx); err != nil {
		return 0, nil, fmt.Errorf("looking for the snapshots of backup %s: %w", owner, err)
	}
	refs := s.owned(owner)
	err = errors.Join(s.remove(ctx, refs)...)
	return len(refs), s.Remover.Settle(ctx, refs...), err
}

// ownerStates asks for each owner once. An error makes an owner unknown.
type ownerStates struct {
	ask   func(context.Context, OwnerID) (OwnerState, error)
	known map[OwnerID]OwnerState
	errs  map[OwnerID]error
}

func (o *ownerStates) of(ctx context.Context, id OwnerID) (OwnerState, error) {
	if state, ok := o.known[id]; ok {
		return state, o.errs[id]
	}
	state, err := o.ask(ctx, id)
	if err != nil {
		state, err = OwnerUnknown, fmt.Errorf("finding out how backup %s (%s) stands: %w", id.Label, id.UID, err)
		if o.errs == nil {
			o.errs = map[OwnerID]error{}
		}
		o.errs[id] = err
	}
	o.known[id] = state
	return state, err
}

// listen wakes the sweep by the tracker's events: for a content that the sidecar has forgotten, or that has no VolumeSnapshot, and for the
// end of what was named, so that the gauge tells the truth.
func (s *Sweeper) listen() (stop func(), err error) {
	snapshots, err := s.Tracker.onSnapshot(func(vs *snapshotv1.VolumeSnapshot, deleted bool) {
		if deleted && s.named.has(types.NamespacedName{Namespace: vs.Namespace, Name: vs.Name}) {
			s.Wake()
		}
	})
	if err != nil {
		return nil, err
	}
	contents, err := s.Tracker.onContent(func(content *snapshotv1.VolumeSnapshotContent, deleted bool) {
		forgotten := !deleted && isTakenContent(content) && isForgotten(content) && content.Annotations[annNudge] == ""
		if forgotten || !deleted && s.isLone(content) || deleted && s.named.has(refOf(content)) {
			s.Wake()
		}
	})
	if err != nil {
		return nil, errors.Join(err, snapshots())
	}
	return func() {
		if err := errors.Join(snapshots(), contents()); err != nil {
			s.Logger.WithError(err).Debug("The sweep could not take its event handlers off")
		}
	}, nil
}

func (s *Sweeper) owned(owner types.UID) []Ref {
	var refs []Ref
	for _, vs := range s.Tracker.allSnapshots() {
		if isTaken(vs, s.Namespace) && backupOf(vs).UID == owner {
			f := finding{key: types.NamespacedName{Namespace: vs.Namespace, Name: vs.Name}}
			f.vs, f.content = vs, s.Tracker.contentOf(f.key, vs.UID, vs)
			refs = append(refs, f.ref())
		}
	}
	return refs
}
