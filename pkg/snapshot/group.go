// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// The API of VolumeGroupSnapshots. What is used of it is the same in all its versions, so it is reached without types; a
// cluster need not have it.
const (
	GroupAPI              = "groupsnapshot.storage.k8s.io"
	GroupResource         = "volumegroupsnapshots"
	GroupClassResource    = "volumegroupsnapshotclasses"
	groupContentsResource = "volumegroupsnapshotcontents"
	groupKind             = "VolumeGroupSnapshot"
	// inGroupFinalizer keeps a VolumeSnapshot from being deleted without its group.
	inGroupFinalizer = "snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection"
)

// AnnGroup is the annotation of a VolumeSnapshot that was taken as a member of a VolumeGroupSnapshot, whose name it has.
const AnnGroup = "velero.io/volume-group-snapshot"

// Group has a snapshot taken at one moment with those of other claims, as members of one VolumeGroupSnapshot. Requests with
// the same owner, namespace and Name belong together.
type Group struct {
	// LabelKey and Name are the label by which the VolumeGroupSnapshot selects claims. It may select claims that nobody asks for;
	// their snapshots go with the VolumeGroupSnapshot.
	LabelKey, Name string
	// Version of the API groupsnapshot.storage.k8s.io that the cluster serves.
	Version string
	// Class is the VolumeGroupSnapshotClass.
	Class string
	// VolumeHandle is the driver's name for this claim's volume.
	VolumeHandle string
}

// groupKey tells the groups apart that are being taken.
type groupKey struct {
	owner           types.UID
	namespace, name string
}

func keyOfGroup(r Request) groupKey {
	return groupKey{owner: r.Owner.UID, namespace: r.Namespace, name: r.Group.Name}
}

// GroupName is the name of the VolumeGroupSnapshot that is taken for an owner. Like Name it is the same each time.
func GroupName(owner types.UID, group string) string { return Name(owner, types.UID("group/"+group)) }

// groups takes VolumeGroupSnapshots and takes them apart again.
type groups struct {
	// api is nil where the caller of this package gave none.
	api     dynamic.Interface
	client  Client
	tracker *Tracker
	clock   clock.WithTicker
	log     logrus.FieldLogger
	judge   Judge
	retry   func(ctx context.Context, f func(context.Context) error) error
}

// groupRef is a VolumeGroupSnapshot.
type groupRef struct {
	version, namespace, name string
	uid                      types.UID
}

func (g *groups) resource(version, resource string) dynamic.NamespaceableResourceInterface {
	return g.api.Resource(schema.GroupVersionResource{Group: GroupAPI, Version: version, Resource: resource})
}

// groupError is why a group isn't taken.
type groupError struct {
	reason Reason
	err    error
}

func (e *groupError) Error() string { return e.err.Error() }
func (e *groupError) Unwrap() error { return e.err }

// take has one VolumeGroupSnapshot made for all members, and returns when each has its VolumeSnapshot, with the labels of a
// snapshot that was made alone. tell hears of errors that may heal. When not all come to be, cleanUp removes what was made; it is
// for the caller to call, when nobody waits for the answers any more.
func (g *groups) take(ctx context.Context, members []Request, tell func(string)) (answers []creation, cleanUp func()) {
	answers, cleanUp = make([]creation, len(members)), func() {}
	found, ref, err := g.takeAll(ctx, members, tell)
	if err != nil && ref.name != "" {
		cleanUp = func() { g.cleanUp(ctx, ref) }
	}
	for i, member := range members {
		answers[i] = creation{vs: found[member.PVC]}
		if err != nil {
			answers[i] = creation{refused: true, err: err, reason: ReasonCreateRefused}
			var failure *groupError
			if errors.As(err, &failure) {
				answers[i].reason = failure.reason
			}
		}
	}
	return answers, cleanUp
}

// cleanUp removes a group that has failed, also when ctx has ended.
func (g *groups) cleanUp(ctx context.Context, ref groupRef) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTimeout)
	defer cancel()
	if err := g.abandon(ctx, ref); err != nil {
		g.log.WithError(err).Errorf("VolumeGroupSnapshot %s/%s, which has failed, could not be removed", ref.namespace, ref.name)
	}
}

// takeAll returns the group's name also with an error, unless there is certainly none.
func (g *groups) takeAll(ctx context.Context, members []Request, tell func(string)) (map[string]*snapshotv1.VolumeSnapshot, groupRef, error) {
	if g.api == nil {
		return nil, groupRef{}, errors.New("this server has no access to VolumeGroupSnapshots")
	}
	first := members[0]
	ref, err := g.ensure(ctx, first)
	var found map[string]*snapshotv1.VolumeSnapshot
	if err == nil {
		found, err = g.await(ctx, ref, members, tell)
	}
	for i := 0; err == nil && i < len(members); i++ {
		found[members[i].PVC], err = g.adopt(ctx, ref, found[members[i].PVC], members[i])
	}
	if err != nil {
		return nil, ref, fmt.Errorf("the snapshot of its volume group %s: %w", first.Group.Name, err)
	}
	return found, ref, nil
}

// ensure creates the VolumeGroupSnapshot, or finds the one that was made for the same owner before.
func (g *groups) ensure(ctx context.Context, r Request) (groupRef, error) {
	ref := groupRef{version: r.Group.Version, namespace: r.Namespace, name: GroupName(r.Owner.UID, r.Group.Name)}
	want := desiredGroup(r)
	api := g.resource(ref.version, GroupResource).Namespace(ref.namespace)
	var got *unstructured.Unstructured
	err := g.retry(ctx, func(ctx context.Context) (err error) {
		got, err = api.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			got, err = api.Get(ctx, ref.name, metav1.GetOptions{})
		}
		return err
	})
	switch {
	case isMissingResource(err):
		return groupRef{}, missingGroupCRD(err)
	case err != nil && !isTransient(err) && ctx.Err() == nil:
		return groupRef{}, fmt.Errorf("creating VolumeGroupSnapshot %s/%s: %w", ref.namespace, ref.name, err)
	case err != nil: // it may have been made all the same
		return ref, fmt.Errorf("creating VolumeGroupSnapshot %s/%s: %w", ref.namespace, ref.name, err)
	case got.GetLabels()[velerov1.BackupUIDLabel] != string(r.Owner.UID), got.GetDeletionTimestamp() != nil:
		return groupRef{}, fmt.Errorf("a VolumeGroupSnapshot %s/%s exists already and is another backup's or is being deleted; delete it or wait for its end",
			ref.namespace, ref.name)
	}
	ref.uid = got.GetUID()
	return ref, nil
}

func missingGroupCRD(err error) error {
	return fmt.Errorf("the CRD %s.%s is missing: install the group snapshot CRDs of external-snapshotter and have its feature "+
		"CSIVolumeGroupSnapshot on, or take the group label off the claims: %w", GroupResource, GroupAPI, err)
}

func desiredGroup(r Request) *unstructured.Unstructured {
	want := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": GroupAPI + "/" + r.Group.Version,
		"kind":       groupKind,
		"spec": map[string]any{
			"volumeGroupSnapshotClassName": r.Group.Class,
			"source": map[string]any{
				"selector": map[string]any{"matchLabels": map[string]any{r.Group.LabelKey: r.Group.Name}},
			},
		},
	}}
	want.SetNamespace(r.Namespace)
	want.SetName(GroupName(r.Owner.UID, r.Group.Name))
	want.SetLabels(map[string]string{
		velerov1.BackupNameLabel: label.GetValidName(r.Owner.Name), velerov1.BackupUIDLabel: string(r.Owner.UID), r.Group.LabelKey: r.Group.Name,
	})
	if r.Owner.Namespace != "" {
		want.SetAnnotations(map[string]string{AnnInstallation: r.Owner.Namespace})
	}
	return want
}

// await returns when every member has its VolumeSnapshot. Those of other claims that the selector covers aren't waited for.
func (g *groups) await(ctx context.Context, ref groupRef, members []Request, tell func(string)) (map[string]*snapshotv1.VolumeSnapshot, error) {
	ctx, cancel := context.WithCancel(ctx)
	var watching errgroup.Group
	defer func() { cancel(); _ = watching.Wait() }()

	news := newMailbox[string]()
	handles := map[string]bool{}
	for _, member := range members {
		handles[member.Group.VolumeHandle] = true
	}
	stop, err := g.tracker.onContent(func(content *snapshotv1.VolumeSnapshotContent, deleted bool) {
		if !deleted && content.Spec.Driver == members[0].Driver && handles[ptr.Deref(content.Spec.Source.VolumeHandle, "")] &&
			content.Spec.VolumeSnapshotRef.Namespace == ref.namespace && content.Spec.VolumeSnapshotRef.UID != "" {
			news.put("")
		}
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := stop(); err != nil {
			g.log.WithError(err).Debug("An event handler of a group snapshot could not be taken off")
		}
	}()
	watching.Go(func() error { g.follow(ctx, ref, news.put); return nil })
	return g.collect(ctx, ref, members, news, tell)
}

// collect looks at the group's VolumeSnapshots each time something has happened that may have made one.
func (g *groups) collect(ctx context.Context, ref groupRef, members []Request, news *mailbox[string], tell func(string)) (map[string]*snapshotv1.VolumeSnapshot, error) {
	fault := Fault{}
	for {
		found, err := g.members(ctx, ref)
		if err != nil {
			return nil, err
		}
		if hasAll(found, members) {
			return found, nil
		}
		select {
		case <-news.signal:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for VolumeGroupSnapshot %s/%s: %w", ref.namespace, ref.name, context.Cause(ctx))
		}
		for _, text := range news.take() {
			if text == "" || text == fault.Text {
				continue
			}
			fault = Fault{Text: text, Since: earliest(fault.Since, g.clock.Now()), Attempts: fault.Attempts + 1}
			tell(text)
			if judgement := g.judge.Judge(observationOf(members[0]).of(fault, g.clock.Now())); judgement.Verdict == Terminal {
				return nil, &groupError{reason: ReasonTerminalError, err: errors.New(judgement.Explain(text))}
			}
		}
	}
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

func observationOf(r Request) Observation {
	return Observation{Driver: r.Driver, Phase: PhaseCutting, StorageClass: r.StorageClass, Namespace: r.Namespace, PVC: r.PVC}
}

func hasAll(found map[string]*snapshotv1.VolumeSnapshot, members []Request) bool {
	for _, member := range members {
		if found[member.PVC] == nil {
			return false
		}
	}
	return true
}

// members returns the VolumeSnapshots of a group by their claims. They have no label yet by which the tracker would know them.
func (g *groups) members(ctx context.Context, ref groupRef) (map[string]*snapshotv1.VolumeSnapshot, error) {
	var list *snapshotv1.VolumeSnapshotList
	err := g.retry(ctx, func(ctx context.Context) (err error) {
		list, err = g.client.VolumeSnapshots(ref.namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the VolumeSnapshots of VolumeGroupSnapshot %s/%s: %w", ref.namespace, ref.name, err)
	}
	found := map[string]*snapshotv1.VolumeSnapshot{}
	for i := range list.Items {
		vs := &list.Items[i]
		if owner := groupOf(vs); owner != nil && owner.UID == ref.uid {
			found[ptr.Deref(vs.Spec.Source.PersistentVolumeClaimName, "")] = vs
		}
	}
	return found, nil
}

// groupOf is the VolumeGroupSnapshot that a VolumeSnapshot is a member of; nil when there is none.
func groupOf(vs metav1.Object) *metav1.OwnerReference {
	for _, owner := range vs.GetOwnerReferences() {
		if gv, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && gv.Group == GroupAPI && owner.Kind == groupKind {
			return &owner
		}
	}
	return nil
}

// follow tells of each error that stands on the VolumeGroupSnapshot until ctx ends. Without the permission to watch it tells of
// none, and the deadline decides.
func (g *groups) follow(ctx context.Context, ref groupRef, news func(string)) {
	api := g.resource(ref.version, GroupResource).Namespace(ref.namespace)
	for n := 1; ctx.Err() == nil; n++ {
		w, err := api.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + ref.name})
		if err == nil {
			tellErrors(ctx, w, ref.uid, news)
		}
		timer := g.clock.NewTimer(retryDelay(n, err))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// tellErrors tells of the errors that a watch shows until it or ctx ends.
func tellErrors(ctx context.Context, w watch.Interface, uid types.UID, news func(string)) {
	defer w.Stop()
	for {
		select {
		case event, open := <-w.ResultChan():
			if !open {
				return
			}
			if vgs, ok := event.Object.(*unstructured.Unstructured); ok && vgs.GetUID() == uid {
				text, _, _ := unstructured.NestedString(vgs.Object, "status", "error", "message")
				news(text)
			}
		case <-ctx.Done():
			return
		}
	}
}

// adopt puts on a member what a snapshot that was made alone has from the beginning. By its labels the tracker sees it. Without a
// class the snapshot-controller would not let it go once it has left its group (as of external-snapshotter v8.7.0).
func (g *groups) adopt(ctx context.Context, ref groupRef, vs *snapshotv1.VolumeSnapshot, r Request) (*snapshotv1.VolumeSnapshot, error) {
	want := desired(r)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AnnGroup, ref.name)
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": vs.UID, "labels": want.Labels, "annotations": want.Annotations},
		"spec":     map[string]any{"volumeSnapshotClassName": want.Spec.VolumeSnapshotClassName},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the patch of VolumeSnapshot %s/%s: %w", vs.Namespace, vs.Name, err)
	}
	var updated *snapshotv1.VolumeSnapshot
	err = g.retry(ctx, func(ctx context.Context) (err error) {
		updated, err = g.client.VolumeSnapshots(vs.Namespace).Patch(ctx, vs.Name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("labelling VolumeSnapshot %s/%s: %w", vs.Namespace, vs.Name, err)
	}
	return updated, nil
}

// describe names a request's VolumeSnapshot, or its group while that isn't there.
func describe(r Request, key types.NamespacedName) string {
	if r.Group == nil {
		return "VolumeSnapshot " + key.String()
	}
	return "VolumeGroupSnapshot " + r.Namespace + "/" + GroupName(r.Owner.UID, r.Group.Name)
}
