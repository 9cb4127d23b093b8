// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	"github.com/vmware-tanzu/velero/pkg/features"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
	ibav1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/itemblockaction/v1"
	vsv1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/volumesnapshotter/v1"
	velerotest "github.com/vmware-tanzu/velero/pkg/test"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	internal "github.com/velero-clipper/clipper/internal/velero"
	"github.com/velero-clipper/clipper/pkg/backup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is what one backup is taken of: an API in memory, and stand-ins for what acts on it. It lives in a synctest
// bubble: time passes only when everything waits, and a goroutine that is left behind fails the test.
type cluster struct {
	*WithT
	t      *testing.T
	ctx    context.Context
	cancel context.CancelCauseFunc

	// Set before start.
	backup       *velerov1.Backup
	policies     *internal.Policies
	workers      int
	actions      []biav2.BackupItemAction
	locations    []*velerov1.VolumeSnapshotLocation
	snapshotters snapshotters
	// moreBlockActions come after the built-in ones.
	moreBlockActions []ibav1.ItemBlockAction
	// stopPlugins, if set, is what the engine calls to end hanging plugins.
	stopPlugins func()
	agent       *nodeAgent
	change      func(*backup.Deps)
	onPatch     func(client.Object, map[string]any) error
	onList      func(client.ObjectList) error
	// onCreate's error is the answer to the client's Create.
	onCreate func(client.Object) error
	// full makes writing the tarball fail.
	full error

	taker    *taker
	executor *executor
	settler  *settler
	events   *events
	log      *logrustest.Hook
	logger   *logrus.Logger

	objects []client.Object
	listed  map[schema.GroupVersionResource][]*unstructured.Unstructured
	dynamic *fake.FakeDynamicClient
	helper  discovery.Helper
	client  client.Client
}

// inCluster runs a test in a bubble, on a cluster with the namespace app and one snapshot class.
func inCluster(t *testing.T, test func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newCluster(t)) })
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{
		WithT: NewWithT(t), t: t, workers: 1, events: &events{},
		listed: map[schema.GroupVersionResource][]*unstructured.Unstructured{},
		backup: builder.ForBackup("velero", "nightly").ObjectMeta(builder.WithUID("backup-uid")).
			IncludedNamespaces("app").CSISnapshotTimeout(testTimeout).
			// What the controller appends to every backup (44).
			ExcludedNamespaceScopedResources("volumesnapshots.snapshot.storage.k8s.io").
			ExcludedClusterScopedResources("volumesnapshotcontents.snapshot.storage.k8s.io").Result(),
	}
	c.ctx, c.cancel = context.WithCancelCause(t.Context())
	t.Cleanup(func() { c.cancel(errors.New("the test is over")) })
	features.NewFeatureFlagSet(velerov1.CSIFeatureFlag)
	t.Cleanup(func() { features.NewFeatureFlagSet() })
	c.logger, c.log = logrustest.NewNullLogger()
	c.taker = &taker{c: c, open: map[string]*open{}, unready: map[string]func(){}}
	c.executor = &executor{events: c.events}
	c.settler = &settler{}
	c.serve()
	c.actions = c.builtInActions()
	c.add(c.backup, builder.ForNamespace("app").Phase("Active").Result(), builder.ForVolumeSnapshotClass("fast").Driver(driver).Result())
	return c
}

var (
	widgets = &velerotest.APIResource{Group: "example.com", Version: "v1", Name: "widgets", Kind: "Widget", Namespaced: true}
	classes = &velerotest.APIResource{
		Group: "snapshot.storage.k8s.io", Version: "v1", Name: "volumesnapshotclasses", Kind: "VolumeSnapshotClass",
	}
	uploads = &velerotest.APIResource{Group: "velero.io", Version: "v2alpha1", Name: "datauploads", Kind: "DataUpload", Namespaced: true}
	served  = []*velerotest.APIResource{
		velerotest.Namespaces(), velerotest.Pods(), velerotest.PVCs(), velerotest.PVs(), velerotest.ConfigMaps(), velerotest.Secrets(),
		velerotest.VolumeSnapshots(), velerotest.VolumeSnapshotContents(), classes, velerotest.CRDs(), widgets, uploads,
	}
)

// serve sets up discovery, and a dynamic client that lists objects in the order in which they were added.
func (c *cluster) serve() {
	server := velerotest.NewAPIServer(c.t)
	kinds := map[schema.GroupVersionResource]string{}
	for _, resource := range served {
		server.DiscoveryClient.WithAPIResource(resource)
		kinds[resource.GVR()] = resource.Kind + "List"
	}
	c.dynamic = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	c.dynamic.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
		for _, object := range c.listed[action.GetResource()] {
			if ns := action.GetNamespace(); ns == "" || ns == object.GetNamespace() {
				list.Items = append(list.Items, *object.DeepCopy())
			}
		}
		return true, list, nil
	})
	var err error
	c.helper, err = discovery.NewHelper(server.DiscoveryClient, c.logger)
	c.Expect(err).NotTo(HaveOccurred())
}

// add puts objects into the cluster, before start.
func (c *cluster) add(objects ...client.Object) {
	c.t.Helper()
	scheme := velerotest.NewFakeControllerRuntimeClient(c.t).Scheme()
	for _, object := range objects {
		gvk := object.GetObjectKind().GroupVersionKind()
		if _, ok := object.(*unstructured.Unstructured); !ok {
			c.objects = append(c.objects, object)
			var err error
			gvk, err = apiutil.GVKForObject(object, scheme)
			c.Expect(err).NotTo(HaveOccurred())
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		c.Expect(err).NotTo(HaveOccurred())
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(gvk)
		for _, resource := range served {
			if resource.Group != gvk.Group || resource.Kind != gvk.Kind {
				continue
			}
			_, err := c.dynamic.Resource(resource.GVR()).Namespace(u.GetNamespace()).Create(c.ctx, u.DeepCopy(), metav1.CreateOptions{})
			c.Expect(err).NotTo(HaveOccurred())
			c.listed[resource.GVR()] = append(c.listed[resource.GVR()], u)
		}
	}
}

// replace changes the backup that start takes.
func (c *cluster) replace(change func(*velerov1.Backup)) { change(c.backup) }

// run is one Engine.Run that is under way or over.
type run struct {
	c       *cluster
	tarball bytes.Buffer
	done    chan struct{}
	result  *backup.Result
	err     error
}

// start begins to take the backup, and returns when nothing goes on by itself any more.
func (c *cluster) start() *run {
	c.t.Helper()
	c.client = velerotest.NewFakeControllerRuntimeClientBuilder(c.t).WithObjects(c.objects...).
		WithInterceptorFuncs(interceptor.Funcs{Patch: c.patch, List: c.list, Create: c.create}).Build()
	deps := backup.Deps{
		Client: c.client, Dynamic: c.dynamic, Discovery: c.helper, Executor: c.executor, Taker: c.taker, Settler: c.settler, Workers: c.workers,
	}
	if c.agent != nil {
		deps.PodVolumes = c.agent.service(c.client)
	}
	if c.change != nil {
		c.change(&deps)
	}
	request := backup.Request{
		Backup: c.backup, Policies: c.policies, SnapshotLocations: c.locations, Snapshotters: c.snapshotters, Log: c.logger,
		StopPlugins:  c.stopPlugins,
		ItemActions:  framework.NewBackupItemActionResolverV2(c.actions),
		BlockActions: framework.NewItemBlockActionResolver(append(c.blockActions(), c.moreBlockActions...)),
	}
	r := &run{c: c, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		var out io.Writer = &r.tarball
		if c.full != nil {
			out = &fullDisk{err: c.full, room: 1000}
		}
		r.result, r.err = backup.NewEngine(deps).Run(c.ctx, request, out)
	}()
	synctest.Wait()
	return r
}

// fullDisk has room for the beginning of a tarball, and not for more.
type fullDisk struct {
	err  error
	room int
}

func (d *fullDisk) Write(data []byte) (int, error) {
	if d.room -= len(data); d.room < 0 {
		return 0, d.err
	}
	return len(data), nil
}

// take takes the whole backup, which must succeed.
func (c *cluster) take() *run {
	c.t.Helper()
	r := c.start().wait()
	c.Expect(r.err).NotTo(HaveOccurred())
	return r
}

func (r *run) wait() *run {
	<-r.done
	return r
}

func (r *run) isOver() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// patch is the client's Patch: what is patched is shown to onPatch, whose error is the answer.
func (c *cluster) patch(ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	if c.onPatch != nil {
		var body map[string]any
		if err := json.Unmarshal(data, &body); err != nil {
			return err
		}
		if err := c.onPatch(object, body); err != nil {
			return err
		}
	}
	err = w.Patch(ctx, object, patch, opts...)
	if pvb, ok := object.(*velerov1.PodVolumeBackup); ok && err == nil && pvb.Spec.Cancel {
		c.agent.cancelled(pvb.DeepCopy())
	}
	return err
}

// list is the client's List, with onList's error as the answer.
func (c *cluster) list(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	if c.onList != nil {
		if err := c.onList(list); err != nil {
			return err
		}
	}
	return w.List(ctx, list, opts...)
}

func (c *cluster) create(ctx context.Context, w client.WithWatch, object client.Object, opts ...client.CreateOption) error {
	if c.onCreate != nil {
		if err := c.onCreate(object); err != nil {
			return err
		}
	}
	err := w.Create(ctx, object, opts...)
	if pvb, ok := object.(*velerov1.PodVolumeBackup); ok && err == nil && c.agent != nil {
		c.agent.created(pvb.DeepCopy())
	}
	return err
}

// files returns the items in the tarball, in order, as "pods app/name" or "persistentvolumes name".
func (r *run) files() []string {
	var found []string
	r.each(func(path string, _ []byte) {
		parts := strings.Split(strings.TrimSuffix(path, ".json"), "/")
		resource, _, _ := strings.Cut(parts[1], ".")
		switch {
		case parts[0] != "resources" || strings.HasSuffix(parts[2], velerov1.PreferredVersionDir):
		case parts[2] == velerov1.ClusterScopedDir:
			found = append(found, resource+" "+parts[3])
		default:
			found = append(found, resource+" "+parts[3]+"/"+parts[4])
		}
	})
	return found
}

// object returns an item of the tarball; path is relative to resources and has no ending.
func (r *run) object(path string) *unstructured.Unstructured {
	r.c.t.Helper()
	var found *unstructured.Unstructured
	r.each(func(name string, data []byte) {
		if name == "resources/"+path+".json" {
			found = &unstructured.Unstructured{}
			r.c.Expect(json.Unmarshal(data, &found.Object)).To(Succeed())
		}
	})
	r.c.Expect(found).NotTo(BeNil(), "%s is not in %v", path, r.files())
	return found
}

func (r *run) each(do func(path string, data []byte)) {
	r.c.t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(r.tarball.Bytes()))
	r.c.Expect(err).NotTo(HaveOccurred())
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		r.c.Expect(err).NotTo(HaveOccurred())
		data, err := io.ReadAll(reader)
		r.c.Expect(err).NotTo(HaveOccurred())
		if header.Name != "metadata/version" {
			do(header.Name, data)
		}
	}
}

// lines returns the log lines of a level, each as "name: message: error" as far as it has them.
func (c *cluster) lines(level logrus.Level) []string {
	var found []string
	for _, entry := range c.log.AllEntries() {
		if entry.Level != level {
			continue
		}
		line := entry.Message
		if name, ok := entry.Data["name"].(string); ok {
			line = name + ": " + line
		}
		if err, ok := entry.Data[logrus.ErrorKey].(error); ok {
			line += ": " + err.Error()
		}
		found = append(found, line)
	}
	return found
}

func (c *cluster) errors() []string   { return c.lines(logrus.ErrorLevel) }
func (c *cluster) warnings() []string { return c.lines(logrus.WarnLevel) }

// get reads an object as it is in the cluster.
func (c *cluster) get(namespace, name string, into client.Object) {
	c.t.Helper()
	c.Expect(c.client.Get(context.WithoutCancel(c.ctx), client.ObjectKey{Namespace: namespace, Name: name}, into)).To(Succeed())
}

func (c *cluster) snapshot(claim string) *snapshotv1.VolumeSnapshot {
	vs := new(snapshotv1.VolumeSnapshot)
	c.get("app", snapshotOf(claim), vs)
	return vs
}

// snapshotters are the native snapshot plugins by provider.
type snapshotters map[string]vsv1.VolumeSnapshotter

func (s snapshotters) GetVolumeSnapshotter(provider string) (vsv1.VolumeSnapshotter, error) {
	if plugin := s[provider]; plugin != nil {
		return plugin, nil
	}
	return nil, errors.New("no plugin for provider " + provider)
}

// events is what happened, in order.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) add(event string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, event)
}

// all returns what happened, or only the events that begin with one of the words.
func (e *events) all(words ...string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	found := []string{}
	for _, event := range e.list {
		word, _, _ := strings.Cut(event, " ")
		if len(words) == 0 || strings.Contains(" "+strings.Join(words, " ")+" ", " "+word+" ") {
			found = append(found, event)
		}
	}
	return found
}
