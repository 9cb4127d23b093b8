// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// Duration is how long a Lease is good for without being renewed. Who waits for a dead server's end waits that long.
	Duration = 15 * time.Second
	// renewal is how often it is renewed: one request may fail, and the next comes in time.
	renewal = 5 * time.Second
	// oneTry bounds one request.
	oneTry = 4 * time.Second
	// Label marks the Leases of servers.
	Label = "velero.io/server"

	separator = "_"
)

// Leases is the part of client-go's client for Leases that is needed.
type Leases interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

var _ Leases = coordinationclient.LeaseInterface(nil)

// ID names a process, as "name_random".
type ID string

// NewID makes the ID of this process.
func NewID(server string) ID {
	random := make([]byte, 6)
	_, _ = rand.Read(random) // it never fails, says its documentation
	return ID(server + separator + hex.EncodeToString(random))
}

// server is the name in an ID; empty for what is no ID.
func (id ID) server() string {
	name, _, found := strings.Cut(string(id), separator)
	if !found {
		return ""
	}
	return name
}

// IsNamesake says whether an ID is that of another process of the same server name.
func (id ID) IsNamesake(other ID) bool {
	return id != other && id.server() != "" && id.server() == other.server()
}

// leaseName is the name of the Lease of a server.
func leaseName(server string) string {
	name := "velero-server-" + strings.ToLower(server)
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(server))
	return "velero-server-" + hex.EncodeToString(sum[:8])
}

// CheckName says whether a server can have a name.
func CheckName(server string) error {
	if server == "" || strings.Contains(server, separator) {
		return fmt.Errorf("%q can't name a server: it needs a name without an underscore, such as that of its pod", server)
	}
	return nil
}

// Lease is that of this process.
type Lease struct {
	// ID of this process.
	ID ID
	// Leases of the server's namespace.
	Leases Leases
	// Clock dates and times the renewals.
	Clock clock.WithTicker
	// Log of the server.
	Log logrus.FieldLogger
	// Lost is called by Keep, once, when another process has the Lease, or has taken it away because it took this one for dead. What this
	// process runs may be in the hands of others from there on. Default: nobody is told.
	Lost func(cause error)

	// renewed is when the Lease was taken or renewed last.
	renewed time.Time
	// held says that Take has succeeded once. Before that a Lease of another holder is that of the process before.
	held bool
}

// Take makes the Lease, or takes it from the process of that name that was before. Take and Keep are not to be called at the same time.
func (l *Lease) Take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	now := metav1.NewMicroTime(l.Clock.Now())
	name := leaseName(l.ID.server())
	found, err := l.Leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		fresh := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{Label: "true"}}}
		l.fill(fresh, now)
		_, err = l.Leases.Create(ctx, fresh, metav1.CreateOptions{})
	case err == nil:
		l.fill(found, now)
		_, err = l.Leases.Update(ctx, found, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("taking Lease %s: %w", name, err)
	}
	l.held, l.renewed = true, now.Time
	return nil
}

func (l *Lease) fill(lease *coordinationv1.Lease, now metav1.MicroTime) {
	lease.Spec.HolderIdentity = ptr.To(string(l.ID))
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(Duration.Seconds()))
	lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
}

// errTaken: this process doesn't have the Lease any more.
var errTaken = errors.New("another server has taken the Lease of this one: it took this one for dead, or has the same name, which two " +
	"servers of a namespace must not have (see the flag --server-name)")

// Keep renews the Lease until ctx ends, and gives it back then. A renewal that fails is tried again at the next one's time, and so is
// Take as long as it hasn't succeeded.
func (l *Lease) Keep(ctx context.Context) {
	ticker := l.Clock.NewTicker(renewal)
	defer ticker.Stop()
	defer l.giveBack(context.WithoutCancel(ctx))
	var failing bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		err := l.hold(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errTaken):
			l.Log.WithError(err).Error("This server has lost its Lease; what it was doing may be in the hands of another one")
			if l.Lost != nil {
				l.Lost(err)
			}
			return
		case err != nil && !failing:
			l.Log.WithError(err).Warn("The Lease of this server couldn't be renewed; that is tried again, and not said again")
		}
		failing = err != nil
	}
}

// hold renews the Lease, or takes it where it can't be renewed.
func (l *Lease) hold(ctx context.Context) error {
	if !l.held {
		return l.Take(ctx)
	}
	now := metav1.NewMicroTime(l.Clock.Now())
	err := l.change(ctx, func(lease *coordinationv1.Lease) { lease.Spec.RenewTime = &now })
	switch {
	case apierrors.IsNotFound(err) && now.Sub(l.renewed) > Duration: // gone while it couldn't be renewed: who has looked knows no server
		return fmt.Errorf("%w; it is removed by now", errTaken)
	case apierrors.IsNotFound(err): // somebody deleted it
		return l.Take(ctx)
	case err == nil:
		l.renewed = now.Time
	}
	return err
}

// giveBack says that this process ends in order: nobody has to wait for the end of its Lease.
func (l *Lease) giveBack(ctx context.Context) {
	err := l.change(ctx, func(lease *coordinationv1.Lease) { lease.Spec.HolderIdentity = ptr.To("") })
	if err != nil && !errors.Is(err, errTaken) && !apierrors.IsNotFound(err) {
		l.Log.WithError(err).Debug("The Lease of this server wasn't given back; it runs out by itself")
	}
}

// change changes the Lease if this process has it.
func (l *Lease) change(ctx context.Context, do func(*coordinationv1.Lease)) error {
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	name := leaseName(l.ID.server())
	lease, err := l.Leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Lease %s: %w", name, err)
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != string(l.ID) {
		return errTaken
	}
	do(lease)
	if _, err := l.Leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing Lease %s: %w", name, err)
	}
	return nil
}
