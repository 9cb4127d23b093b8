// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var errCutOff = errors.New("no route to the API server")

// seenBy is an API server as a server sees it that may be cut off.
type seenBy struct{ *cutOff }

func (s *seenBy) isAway() (away bool) {
	s.set(func() { away = s.away })
	return away
}

func (s *seenBy) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	if s.isAway() {
		return nil, errCutOff
	}
	return s.leases.Get(ctx, name, opts)
}

func (s *seenBy) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if s.isAway() {
		return nil, errCutOff
	}
	return s.leases.Create(ctx, lease, opts)
}

func (s *seenBy) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if s.isAway() {
		return nil, errCutOff
	}
	return s.leases.Update(ctx, lease, opts)
}

// renewedMeanwhile has a Lease renewed right before it is written.
type renewedMeanwhile struct {
	Leases
	renew func()
}

func (r *renewedMeanwhile) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	r.renew()
	return r.Leases.Update(ctx, lease, opts)
}
