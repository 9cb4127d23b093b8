// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/features"
	"golang.org/x/sync/errgroup"
)

// startFunc is something startable.
type startFunc func(ctx context.Context) error

func (f startFunc) Start(ctx context.Context) error { return f(ctx) }

func TestSnapshotsAreFollowedOnlyWithTheCSIFeature(t *testing.T) {
	for name, enabled := range map[string]bool{"on": true, "off": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				features.NewFeatureFlagSet()
				defer features.NewFeatureFlagSet()
				if enabled {
					features.Enable(velerov1.CSIFeatureFlag)
				}
				ctx, cancel := context.WithCancel(t.Context())
				started, returned := false, false
				tracker := ifSnapshotsAreOn(startFunc(func(ctx context.Context) error { started = true; <-ctx.Done(); return nil }))
				var group errgroup.Group
				group.Go(func() error { defer func() { returned = true }(); return tracker.Start(ctx) })
				synctest.Wait()
				g.Expect(started).To(Equal(enabled))
				g.Expect(returned).To(BeFalse())
				cancel()
				g.Expect(group.Wait()).To(Succeed())
			})
		})
	}
}

func TestTheTrackerOutlivesTheManager(t *testing.T) {
	for name, managerErr := range map[string]error{"that ends in order": nil, "that fails": errBoom} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				finish := make(chan struct{})
				var ended []string
				mgr := startFunc(func(ctx context.Context) error {
					<-ctx.Done()
					<-finish // it waits for the backups that were given up
					ended = append(ended, "manager")
					return managerErr
				})
				tracker := startFunc(func(ctx context.Context) error {
					<-ctx.Done()
					ended = append(ended, "tracker")
					return nil
				})
				var group errgroup.Group
				group.Go(func() error { return serve(ctx, mgr, tracker) })
				cancel()
				synctest.Wait()
				g.Expect(ended).To(BeEmpty())
				close(finish)
				err := group.Wait()
				g.Expect(ended).To(Equal([]string{"manager", "tracker"}))
				if managerErr == nil {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(managerErr))
				}
			})
		})
	}
}
