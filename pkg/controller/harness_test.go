// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/metrics"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
	ibav1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/itemblockaction/v1"
	velerotest "github.com/vmware-tanzu/velero/pkg/test"
	"github.com/vmware-tanzu/velero/pkg/util/logging"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/velero-clipper/clipper/pkg/backup"
)

const namespace = "velero"

var (
	errBoom = errors.New("boom")
	now     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// setup is what a test may change before its harness is made.
type setup struct {
	objects     []client.Object
	calls       interceptor.Funcs
	options     Options
	credentials CredentialFiles
}

func with(objects ...client.Object) func(*setup) {
	return func(s *setup) { s.objects = append(s.objects, objects...) }
}

func intercepting(calls interceptor.Funcs) func(*setup) {
	return func(s *setup) { s.calls = calls }
}

// withoutLocation takes the default storage location away.
func withoutLocation(s *setup) { s.objects = nil }

// harness is a reconciler among fakes. The object store behind it is in memory; Velero's own layer is above it.
type harness struct {
	client     client.WithWatch
	bucket     *bucket
	plugins    *plugins
	engine     *engine
	tracker    *tracker
	registry   *prometheus.Registry
	clock      *testclock.FakePassiveClock
	log        *logrustest.Hook
	reconciler *BackupReconciler
}

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{velerov1.AddToScheme, corev1.AddToScheme, snapshotv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func newHarness(t testing.TB, changes ...func(*setup)) *harness {
	t.Helper()
	s := &setup{
		objects: []client.Object{storageLocation("default")},
		options: Options{
			Defaults: Defaults{
				TTL: 720 * time.Hour, CSISnapshotTimeout: 10 * time.Minute, ItemOperationTimeout: 4 * time.Hour,
				VolumeGroupSnapshotKey: "velero.io/volume-group", StorageLocation: "default",
			},
			ResourceTimeout: 10 * time.Minute,
			LogLevel:        logrus.InfoLevel,
			LogFormat:       logging.FormatText,
		},
	}
	for _, change := range changes {
		change(s)
	}
	logger, hook := logrustest.NewNullLogger()
	h := &harness{
		client:   fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(s.objects...).WithInterceptorFuncs(s.calls).Build(),
		bucket:   &bucket{objects: map[string][]byte{}, failing: map[string]error{}},
		engine:   &engine{},
		tracker:  &tracker{},
		registry: prometheus.NewRegistry(),
		clock:    testclock.NewFakePassiveClock(now),
		log:      hook,
	}
	h.plugins = &plugins{bucket: h.bucket, actions: map[string]*action{}}
	serverMetrics := metrics.NewServerMetrics()
	for _, collector := range serverMetrics.Metrics() {
		h.registry.MustRegister(collector)
	}
	discovery := velerotest.NewFakeDiscoveryHelper(true, nil)
	discovery.ServerVersionData = &version.Info{Major: "1", Minor: "34", GitVersion: "v1.34.4"}
	h.reconciler = NewBackupReconciler(Deps{
		Client: h.client, Uncached: h.client, Engine: h.engine, Discovery: discovery, Tracker: h.tracker,
		NewPluginManager: func(logrus.FieldLogger) clientmgmt.Manager { return h.plugins },
		Stores:           persistence.NewObjectBackupStoreGetter(nil),
		Credentials:      s.credentials, Metrics: serverMetrics, Log: logger, Clock: h.clock,
	}, s.options)
	return h
}

// reconcile reconciles the Backup of that name and returns it as it is in the cluster then.
func (h *harness) reconcile(t testing.TB, name string) *velerov1.Backup {
	t.Helper()
	g := NewWithT(t)
	result, err := h.reconciler.Reconcile(t.Context(), requestFor(name))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result).To(Equal(ctrl.Result{}))
	return h.get(t, name)
}

func (h *harness) get(t testing.TB, name string) *velerov1.Backup {
	t.Helper()
	b := new(velerov1.Backup)
	NewWithT(t).Expect(h.client.Get(t.Context(), requestFor(name).NamespacedName, b)).To(Succeed())
	return b
}

// prepare runs the first half of a reconcile.
func (h *harness) prepare(t testing.TB, b *velerov1.Backup) *job {
	t.Helper()
	return h.reconciler.prepare(t.Context(), b, h.reconciler.deps.Log)
}

// metric returns the value of a series, the sum of a histogram, or absent. Labels are names and values in turn.
func (h *harness) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	return seriesValue(t, h.registry, name, labels...)
}

const absent = -1.0

func seriesValue(t testing.TB, gatherer prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := gatherer.Gather()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	want := map[string]string{}
	for pair := range slices.Chunk(labels, 2) {
		want[pair[0]] = pair[1]
	}
	for _, family := range families {
		for _, metric := range family.Metric {
			if family.GetName() == name && maps.Equal(labelMap(metric), want) {
				// Only one of the three is there.
				return metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetHistogram().GetSampleSum()
			}
		}
	}
	return absent
}

func labelMap(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, label := range metric.Label {
		labels[label.GetName()] = label.GetValue()
	}
	return labels
}

func requestFor(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// ready returns a Backup that is ready to start.
func ready(name string, changes ...func(*velerov1.Backup)) *velerov1.Backup {
	b := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)},
		Status:     velerov1.BackupStatus{Phase: velerov1.BackupPhaseReadyToStart},
	}
	for _, change := range changes {
		change(b)
	}
	return b
}

func scheduled(by string) func(*velerov1.Backup) {
	return func(b *velerov1.Backup) { b.Labels = map[string]string{velerov1.ScheduleNameLabel: by} }
}

func storageLocation(name string, changes ...func(*velerov1.BackupStorageLocation)) *velerov1.BackupStorageLocation {
	location := &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider:    "memory",
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "bucket"}},
		},
		Status: velerov1.BackupStorageLocationStatus{Phase: velerov1.BackupStorageLocationPhaseAvailable},
	}
	for _, change := range changes {
		change(location)
	}
	return location
}

// engine is an Engine that does what a test tells it to.
type engine struct {
	// run is called by Run; nil takes an empty backup.
	run      func(request backup.Request, out io.Writer) (*backup.Result, error)
	requests []backup.Request
}

func (e *engine) Run(_ context.Context, request backup.Request, out io.Writer) (*backup.Result, error) {
	e.requests = append(e.requests, request)
	if e.run == nil {
		return &backup.Result{}, nil
	}
	return e.run(request, out)
}

// returns makes the engine write something and return that.
func (e *engine) returns(result *backup.Result, err error) {
	e.run = func(_ backup.Request, out io.Writer) (*backup.Result, error) {
		_, writeErr := io.WriteString(out, "tarball")
		return result, errors.Join(err, writeErr)
	}
}

// tracker records what it is told.
type tracker struct{ calls []string }

func (r *tracker) Add(ns, name string)               { r.calls = append(r.calls, "add "+ns+"/"+name) }
func (r *tracker) AddPostProcessing(ns, name string) { r.calls = append(r.calls, "post "+ns+"/"+name) }
func (r *tracker) Delete(ns, name string)            { r.calls = append(r.calls, "delete "+ns+"/"+name) }

// plugins is a plugin manager with an object store, and actions that are asked for their progress.
type plugins struct {
	clientmgmt.Manager
	bucket  *bucket
	actions map[string]*action
	// storeErr, itemErr and blockErr are returned instead of plugins.
	storeErr, itemErr, blockErr error
	cleanedUp                   int
}

func (p *plugins) GetObjectStore(string) (velero.ObjectStore, error) { return p.bucket, p.storeErr }

func (p *plugins) GetBackupItemActionsV2() ([]biav2.BackupItemAction, error) { return nil, p.itemErr }

func (p *plugins) GetItemBlockActions() ([]ibav1.ItemBlockAction, error) { return nil, p.blockErr }

func (p *plugins) GetBackupItemActionV2(name string) (biav2.BackupItemAction, error) {
	if p.actions[name] == nil {
		return nil, errors.New("there is no plugin " + name)
	}
	return p.actions[name], nil
}

func (p *plugins) CleanupClients() { p.cleanedUp++ }

// bucket is an object store in memory.
type bucket struct {
	velero.ObjectStore
	objects map[string][]byte
	// failing are the errors of uploads, by the end of the key.
	failing   map[string]error
	existsErr error
	opened    int
	asked     []string
}

func (b *bucket) Init(map[string]string) error { b.opened++; return nil }

func (b *bucket) ObjectExists(name, key string) (bool, error) {
	b.asked = append(b.asked, name+":"+key)
	_, found := b.objects[key]
	return found, b.existsErr
}

func (b *bucket) PutObject(_, key string, body io.Reader) error {
	for suffix, err := range b.failing {
		if strings.HasSuffix(key, suffix) {
			return err
		}
	}
	content, err := io.ReadAll(body)
	b.objects[key] = content
	return err
}

func (b *bucket) DeleteObject(_, key string) error {
	delete(b.objects, key)
	return nil
}

func (b *bucket) ListObjects(_, prefix string) ([]string, error) {
	var keys []string
	for key := range b.objects {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// files are the names of the objects of a backup, sorted; it fails when there are others.
func (b *bucket) files(t testing.TB, backupName string) []string {
	t.Helper()
	var names []string
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		NewWithT(t).Expect(path.Dir(key)).To(Equal("backups/" + backupName))
		names = append(names, path.Base(key))
	}
	return names
}

// read returns an uploaded file of a backup, unzipped if need be.
func (b *bucket) read(t testing.TB, backupName, file string) []byte {
	t.Helper()
	g := NewWithT(t)
	content, found := b.objects["backups/"+backupName+"/"+file]
	g.Expect(found).To(BeTrue(), "%s is not among %v", file, slices.Sorted(maps.Keys(b.objects)))
	if !strings.HasSuffix(file, ".gz") || strings.HasSuffix(file, ".tar.gz") {
		return content
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(content))
	g.Expect(err).NotTo(HaveOccurred())
	content, err = io.ReadAll(unzipped)
	g.Expect(err).NotTo(HaveOccurred())
	return content
}

func (b *bucket) decode(t testing.TB, backupName, file string, into any) {
	t.Helper()
	NewWithT(t).Expect(json.Unmarshal(b.read(t, backupName, file), into)).To(Succeed())
}
