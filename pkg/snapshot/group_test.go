// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// Patch merges as an API server does.
func (s *apiSnapshots) Patch(ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*snapshotv1.VolumeSnapshot, error) {
	if err := s.api.ask(ctx, fmt.Sprint("patch", subresources), snapshotsResource, name); err != nil {
		return nil, err
	}
	current, err := s.api.get(snapshotsResource, s.namespace, name)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	if err != nil {
		return nil, err
	}
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	if metadata, ok := patch["metadata"].(map[string]any); ok && metadata["resourceVersion"] != nil && metadata["resourceVersion"] != current.GetResourceVersion() {
		return nil, apierrors.NewConflict(gr(snapshotsResource), name, errors.New("it was changed"))
	}
	merge(content, patch)
	merged := new(snapshotv1.VolumeSnapshot)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, merged); err != nil {
		return nil, err
	}
	key := types.NamespacedName{Namespace: s.namespace, Name: name}
	s.api.changeSnapshot(key, func(vs *snapshotv1.VolumeSnapshot) { *vs = *merged })
	return merged, nil
}

func merge(into, patch map[string]any) {
	for key, value := range patch {
		nested, ok := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case ok:
			if into[key] == nil {
				into[key] = map[string]any{}
			}
			merge(into[key].(map[string]any), nested)
		default:
			into[key] = value
		}
	}
}

const groupVersion = "v1"

func groupGVR(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: GroupAPI, Version: groupVersion, Resource: resource}
}

// groupAPI is the API of VolumeGroupSnapshots in memory.
type groupAPI struct {
	*fake.FakeDynamicClient
	uids int
}

func newGroupAPI() *groupAPI {
	g := &groupAPI{FakeDynamicClient: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		groupGVR(GroupResource): "VolumeGroupSnapshotList", groupGVR(groupContentsResource): "VolumeGroupSnapshotContentList",
	})}
	g.PrependReactor("create", GroupResource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		g.uids++
		action.(clienttesting.CreateAction).GetObject().(metav1.Object).SetUID(types.UID(fmt.Sprintf("group-uid-%d", g.uids)))
		return false, nil, nil
	})
	return g
}

func (g *groupAPI) count(verb, resource string) int {
	n := 0
	for _, action := range g.Actions() {
		if action.Matches(verb, resource) {
			n++
		}
	}
	return n
}

// groupHarness is a harness with groups.
type groupHarness struct {
	*harness
	groups *groupAPI
}

func inGroupBubble(t *testing.T, opts TakerOptions, test func(*groupHarness)) {
	t.Helper()
	groups := newGroupAPI()
	opts.Groups = groups
	inBubble(t, opts, nil, func(h *harness) { test(&groupHarness{harness: h, groups: groups}) })
}

func grouped(r *Request) {
	r.Group = &Group{LabelKey: "group", Name: "db", Version: groupVersion, Class: "group-class", VolumeHandle: "volume-of-" + r.PVC}
}

var groupName = GroupName("backup-uid", "db")

func (h *groupHarness) vgs() *unstructured.Unstructured {
	got, err := h.groups.Resource(groupGVR(GroupResource)).Namespace("app").Get(context.Background(), groupName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	h.Expect(err).NotTo(HaveOccurred())
	return got
}

// bindGroup gives the VolumeGroupSnapshot its content, as the snapshot-controller does.
func (h *groupHarness) bindGroup() {
	content := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": GroupAPI + "/" + groupVersion, "kind": "VolumeGroupSnapshotContent", "metadata": map[string]any{"name": "group-content"},
		"spec": map[string]any{"deletionPolicy": "Delete"},
	}}
	_, err := h.groups.Resource(groupGVR(groupContentsResource)).Create(context.Background(), content, metav1.CreateOptions{})
	h.Expect(err).NotTo(HaveOccurred())
	h.status(map[string]any{"boundVolumeGroupSnapshotContentName": "group-content"})
}

func (h *groupHarness) status(status map[string]any) {
	vgs := h.vgs()
	vgs.Object["status"] = status
	_, err := h.groups.Resource(groupGVR(GroupResource)).Namespace("app").Update(context.Background(), vgs, metav1.UpdateOptions{})
	h.Expect(err).NotTo(HaveOccurred())
	synctest.Wait()
}

func memberOf(claim string) types.NamespacedName {
	return types.NamespacedName{Namespace: "app", Name: "snapshot-of-" + claim}
}

// cutMembers makes the members' objects, as the snapshot-controller does when the driver has cut the group.
func (h *groupHarness) cutMembers(claims ...string) {
	vgs := h.vgs()
	for _, claim := range claims {
		vs := &snapshotv1.VolumeSnapshot{}
		vs.Namespace, vs.Name, vs.Finalizers = "app", memberOf(claim).Name, []string{inGroupFinalizer, "other"}
		vs.OwnerReferences = []metav1.OwnerReference{{APIVersion: GroupAPI + "/" + groupVersion, Kind: groupKind, Name: vgs.GetName(), UID: vgs.GetUID()}}
		vs.Spec.Source.PersistentVolumeClaimName = ptr.To(claim)
		made, err := h.api.create(snapshotsResource, vs)
		h.Expect(err).NotTo(HaveOccurred())
		content := &snapshotv1.VolumeSnapshotContent{}
		content.Name = "content-of-" + claim
		content.Spec.Driver, content.Spec.Source.VolumeHandle = "driver", ptr.To("volume-of-"+claim)
		content.Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentDelete
		content.Spec.VolumeSnapshotRef = corev1.ObjectReference{Namespace: "app", Name: vs.Name, UID: made.GetUID()}
		_, err = h.api.create(contentsResource, content)
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(h.api.changeContent(content.Name, func(c *snapshotv1.VolumeSnapshotContent) {
			contentStatus(c).SnapshotHandle, contentStatus(c).ReadyToUse = ptr.To("handle-of-"+claim), ptr.To(true)
			contentStatus(c).VolumeGroupSnapshotHandle = ptr.To("group-handle")
		})).To(Succeed())
		h.api.changeSnapshot(memberOf(claim), func(vs *snapshotv1.VolumeSnapshot) {
			vs.Status = &snapshotv1.VolumeSnapshotStatus{
				ReadyToUse: ptr.To(true), BoundVolumeSnapshotContentName: ptr.To(content.Name), VolumeGroupSnapshotName: ptr.To(vgs.GetName()),
			}
		})
	}
	synctest.Wait()
}

func TestAGroupIsTakenAsOne(t *testing.T) { // 306 to 309
	inGroupBubble(t, TakerOptions{}, func(h *groupHarness) {
		snaps := h.taker.Take(h.ctx, requests(3, grouped, frozen, func(r *Request) { r.Owner.Namespace = "velero" })...)
		synctest.Wait()
		vgs := h.vgs()
		h.Expect(vgs.GetLabels()).To(Equal(map[string]string{velerov1.BackupNameLabel: "backup", velerov1.BackupUIDLabel: "backup-uid", "group": "db"}))
		h.Expect(vgs.Object["spec"]).To(Equal(map[string]any{
			"volumeGroupSnapshotClassName": "group-class", "source": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"group": "db"}}},
		}))
		h.bindGroup()
		h.cutMembers("data-0", "data-1")
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cutting": 3}), "one is missing")
		h.cutMembers("refused", "data-2")
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 3}), "claims that nobody asked for are not waited for (308)")
		h.Expect(h.ready(snaps[0])).To(BeTrue())

		outcome := snaps[1].Outcome()
		h.Expect(outcome.VolumeSnapshot.Name).To(Equal("snapshot-of-data-1"))
		h.Expect(*outcome.Content.Status.SnapshotHandle).To(Equal("handle-of-data-1"))
		vs := h.api.snapshot(memberOf("data-1"))
		h.Expect(vs.Labels).To(Equal(map[string]string{
			velerov1.BackupNameLabel: "backup", velerov1.BackupUIDLabel: "backup-uid", velerov1.PVCUIDLabel: "pvc-1",
		}))
		h.Expect(vs.Annotations).To(Equal(map[string]string{AnnGroup: groupName, AnnInstallation: "velero"}))
		h.Expect(*vs.Spec.VolumeSnapshotClassName).To(Equal("class"), "or it couldn't be deleted after it has left the group")
		h.Expect(isTaken(vs, "velero")).To(BeTrue(), "the sweep knows it")
		h.Expect(h.api.snapshot(memberOf("refused")).Labels).To(BeEmpty())
		h.Expect(h.groups.count("create", GroupResource)).To(Equal(1))
		h.Expect(h.api.asked("create " + snapshotsResource)).To(BeZero())
	})
}

func TestMembersThatStartLaterFindTheGroup(t *testing.T) { // 303
	inGroupBubble(t, parallelism("1"), func(h *groupHarness) {
		snaps := h.taker.Take(h.ctx, requests(2, grouped)...)
		synctest.Wait()
		h.bindGroup()
		h.cutMembers("data-0", "data-1")
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 2}))
		h.Expect(h.groups.uids).To(Equal(2), "the second try is refused")
		h.Expect(h.vgs().GetUID()).To(BeEquivalentTo("group-uid-1"))
	})
}

func TestAGroupThatFails(t *testing.T) { // 307, 311
	judge := JudgeFunc(func(o Observation) Judgement {
		if o.Code == "ResourceExhausted" {
			return Judgement{Verdict: Terminal, Reason: "the quota is used up"}
		}
		return Judgement{Verdict: Retryable}
	})
	for name, test := range map[string]struct {
		end    func(*groupHarness, context.CancelFunc)
		reason Reason
		says   string
	}{
		"by an error that is final": {
			end: func(h *groupHarness, _ context.CancelFunc) {
				h.status(map[string]any{
					"boundVolumeGroupSnapshotContentName": "group-content",
					"error":                               map[string]any{"message": "rpc error: code = ResourceExhausted desc = full"},
				})
			},
			reason: ReasonTerminalError, says: "volume group db: the quota is used up: ResourceExhausted: full",
		},
		"by time": {
			end: func(h *groupHarness, _ context.CancelFunc) {
				h.status(map[string]any{
					"boundVolumeGroupSnapshotContentName": "group-content", "error": map[string]any{"message": "rpc error: code = Internal desc = odd"},
				})
				h.pass(testTimeout)
			},
			reason: ReasonTimedOut, says: "VolumeGroupSnapshot app/" + groupName,
		},
		"because the backup is given up": {
			end:    func(_ *groupHarness, cancel context.CancelFunc) { cancel(); synctest.Wait() },
			reason: ReasonAbandoned, says: "PVC app/data-0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inGroupBubble(t, TakerOptions{Judge: judge}, func(h *groupHarness) {
				ctx, cancel := context.WithCancel(h.ctx)
				defer cancel()
				snaps := h.taker.Take(ctx, requests(2, grouped)...)
				synctest.Wait()
				h.bindGroup()
				h.cutMembers("data-0")
				h.api.changeSnapshot(memberOf("data-0"), func(vs *snapshotv1.VolumeSnapshot) { vs.Annotations = nil })
				test.end(h, cancel)
				h.Expect(reasons(snaps)).To(Equal(map[string]int{string(test.reason): 2}))
				h.Expect(snaps[0].Outcome().Message).To(ContainSubstring(test.says))
				h.Expect(h.vgs()).To(BeNil(), "it is removed, and the snapshot-controller takes its members along")
				content, err := h.groups.Resource(groupGVR(groupContentsResource)).Get(context.Background(), "group-content", metav1.GetOptions{})
				h.Expect(err).NotTo(HaveOccurred())
				policy, _, _ := unstructured.NestedString(content.Object, "spec", "deletionPolicy")
				h.Expect(policy).To(Equal("Delete"), "the physical snapshots go, too")
			})
		})
	}
}

func TestAGroupInAClusterWithoutTheAPI(t *testing.T) {
	inGroupBubble(t, TakerOptions{}, func(h *groupHarness) {
		h.groups.PrependReactor("create", GroupResource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, missingResource(GroupResource)
		})
		h.api.onCreate = nil
		alone := h.taker.Take(h.ctx, request(7))
		snaps := h.taker.Take(h.ctx, requests(2, grouped)...)
		synctest.Wait()
		h.Expect(reasons(snaps)).To(Equal(map[string]int{string(ReasonCreateRefused): 2}))
		h.Expect(snaps[0].Outcome().Message).To(And(ContainSubstring("CRD volumegroupsnapshots.groupsnapshot.storage.k8s.io is missing"), ContainSubstring("take the group label off")))
		h.api.cut(keyOf(request(7)))
		synctest.Wait()
		h.Expect(reasons(alone)).To(Equal(map[string]int{"Cut": 1}), "others aren't touched by that")
	})
}

func TestLeavingAGroup(t *testing.T) { // 309, 310
	inGroupBubble(t, TakerOptions{}, func(h *groupHarness) {
		snaps := h.taker.Take(h.ctx, requests(2, grouped)...)
		synctest.Wait()
		h.bindGroup()
		h.cutMembers("data-0", "data-1", "refused")
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 2}))

		h.Expect(h.taker.Remover().LeaveGroup(h.ctx, "app", "snapshot-of-data-0")).To(Succeed())
		vs := h.api.snapshot(memberOf("data-0"))
		h.Expect(vs.OwnerReferences).To(BeEmpty())
		h.Expect(vs.Finalizers).To(Equal([]string{"other"}))
		h.Expect(vs.Status.VolumeGroupSnapshotName).To(BeNil(), "or it would be made a member again")
		h.Expect(*vs.Status.BoundVolumeSnapshotContentName).To(Equal("content-of-data-0"))
		content, err := h.api.get(contentsResource, "", "content-of-data-0")
		h.Expect(err).NotTo(HaveOccurred())
		h.Expect(content.(*snapshotv1.VolumeSnapshotContent).Status.VolumeGroupSnapshotHandle).To(BeNil(), "or the physical snapshot would be left")
		h.Expect(h.vgs()).NotTo(BeNil(), "its deletion would take data-1 along")

		// A member that is removed leaves by itself.
		h.api.changeSnapshot(memberOf("data-1"), func(vs *snapshotv1.VolumeSnapshot) { vs.Finalizers = []string{inGroupFinalizer} })
		synctest.Wait()
		h.Expect(h.taker.Remove(h.ctx, Ref{Namespace: "app", Name: "snapshot-of-data-1"})).To(Succeed())
		synctest.Wait()
		h.Expect(h.api.snapshot(memberOf("data-1"))).To(BeNil())
		h.Expect(h.vgs()).To(BeNil(), "nobody needs it any more")
		deletions := []string{}
		for _, action := range h.groups.Actions() {
			if patch, ok := action.(clienttesting.PatchAction); ok {
				deletions = append(deletions, "patch "+string(patch.GetPatch()))
			}
			if action.GetVerb() == "delete" {
				deletions = append(deletions, "delete "+action.GetResource().Resource)
			}
		}
		h.Expect(deletions).To(Equal([]string{
			`patch {"spec":{"deletionPolicy":"Retain"}}`, "delete " + GroupResource, "delete " + groupContentsResource,
		}), "the physical snapshots stay")
		h.Expect(h.taker.Remover().LeaveGroup(h.ctx, "app", "snapshot-of-data-0")).To(Succeed(), "once more is harmless")
	})
}

func TestAGroupThatIsIncomplete(t *testing.T) {
	g := NewWithT(t)
	r := request(1, grouped)
	g.Expect(validate(r)).To(Succeed())
	r.Group.VolumeHandle = ""
	g.Expect(validate(r)).To(MatchError("Group is incomplete"))
}
