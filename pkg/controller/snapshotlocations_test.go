// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func snapshotLocation(name, provider string) *velerov1.VolumeSnapshotLocation {
	return &velerov1.VolumeSnapshotLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       velerov1.VolumeSnapshotLocationSpec{Provider: provider},
	}
}

func asking(locations ...string) *velerov1.Backup {
	return ready("b", func(b *velerov1.Backup) { b.Spec.VolumeSnapshotLocations = locations })
}

func TestSnapshotLocations(t *testing.T) { // 37 to 39
	east, west, gcp := snapshotLocation("east", "aws"), snapshotLocation("west", "aws"), snapshotLocation("only", "gcp")
	elsewhere := snapshotLocation("elsewhere", "azure")
	elsewhere.Namespace = "other"

	for _, c := range []struct {
		name     string
		asked    []string
		there    []client.Object
		defaults map[string]string
		want     []string
		refused  []string
	}{
		{name: "none"},
		{name: "the only one of a provider", there: []client.Object{gcp}, want: []string{"only"}},
		{name: "another namespace's don't count", there: []client.Object{gcp, elsewhere}, want: []string{"only"}},
		{name: "named, and the only one of another provider", asked: []string{"west"}, there: []client.Object{east, west, gcp}, want: []string{"west", "only"}},
		{name: "named twice", asked: []string{"west", "west"}, there: []client.Object{east, west}, want: []string{"west"}},
		{name: "the server's default", there: []client.Object{east, west}, defaults: map[string]string{"aws": "west"}, want: []string{"west"}},
		{name: "the spec wins over the server's default", asked: []string{"east"}, there: []client.Object{east, west}, defaults: map[string]string{"aws": "west"}, want: []string{"east"}},
		{name: "no default needed for one", there: []client.Object{gcp}, defaults: map[string]string{"gcp": "other"}, want: []string{"only"}},
		{name: "missing", asked: []string{"gone"}, there: []client.Object{gcp}, refused: []string{`spec.volumeSnapshotLocations: location "gone" doesn't exist`}},
		{name: "two of a provider", asked: []string{"west", "east"}, there: []client.Object{east, west}, refused: []string{`"west" and "east" are both for provider aws`}},
		{name: "no default among several", there: []client.Object{east, west, gcp}, refused: []string{"several volume snapshot locations for provider aws"}},
		{name: "default missing", there: []client.Object{east, west}, defaults: map[string]string{"aws": "gone"}, refused: []string{`location for provider aws, "gone", doesn't exist`}},
		{name: "default of another provider", there: []client.Object{east, west, gcp}, defaults: map[string]string{"aws": "only"}, refused: []string{`location for provider aws, "only", is for provider gcp`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(c.there...), func(s *setup) { s.options.Defaults.VolumeSnapshotLocations = c.defaults })
			j := h.prepare(t, asking(c.asked...))
			expectRefusals(t, j, c.refused...)
			if len(c.refused) > 0 {
				return
			}
			var chosen []string
			for _, location := range j.snapshotLocations {
				chosen = append(chosen, location.Name)
			}
			g.Expect(chosen).To(Equal(c.want))
			g.Expect(j.backup.Spec.VolumeSnapshotLocations).To(Equal(c.want))
		})
	}

	t.Run("can't be listed", func(t *testing.T) {
		h := newHarness(t, intercepting(failingList(new(velerov1.VolumeSnapshotLocationList))))
		expectRefusals(t, h.prepare(t, ready("b")), "the volume snapshot locations can't be listed: boom")
	})
}

type credentialsFunc func(*SecretKey) (string, error)

func (f credentialsFunc) Path(selector *SecretKey) (string, error) { return f(selector) }

func TestSnapshotLocationCredentials(t *testing.T) { // 39
	secret := snapshotLocation("a", "aws")
	secret.Spec.Credential = &SecretKey{Key: "cloud"}
	secret.Spec.Credential.Name = "aws-credentials"
	secret.Spec.Config = map[string]string{"region": "here"}
	bare := snapshotLocation("b", "gcp")

	t.Run("told to the plugin", func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t, with(secret, bare), func(s *setup) {
			s.credentials = credentialsFunc(func(selector *SecretKey) (string, error) { return "/files/" + selector.Name + "/" + selector.Key, nil })
		})
		j := h.prepare(t, ready("b"))
		expectRefusals(t, j)
		g.Expect(j.snapshotLocations).To(HaveLen(2))
		g.Expect(j.snapshotLocations[0].Spec.Config).To(Equal(map[string]string{"region": "here", "credentialsFile": "/files/aws-credentials/cloud"}))
		g.Expect(j.snapshotLocations[1].Spec.Config).To(BeEmpty())
	})
	t.Run("can't be read", func(t *testing.T) {
		h := newHarness(t, with(secret), func(s *setup) {
			s.credentials = credentialsFunc(func(*SecretKey) (string, error) { return "", errBoom })
		})
		expectRefusals(t, h.prepare(t, ready("b")), `the credentials of volume snapshot location "a" can't be read: boom`)
	})
}
