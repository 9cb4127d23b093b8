// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestGroups(t *testing.T) {
	g := NewWithT(t)
	storage := newStorage(0, []Behaviour{{Match: "app/bad", Fail: &Fail{Code: "InvalidArgument", Message: "broken"}}}, func(Snapshot) {})
	groups := &groupController{controller: &controller{storage: storage, size: 7}}
	ask := func(volumes ...string) (*csi.CreateVolumeGroupSnapshotResponse, error) {
		return groups.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: volumes})
	}

	made, err := ask("app/a", "app/b")
	g.Expect(err).NotTo(HaveOccurred())
	group := made.GetGroupSnapshot()
	g.Expect(group.GetReadyToUse()).To(BeTrue())
	g.Expect(group.GetSnapshots()).To(HaveLen(2))
	ids := []string{group.GetSnapshots()[0].GetSnapshotId(), group.GetSnapshots()[1].GetSnapshotId()}
	g.Expect(group.GetSnapshots()[1].GetSourceVolumeId()).To(Equal("app/b"))
	g.Expect(group.GetSnapshots()[1].GetGroupSnapshotId()).To(Equal(group.GetGroupSnapshotId()))

	again, err := ask("app/a", "app/b")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.GetGroupSnapshot().GetSnapshots()[0].GetSnapshotId()).To(Equal(ids[0]), "asking again makes no second one")
	got, err := groups.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.GetGroupSnapshot().GetSnapshots()).To(HaveLen(2))

	_, err = ask("app/a", "app/bad")
	g.Expect(status.Code(err)).To(Equal(codes.InvalidArgument), "one fails all")

	_, err = groups.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: ids})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(storage.list()).To(BeEmpty())
}
