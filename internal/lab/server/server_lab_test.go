// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/driver"
	"github.com/velero-clipper/clipper/internal/lab/objectstore"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

// veleroEnv is the path of the velero binary to test with; veleroArgsEnv may add one flag, such as
// --csi-snapshot-parallelism=0, which stock's binary doesn't know.
const (
	veleroEnv     = "CLIPPER_LAB_VELERO"
	veleroArgsEnv = "CLIPPER_LAB_VELERO_ARG"
	testDriver    = "lab.csi.clipper.dev"
)

// bench is a whole lab but for the kubelet.
type bench struct {
	cluster *cluster.Cluster
	driver  *driver.Driver
	store   *objectstore.Store
	options Options
}

func newBench(t *testing.T) *bench {
	t.Helper()
	g := NewWithT(t)
	velero := os.Getenv(veleroEnv)
	if velero == "" {
		t.Skipf("set %s to the path of a velero binary", veleroEnv)
	}
	build := toolchain.Options{Progress: os.Stderr}
	paths, err := toolchain.Ensure(t.Context(), build, toolchain.ControlPlane()...)
	g.Expect(err).NotTo(HaveOccurred())
	crds, err := toolchain.SnapshotCRDs(t.Context(), build)
	g.Expect(err).NotTo(HaveOccurred())

	dir := t.TempDir()
	b := &bench{}
	socket := filepath.Join(dir, "csi.sock")
	b.driver = serveDriver(t, socket)
	if b.store, err = objectstore.Start(t.Context(), objectstore.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { NewWithT(t).Expect(b.store.Stop(context.Background())).To(Succeed()) })
	begin := time.Now()
	b.cluster, err = cluster.Start(t.Context(), cluster.Options{
		Dir: filepath.Join(dir, "cluster"), Programs: paths, SnapshotCRDs: crds, Velero: velero,
		Drivers: []cluster.DriverEndpoint{{Name: testDriver, Socket: socket}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(b.cluster.Stop)
	t.Logf("the cluster was up after %s", time.Since(begin).Round(time.Millisecond))
	b.options = Options{
		Binary: velero, Kubeconfig: b.cluster.Kubeconfig(cluster.UserVelero), Client: b.cluster.Client(),
		Dir: filepath.Join(dir, "velero"), PluginDir: paths.Dir(toolchain.AWSPlugin),
		Store: Store{URL: b.store.URL(), Bucket: b.store.Bucket()},
	}
	if arg := os.Getenv(veleroArgsEnv); arg != "" {
		b.options.Args = []string{arg}
	}
	return b
}

func serveDriver(t *testing.T, socket string) *driver.Driver {
	t.Helper()
	csi, err := driver.New(driver.Config{Name: testDriver, Socket: socket})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(csi.Listen()).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	var serving errgroup.Group
	serving.Go(func() error { return csi.Serve(ctx) })
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Expect(serving.Wait()).To(Succeed())
	})
	return csi
}

func (b *bench) start(t *testing.T) *Server {
	t.Helper()
	s, err := Start(t.Context(), b.options)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { s.Kill9() })
	t.Logf("the server was ready after %s", s.StartTime().Round(time.Millisecond))
	return s
}

// backUp creates a backup and returns it when it has ended.
func (b *bench) backUp(ctx context.Context, name, namespace string) (*velerov1.Backup, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, fmt.Errorf("backup %s didn't end", name))
	defer cancel()
	backup := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.VeleroNamespace, Name: name},
		Spec:       velerov1.BackupSpec{IncludedNamespaces: []string{namespace}},
	}
	if err := b.cluster.Client().Create(ctx, backup); err != nil {
		return nil, err
	}
	ended := map[velerov1.BackupPhase]bool{
		velerov1.BackupPhaseCompleted: true, velerov1.BackupPhasePartiallyFailed: true,
		velerov1.BackupPhaseFailed: true, velerov1.BackupPhaseFailedValidation: true,
	}
	err := cluster.Await(ctx, b.cluster.Client(), &velerov1.BackupList{}, func(event watch.Event) (bool, error) {
		seen, ok := event.Object.(*velerov1.Backup)
		if !ok || seen.Name != name {
			return false, nil
		}
		backup = seen
		return ended[seen.Status.Phase], nil
	}, client.InNamespace(cluster.VeleroNamespace))
	return backup, err
}

func TestBackupOfOneVolume(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t)
	s := b.start(t)
	g.Expect(b.cluster.CreateNamespaces(t.Context(), "app")).To(Succeed())
	g.Expect(b.cluster.CreateVolumes(t.Context(), cluster.Volume{Namespace: "app", Name: "data", Driver: testDriver})).To(Succeed())
	g.Expect(b.cluster.CreatePods(t.Context(), cluster.Pod{Namespace: "app", Name: "web", Claims: []string{"data"}})).To(Succeed())

	begin := time.Now()
	backup, err := b.backUp(t.Context(), "b1", "app")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(backup.Status.Phase).To(Equal(velerov1.BackupPhaseCompleted), "%+v", backup.Status)
	t.Logf("the backup was completed after %s", time.Since(begin).Round(time.Millisecond))
	g.Expect(b.driver.Cuts()).To(Equal(1))
	g.Expect(b.store.Keys("backups/b1/")).To(ContainElement("backups/b1/b1.tar.gz"))

	metrics, err := s.Metrics(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	total, found := metrics.Value("velero_backup_total", nil)
	g.Expect(found).To(BeTrue())
	g.Expect(total).To(BeNumerically("==", 1))
	memory := s.PeakMemory()
	t.Logf("peak memory: %d MiB, with plugins %d MiB", memory.Process>>20, memory.Group>>20)
	g.Expect(memory.Process).To(BeNumerically(">", 10<<20))

	begin = time.Now()
	status := s.Term(t.Context(), 30*time.Second)
	t.Logf("the server ended with %s after %s", status, time.Since(begin).Round(time.Millisecond))
	g.Expect(status.Signal).To(BeZero())
	g.Expect(b.cluster.Failed()).To(Succeed())
}

func TestKilledServerStartsAgain(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t)
	first := b.start(t)
	status := first.Kill9()
	g.Expect(status.Signal).To(Equal(syscall.SIGKILL))
	g.Expect(status.Requested).To(BeTrue())
	second := b.start(t)
	g.Expect(second.PID()).NotTo(Equal(first.PID()))
	g.Expect(second.LogPath()).NotTo(Equal(first.LogPath()))
	status = second.Kill9()
	g.Expect(status.Signal).To(Equal(syscall.SIGKILL))
}

func TestServerThatEndsEarly(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t)
	b.options.Args = []string{"--no-such-flag"}
	_, err := Start(t.Context(), b.options)
	g.Expect(err).To(MatchError(And(ContainSubstring("velero ended with exit code 1"), ContainSubstring("no-such-flag"))))
}

func TestServerWithoutItsBucket(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t)
	b.options.Store.Bucket = "none"
	b.options.StartTimeout = 20 * time.Second
	_, err := Start(t.Context(), b.options)
	g.Expect(err).To(MatchError(ContainSubstring("storage location default is Unavailable")))
}
