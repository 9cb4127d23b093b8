// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// State says whether a process is alive.
type State string

const (
	// Dead: it can't do anything any more.
	Dead State = "Dead"
	// Unsure: it has not been watched for long enough. Look again, in a few seconds at the latest: looks further apart, or one that
	// failed in between, tell nothing of what was between them.
	Unsure State = "Unsure"
	// Alive: it renews its Lease. Until it hasn't for Duration, it counts as alive.
	Alive State = "Alive"
)

// LookAgain is after how long another look may tell more.
const LookAgain = time.Second

// longestGap is how far apart two looks may be to be one watch. A holder that an outage kept from renewing does so within renewal and
// oneTry after its end, so an outage between two looks is never long enough to make it look dead.
const longestGap = renewal + oneTry

// old is how long a Lease that nobody holds, or that was not renewed, is kept. Pods of a Deployment leave one each.
const old = time.Hour

// Watch knows which processes are alive. It is safe for concurrent use.
type Watch struct {
	// Self is this process.
	Self ID
	// Leases of the server's namespace.
	Leases Leases
	// Clock measures how long a Lease wasn't renewed.
	Clock clock.PassiveClock

	mu   sync.Mutex
	seen map[ID]sight
}

// sight is what was seen of a Lease.
type sight struct {
	renewed string
	// since is when it was seen first with that renewal, by our clock; alive says that another was seen before.
	since time.Time
	alive bool
	// looked is when it was looked at last.
	looked time.Time
}

// Look says how the process of an ID stands. One that is found dead can't hold its Lease any more from there on. No ID, such as that of a backup of another version, is dead.
func (w *Watch) Look(ctx context.Context, id ID) (State, error) {
	server := id.server()
	if server == "" {
		return Dead, nil
	}
	if id == w.Self {
		return Alive, nil
	}
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	lease, err := w.Leases.Get(ctx, leaseName(server), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Dead, nil
	case err != nil:
		w.forget(id) // the holder may not have been able to renew it either
		return Unsure, fmt.Errorf("finding out whether server %s is alive: %w", id, err)
	case ptr.Deref(lease.Spec.HolderIdentity, "") != string(id):
		return Dead, nil
	}
	state := w.compare(id, lease.UID, lease.ResourceVersion)
	if state != Dead {
		return state, nil
	}
	return w.takeAway(ctx, id, lease)
}

// takeAway empties the Lease of a process that is taken for dead, as it was when it was looked at. Should the process live, it can't
// renew the Lease any more, and knows by that what others think of it; one that has just renewed it keeps it.
func (w *Watch) takeAway(ctx context.Context, id ID, lease *coordinationv1.Lease) (State, error) {
	lease.Spec.HolderIdentity = ptr.To("")
	_, err := w.Leases.Update(ctx, lease, metav1.UpdateOptions{})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsForbidden(err): // without the right the holder may only not notice
		return Dead, nil
	case apierrors.IsConflict(err):
		return Unsure, nil
	default:
		w.forget(id)
		return Unsure, fmt.Errorf("taking the Lease of server %s away: %w", id, err)
	}
}

// forget begins the watch of a Lease anew.
func (w *Watch) forget(id ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, id)
}

// compare says what a look at a Lease means after those before. After a gap nothing is known of the time between.
func (w *Watch) compare(id ID, uid types.UID, version string) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, renewed := w.Clock.Now(), string(uid)+"/"+version
	last, known := w.seen[id]
	known = known && now.Sub(last.looked) <= longestGap
	if !known || last.renewed != renewed {
		last = sight{renewed: renewed, since: now, alive: known}
	}
	last.looked = now
	if w.seen == nil {
		w.seen = map[ID]sight{}
	}
	w.seen[id] = last
	switch {
	case now.Sub(last.since) >= Duration:
		return Dead
	case last.alive:
		return Alive
	default:
		return Unsure
	}
}

// Tidy removes the Leases of servers that are long gone.
func (w *Watch) Tidy(ctx context.Context) error {
	list, err := w.Leases.List(ctx, metav1.ListOptions{LabelSelector: Label})
	if err != nil {
		return fmt.Errorf("listing the Leases of servers: %w", err)
	}
	var errs []error
	for i := range list.Items {
		lease := &list.Items[i]
		if lease.Spec.RenewTime == nil || w.Clock.Now().Sub(lease.Spec.RenewTime.Time) < old {
			continue
		}
		err := w.Leases.Delete(ctx, lease.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("removing Lease %s: %w", lease.Name, err))
		}
	}
	return errors.Join(errs...)
}
