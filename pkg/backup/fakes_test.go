// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	biactions "github.com/vmware-tanzu/velero/pkg/backup/actions"
	"github.com/vmware-tanzu/velero/pkg/builder"
	velerofactory "github.com/vmware-tanzu/velero/pkg/client"
	ibactions "github.com/vmware-tanzu/velero/pkg/itemblock/actions"
	"github.com/vmware-tanzu/velero/pkg/label"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v1"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
	ibav1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/itemblockaction/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/hook"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

const (
	driver      = "csi.example.com"
	testTimeout = 10 * time.Minute
	restoreSize = 2 << 30
)

// taker cuts snapshots at once, or when the test says so. As the real one it creates the VolumeSnapshot first, shows the
// cut on the content before the VolumeSnapshot, and gives up what is undecided when the context ends.
type taker struct {
	c *cluster
	// hold says which claims' snapshots wait for cut or fail. Nil: none.
	hold func(pvc string) bool
	// content, if set, changes the content before it is shown.
	content func(*snapshotv1.VolumeSnapshotContent)
	// neverReady keeps cut snapshots from becoming ready.
	neverReady bool
	// afterCut, if set, is called with the outcome before it is shown.
	afterCut func(*snapshot.Outcome)
	// reserved has how many places were asked for, each time.
	reserved []int
	// awaited has, for each time its readiness was awaited, how many events there had been.
	awaited []int
	// panics makes Take panic.
	panics bool

	mu    sync.Mutex
	calls [][]snapshot.Request
	open  map[string]*open
	// unready are those that are cut and not ready, by claim.
	unready map[string]func()
}

// becomeReady makes a snapshot ready that neverReady has kept from it.
func (k *taker) becomeReady(pvc string) {
	k.mu.Lock()
	ready := k.unready[pvc]
	k.mu.Unlock()
	ready()
}

// open is a snapshot that isn't decided.
type open struct {
	request snapshot.Request
	vs      *snapshotv1.VolumeSnapshot
	decide  func(snapshot.Outcome)
	ready   func()
	release func() bool
}

func holdAll(string) bool { return true }

func holdOnly(claims ...string) func(string) bool {
	return func(pvc string) bool {
		for _, claim := range claims {
			if claim == pvc {
				return true
			}
		}
		return false
	}
}

// Take implements backup.Taker.
func (k *taker) Take(ctx context.Context, requests ...snapshot.Request) []*snapshot.Snapshot {
	k.mu.Lock()
	k.calls = append(k.calls, requests)
	k.mu.Unlock()
	if k.panics {
		panic("the taker is broken")
	}
	var all []*snapshot.Snapshot
	for _, r := range requests {
		s, decide, ready := snapshot.NewFuture(r)
		all = append(all, s)
		k.create(ctx, r, &open{request: r, decide: decide, ready: ready})
	}
	return all
}

// AwaitReadiness implements backup.Taker.
func (k *taker) AwaitReadiness(context.Context) { k.awaited = append(k.awaited, len(k.c.events.all())) }

// Reserve implements backup.Taker. There is always room.
func (k *taker) Reserve(_ context.Context, requests ...snapshot.Request) (release func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reserved = append(k.reserved, len(requests))
	return func() {}
}

func (k *taker) create(ctx context.Context, r snapshot.Request, o *open) {
	k.c.events.add("create " + r.PVC)
	labels := maps.Clone(r.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[velerov1.BackupNameLabel] = label.GetValidName(r.Owner.Name)
	labels[velerov1.BackupUIDLabel] = string(r.Owner.UID)
	o.vs = &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: snapshot.Name(r.Owner.UID, r.PVCUID), UID: types.UID("vs-of-" + r.PVC), Labels: labels,
			CreationTimestamp: metav1.Now(),
		},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &r.PVC}, VolumeSnapshotClassName: &r.Class,
		},
	}
	if r.Group != nil { // the snapshot-controller makes and names it
		o.vs.Name = memberOf(r.PVC)
		o.vs.Annotations = map[string]string{snapshot.AnnGroup: "group"}
	}
	if err := k.c.client.Create(ctx, o.vs.DeepCopy()); err != nil {
		panic(err)
	}
	k.mu.Lock()
	k.open[r.PVC] = o
	o.release = context.AfterFunc(ctx, func() { k.fail(r.PVC, snapshot.ReasonAbandoned, "given up: "+context.Cause(ctx).Error()) })
	k.mu.Unlock() // who ends it, which may be at once, finds release
	if k.hold == nil || !k.hold(r.PVC) {
		k.cut(r.PVC)
	}
}

// cut fixes the snapshot's point in time.
func (k *taker) cut(pvc string) {
	o := k.claim(pvc)
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: contentOf(pvc)},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: o.request.Driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, VolumeSnapshotClassName: &o.request.Class,
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: o.request.Namespace, Name: o.vs.Name},
		},
		Status: &snapshotv1.VolumeSnapshotContentStatus{
			SnapshotHandle: ptr.To("handle-of-" + pvc), RestoreSize: ptr.To[int64](restoreSize), CreationTime: ptr.To(int64(1767225600e9)),
		},
	}
	if k.content != nil {
		k.content(content)
	}
	if err := k.c.client.Create(context.Background(), content.DeepCopy()); err != nil {
		panic(err)
	}
	k.c.events.add("cut " + pvc)
	outcome := snapshot.Outcome{Phase: snapshot.Cut, VolumeSnapshot: o.vs, Content: content}
	if k.afterCut != nil {
		k.afterCut(&outcome)
	}
	o.decide(outcome)
	if k.neverReady {
		k.mu.Lock()
		k.unready[pvc] = o.ready
		k.mu.Unlock()
	} else {
		o.ready()
	}
}

// fail decides that the snapshot won't be cut. It has no effect on one that is decided.
func (k *taker) fail(pvc string, reason snapshot.Reason, message string) {
	if o := k.claim(pvc); o != nil {
		k.c.events.add("fail " + pvc)
		o.decide(snapshot.Outcome{Phase: snapshot.Failed, Reason: reason, Message: message, VolumeSnapshot: o.vs})
	}
}

// claim makes the caller the one who decides.
func (k *taker) claim(pvc string) *open {
	k.mu.Lock()
	defer k.mu.Unlock()
	o := k.open[pvc]
	delete(k.open, pvc)
	if o != nil {
		o.release()
	}
	return o
}

// requests returns all that was asked for.
func (k *taker) requests() []snapshot.Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []snapshot.Request
	for _, call := range k.calls {
		all = append(all, call...)
	}
	return all
}

// settler notes what it is asked to remove and to follow, and returns left.
type settler struct {
	removed, asked []snapshot.Ref
	leftGroup      []string
	left           []snapshot.Leftover
}

func (s *settler) LeaveGroup(_ context.Context, namespace, name string) error {
	s.leftGroup = append(s.leftGroup, namespace+"/"+name)
	return nil
}

func (s *settler) Remove(_ context.Context, refs ...snapshot.Ref) error {
	s.removed = append(s.removed, refs...)
	return nil
}

func (s *settler) Settle(_ context.Context, refs ...snapshot.Ref) []snapshot.Leftover {
	s.asked = append(s.asked, refs...)
	return s.left
}

// executor runs hooks: their first word is the event, and their error what answer says.
type executor struct {
	events *events
	answer func(command, pod string) error
}

func (e *executor) Run(_ context.Context, _ logrus.FieldLogger, command hook.Command) error {
	e.events.add(command.Argv[0] + " " + command.Namespace + "/" + command.Pod)
	if e.answer == nil {
		return nil
	}
	return e.answer(command.Argv[0], command.Pod)
}

// action is a plugin in process.
type action struct {
	biav2.BackupItemAction
	name    string
	applies velero.ResourceSelector
	do      func(item *unstructured.Unstructured) (*answer, error)
}

// answer is what an action returns; a nil item means unchanged.
type answer struct {
	item        *unstructured.Unstructured
	additional  []velero.ResourceIdentifier
	operationID string
	postItems   []velero.ResourceIdentifier
}

func (a *action) Name() string                                { return a.name }
func (a *action) AppliesTo() (velero.ResourceSelector, error) { return a.applies, nil }
func (a *action) Execute(item runtime.Unstructured, _ *velerov1.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, string, []velero.ResourceIdentifier, error) {
	got, err := a.do((&unstructured.Unstructured{Object: item.UnstructuredContent()}).DeepCopy())
	if err != nil || got == nil {
		return nil, nil, "", nil, err
	}
	if got.item == nil {
		return nil, got.additional, got.operationID, got.postItems, nil
	}
	return got.item, got.additional, got.operationID, got.postItems, nil
}

// plugin adds an action for resources, after the built-in ones.
func (c *cluster) plugin(name string, do func(item *unstructured.Unstructured) (*answer, error), resources ...string) {
	c.actions = append(c.actions, &action{name: name, applies: velero.ResourceSelector{IncludedResources: resources}, do: do})
}

// bringsIn is a plugin that has items backed up with the item of the given name.
func bringsIn(name string, ids ...velero.ResourceIdentifier) func(*unstructured.Unstructured) (*answer, error) {
	return func(item *unstructured.Unstructured) (*answer, error) {
		if item.GetName() != name {
			return nil, nil
		}
		return &answer{additional: ids}, nil
	}
}

func named(resource, namespace, name string) velero.ResourceIdentifier {
	return velero.ResourceIdentifier{GroupResource: schema.ParseGroupResource(resource), Namespace: namespace, Name: name}
}

// v1Action adapts a built-in action as Velero's plugin manager does.
type v1Action struct {
	biav2.BackupItemAction
	v1   biav1.BackupItemAction
	name string
}

func (a v1Action) Name() string                                { return a.name }
func (a v1Action) AppliesTo() (velero.ResourceSelector, error) { return a.v1.AppliesTo() }
func (a v1Action) Execute(item runtime.Unstructured, b *velerov1.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, string, []velero.ResourceIdentifier, error) {
	updated, ids, err := a.v1.Execute(item, b)
	return updated, ids, "", nil, err
}

// builtInActions are Velero's own in their order (181). The CSI ones are stubs that fail the item: the engine has to run
// its own in their places.
func (c *cluster) builtInActions() []biav2.BackupItemAction {
	log := logrus.New()
	log.SetLevel(logrus.PanicLevel)
	list := []biav2.BackupItemAction{
		v1Action{v1: biactions.NewPodAction(log), name: "velero.io/pod"},
		v1Action{v1: biactions.NewPVCAction(log), name: "velero.io/pv"},
	}
	for _, stub := range [][2]string{
		{"velero.io/csi-pvc-backupper", "persistentvolumeclaims"},
		{"velero.io/csi-volumesnapshot-backupper", "volumesnapshots.snapshot.storage.k8s.io"},
		{"velero.io/csi-volumesnapshotclass-backupper", "volumesnapshotclasses.snapshot.storage.k8s.io"},
		{"velero.io/csi-volumesnapshotcontent-backupper", "volumesnapshotcontents.snapshot.storage.k8s.io"},
	} {
		list = append(list, &action{
			name: stub[0], applies: velero.ResourceSelector{IncludedResources: []string{stub[1]}},
			do: func(*unstructured.Unstructured) (*answer, error) { return nil, fmt.Errorf("%s was called", stub[0]) },
		})
	}
	return list
}

// blockActions are Velero's own.
func (c *cluster) blockActions() []ibav1.ItemBlockAction {
	log := logrus.New()
	log.SetLevel(logrus.PanicLevel)
	claims, err := ibactions.NewPVCAction(factory{c: c})(log)
	c.Expect(err).NotTo(HaveOccurred())
	return []ibav1.ItemBlockAction{ibactions.NewPodAction(log), claims.(ibav1.ItemBlockAction)}
}

type factory struct {
	velerofactory.Factory
	c *cluster
}

func (f factory) KubebuilderClient() (client.Client, error) { return f.c.client, nil }

// claim adds a bound claim app/name with its CSI volume.
func (c *cluster) claim(name string, change ...func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)) {
	pvc := builder.ForPersistentVolumeClaim("app", name).ObjectMeta(builder.WithUID("uid-of-" + name)).
		VolumeName(volumeOf(name)).StorageClass("standard").Phase(corev1.ClaimBound).Result()
	pv := builder.ForPersistentVolume(volumeOf(name)).ClaimRef("app", name).CSI(driver, "disk-of-"+name).Result()
	for _, f := range change {
		f(pvc, pv)
	}
	c.add(pvc, pv)
}

// claims adds several.
func (c *cluster) claims(names ...string) {
	for _, name := range names {
		c.claim(name)
	}
}

func memberOf(claim string) string   { return "member-of-" + claim }
func volumeOf(claim string) string   { return "pv-" + claim }
func contentOf(claim string) string  { return "content-of-" + claim }
func snapshotOf(claim string) string { return snapshot.Name("backup-uid", types.UID("uid-of-"+claim)) }

// pod returns a running pod app/name that uses claims; its volumes have their claims' names.
func pod(name string, claims ...string) *corev1.Pod {
	b := builder.ForPod("app", name).Phase(corev1.PodRunning).NodeName("node").Containers(builder.ForContainer("main", "image").Result())
	for _, claim := range claims {
		b.Volumes(builder.ForVolume(claim).PersistentVolumeClaimSource(claim).Result())
	}
	return b.Result()
}

// hooked is pod with a pre hook freeze and a post hook thaw.
func hooked(name string, claims ...string) *corev1.Pod {
	p := pod(name, claims...)
	p.Annotations = map[string]string{
		"pre.hook.backup.velero.io/command":  "freeze",
		"pre.hook.backup.velero.io/on-error": "Fail",
		"post.hook.backup.velero.io/command": "thaw",
	}
	return p
}
