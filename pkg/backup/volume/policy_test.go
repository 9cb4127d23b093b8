// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware-tanzu/velero/pkg/builder"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/backup/volume"
)

func TestClaimsThatAPolicySkips(t *testing.T) { // 184
	pending := func(s *scene) { s.claim.Status.Phase, s.claim.Spec.VolumeName = corev1.ClaimPending, "" }
	for name, tc := range map[string]struct {
		change  func(*scene)
		decider decider
		want    bool
		err     string
	}{
		"skip":                           {decider: decider{action: "skip"}, want: true},
		"snapshot":                       {decider: decider{yes: true, action: "snapshot"}},
		"fs-backup":                      {decider: decider{action: "fs-backup"}},
		"no policy":                      {decider: decider{}},
		"the volume is gone":             {change: func(s *scene) { s.volume = nil }, decider: decider{action: "skip"}, err: "finding the volume of claim app/data"},
		"can't be told":                  {decider: decider{actionErr: errors.New("what")}, err: "claim app/data: what"},
		"unbound, a policy speaks of it": {change: pending, decider: decider{}, want: true},
		"unbound, no policy does":        {change: pending, decider: decider{err: errors.New("no volume")}},
		"unbound, to be snapshotted":     {change: pending, decider: decider{yes: true}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScene()
			if tc.change != nil {
				tc.change(s)
			}
			var objects []runtime.Object
			if s.volume != nil {
				objects = append(objects, s.volume)
			}
			planner := &volume.Planner{Objects: volume.NewObjects(newClient(t, objects...)), Decider: tc.decider}
			skipped, err := planner.SkippedByPolicy(t.Context(), toUnstructured(t, s.claim))
			g.Expect(skipped).To(Equal(tc.want))
			if tc.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
			}
		})
	}
}

// refusing answers gets with an error.
type refusing struct {
	client.Reader
	err error
}

func (r refusing) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return r.err
}

func TestNativeSnapshotsThatAPolicySkips(t *testing.T) { // 262
	pv := builder.ForPersistentVolume("pv").ClaimRef("app", "data").AWSEBSVolumeID("vol-1").Result()
	claim := builder.ForPersistentVolumeClaim("app", "data").VolumeName("pv").Phase(corev1.ClaimBound).Result()
	for name, tc := range map[string]struct {
		decider volume.Decider
		claims  client.Reader
		skipped bool
		err     string
	}{
		"by the volume":                 {decider: decider{action: "skip"}, skipped: true},
		"by its claim":                  {decider: decider{yes: true, action: "skip"}, claims: newClient(t, claim), skipped: true},
		"not by its claim":              {decider: decider{yes: true, action: "snapshot"}, claims: newClient(t, claim)},
		"the claim is gone":             {decider: decider{yes: true, action: "skip"}, claims: newClient(t)},
		"the claim can't be read":       {decider: decider{yes: true}, claims: refusing{err: apierrors.NewUnauthorized("who are you")}, err: "policy for the claim of volume pv: who are you"},
		"the policy can't be told":      {decider: decider{yes: true, actionErr: errors.New("what")}, claims: newClient(t, claim), err: "policy for the claim of volume pv: what"},
		"without policies nobody looks": {decider: decider{yes: true, action: "skip"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			n := newNative(t, nightly().Result(), plugins{"aws": {id: "vol-1"}}, "aws")
			n.Decider, n.Claims = tc.decider, tc.claims
			err := n.protect(t, pv)
			_, attempted, _ := n.ledger.NativeSnapshots()
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				g.Expect(attempted).To(BeZero())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(attempted == 0).To(Equal(tc.skipped))
			if tc.skipped {
				g.Expect(n.ledger.SkippedSummary()).To(ContainSubstring("policy says that the volume is skipped"))
			}
		})
	}
}

func TestClaimsThatAreKnownAreNotRead(t *testing.T) {
	g := NewWithT(t)
	c := newClient(t, builder.ForPersistentVolumeClaim("app", "read").VolumeName("pv").Phase(corev1.ClaimBound).Result(),
		builder.ForPersistentVolumeClaim("app", "pending").Result())
	objects := volume.NewObjects(c)
	objects.KnowClaim(builder.ForPersistentVolumeClaim("app", "known").VolumeName("pv").Phase(corev1.ClaimBound).Result())

	pvc := new(corev1.PersistentVolumeClaim)
	g.Expect(objects.Get(t.Context(), client.ObjectKey{Namespace: "app", Name: "known"}, pvc)).To(Succeed())
	g.Expect(pvc.Spec.VolumeName).To(Equal("pv"))
	g.Expect(objects.IsUnbound(t.Context(), "app", "known")).To(BeFalse())
	g.Expect(c.gets.Load()).To(BeZero())

	pvc.Spec.VolumeName = "changed"
	g.Expect(objects.Get(t.Context(), client.ObjectKey{Namespace: "app", Name: "known"}, pvc)).To(Succeed())
	g.Expect(pvc.Spec.VolumeName).To(Equal("pv"), "everybody gets a copy")

	g.Expect(objects.IsUnbound(t.Context(), "app", "read")).To(BeFalse())
	g.Expect(objects.IsUnbound(t.Context(), "app", "pending")).To(BeTrue())
	g.Expect(objects.IsUnbound(t.Context(), "app", "gone")).To(BeFalse(), "what isn't there is another error")
	g.Expect(c.gets.Load()).To(BeEquivalentTo(3))
}
