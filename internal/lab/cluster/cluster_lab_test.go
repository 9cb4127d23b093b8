// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/driver"
	"github.com/velero-clipper/clipper/internal/lab/kubelet"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

const (
	testDriver = "lab.csi.clipper.dev"
	// startBudget is generous: a cluster is up in about 3 seconds on an idle machine with two cores.
	startBudget = 30 * time.Second
)

// labOptions builds what is missing and starts a driver.
func labOptions(t *testing.T) Options {
	t.Helper()
	g := NewWithT(t)
	build := toolchain.Options{Progress: os.Stderr}
	paths, err := toolchain.Ensure(t.Context(), build,
		toolchain.Etcd, toolchain.KubeAPIServer, toolchain.SnapshotController, toolchain.CSISnapshotter)
	g.Expect(err).NotTo(HaveOccurred())
	crds, err := toolchain.SnapshotCRDs(t.Context(), build)
	g.Expect(err).NotTo(HaveOccurred())

	dir := t.TempDir()
	socket := filepath.Join(dir, "csi.sock")
	csi, err := driver.New(driver.Config{Name: testDriver, Socket: socket})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(csi.Listen()).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	var serving errgroup.Group
	serving.Go(func() error { return csi.Serve(ctx) })
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Expect(serving.Wait()).To(Succeed())
	})
	return Options{
		Dir: filepath.Join(dir, "cluster"), Programs: paths, SnapshotCRDs: crds,
		Velero:  os.Getenv("CLIPPER_LAB_VELERO"),
		Drivers: []DriverEndpoint{{Name: testDriver, Socket: socket}},
	}
}

func startCluster(t *testing.T, opts Options) *Cluster {
	t.Helper()
	begin := time.Now()
	c, err := Start(t.Context(), opts)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(c.Stop)
	t.Logf("the cluster was up after %s", time.Since(begin).Round(time.Millisecond))
	NewWithT(t).Expect(time.Since(begin)).To(BeNumerically("<", startBudget))
	return c
}

func TestClusterTakesASnapshot(t *testing.T) {
	g := NewWithT(t)
	c := startCluster(t, labOptions(t))
	g.Expect(c.WaitSidecars(t.Context())).To(Succeed())

	g.Expect(c.CreateNamespaces(t.Context(), "app", "default")).To(Succeed(), "one of them exists already")
	g.Expect(c.CreateVolumes(t.Context(), Volume{Namespace: "app", Name: "data", Driver: testDriver})).To(Succeed())
	g.Expect(c.CreatePods(t.Context(), Pod{Namespace: "app", Name: "web", Claims: []string{"data"}})).To(Succeed())

	pod := &corev1.Pod{}
	g.Expect(c.Client().Get(t.Context(), client.ObjectKey{Namespace: "app", Name: "web"}, pod)).To(Succeed())
	g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
	g.Expect(pod.Spec.NodeName).To(Equal(DefaultNode))
	pvc := &corev1.PersistentVolumeClaim{}
	g.Expect(c.Client().Get(t.Context(), client.ObjectKey{Namespace: "app", Name: "data"}, pvc)).To(Succeed())
	g.Expect(pvc.Status.Phase).To(Equal(corev1.ClaimBound))

	begin := time.Now()
	g.Expect(takeSnapshot(t.Context(), c, "app", "data")).To(Succeed())
	t.Logf("the snapshot was ready after %s", time.Since(begin).Round(time.Millisecond))
	g.Expect(c.Failed()).To(Succeed())
}

// takeSnapshot creates a VolumeSnapshot of a claim and waits until it is ready.
func takeSnapshot(ctx context.Context, c *Cluster, namespace, claim string) error {
	ctx, cancel := context.WithTimeout(ctx, startBudget)
	defer cancel()
	vs := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claim},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
	}
	className := testDriver
	vs.Spec.VolumeSnapshotClassName = &className
	if err := c.Client().Create(ctx, vs); err != nil {
		return err
	}
	return Await(ctx, c.Client(), &snapshotv1.VolumeSnapshotList{}, func(event watch.Event) (bool, error) {
		vs, ok := event.Object.(*snapshotv1.VolumeSnapshot)
		return ok && vs.Status != nil && vs.Status.ReadyToUse != nil && *vs.Status.ReadyToUse, nil
	}, client.InNamespace(namespace))
}

func TestAThousandVolumes(t *testing.T) {
	g := NewWithT(t)
	opts := labOptions(t)
	opts.Velero = ""
	c := startCluster(t, opts)
	g.Expect(c.CreateNamespaces(t.Context(), "app")).To(Succeed())
	volumes := make([]Volume, 1000)
	pods := make([]Pod, 1000)
	for i := range volumes {
		volumes[i] = Volume{Namespace: "app", Name: fmt.Sprintf("data-%d", i), Driver: testDriver}
		pods[i] = Pod{Namespace: "app", Name: fmt.Sprintf("pod-%d", i), Claims: []string{volumes[i].Name}}
	}
	begin := time.Now()
	g.Expect(c.CreateVolumes(t.Context(), volumes...)).To(Succeed())
	t.Logf("1000 volumes took %s", time.Since(begin).Round(time.Millisecond))
	begin = time.Now()
	g.Expect(c.CreatePods(t.Context(), pods...)).To(Succeed())
	t.Logf("1000 pods took %s", time.Since(begin).Round(time.Millisecond))
}

func TestRestartOfTheAPIServer(t *testing.T) {
	g := NewWithT(t)
	opts := labOptions(t)
	opts.Drivers, opts.SnapshotCRDs, opts.Velero = nil, "", ""
	c := startCluster(t, opts)
	g.Expect(c.CreateNamespaces(t.Context(), "kept")).To(Succeed())
	begin := time.Now()
	g.Expect(c.RestartAPIServer(t.Context())).To(Succeed())
	t.Logf("the API server was back after %s", time.Since(begin).Round(time.Millisecond))
	g.Expect(c.Client().Get(t.Context(), client.ObjectKey{Name: "kept"}, &corev1.Namespace{})).To(Succeed())
	g.Expect(c.Failed()).To(Succeed(), "a requested end is no failure")
}

func TestExecReachesTheKubelet(t *testing.T) {
	g := NewWithT(t)
	stand, err := kubelet.New(kubelet.Config{})
	g.Expect(err).NotTo(HaveOccurred())
	host, port, err := stand.Listen()
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	var serving errgroup.Group
	serving.Go(func() error { return stand.Serve(ctx) })
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Expect(serving.Wait()).To(Succeed())
	})
	opts := labOptions(t)
	opts.Drivers, opts.SnapshotCRDs, opts.Velero = nil, "", ""
	opts.Kubelet = Endpoint{Host: host, Port: port}
	c := startCluster(t, opts)
	g.Expect(c.CreateNamespaces(t.Context(), "app")).To(Succeed())
	g.Expect(c.CreatePods(t.Context(), Pod{Namespace: "app", Name: "db"})).To(Succeed())

	config, err := c.RESTConfig(UserVelero)
	g.Expect(err).NotTo(HaveOccurred())
	url, err := url.Parse(c.URL() + "/api/v1/namespaces/app/pods/db/exec?container=" + ContainerName + "&command=freeze&stdout=true&stderr=true")
	g.Expect(err).NotTo(HaveOccurred())
	exec, err := remotecommand.NewSPDYExecutor(config, "POST", url)
	g.Expect(err).NotTo(HaveOccurred())
	var stdout, stderr bytes.Buffer
	g.Expect(exec.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})).To(Succeed())
	g.Expect(stand.Calls()).To(HaveLen(1))
	g.Expect(stand.Calls()[0].Command).To(Equal([]string{"freeze"}))
}

func TestRBAC(t *testing.T) {
	g := NewWithT(t)
	opts := labOptions(t)
	opts.Authorization = AuthorizeRBAC
	opts.Velero = ""
	c := startCluster(t, opts)
	config, err := c.RESTConfig(UserVelero)
	g.Expect(err).NotTo(HaveOccurred())
	velero, err := client.New(config, client.Options{Scheme: Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	err = velero.List(t.Context(), &corev1.PodList{})
	g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	g.Expect(takeSnapshotOfNew(t.Context(), c)).To(Succeed(), "the controllers may do their work")

	audit, err := os.ReadFile(c.AuditLog())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(audit)).To(ContainSubstring(`"username":"system:serviceaccount:velero:velero"`))
	g.Expect(string(audit)).NotTo(ContainSubstring(`"username":"admin"`))
	g.Expect(string(audit)).NotTo(ContainSubstring("RequestReceived"))
}

func takeSnapshotOfNew(ctx context.Context, c *Cluster) error {
	if err := c.CreateNamespaces(ctx, "app"); err != nil {
		return err
	}
	if err := c.CreateVolumes(ctx, Volume{Namespace: "app", Name: "data", Driver: testDriver}); err != nil {
		return err
	}
	return takeSnapshot(ctx, c, "app", "data")
}

func TestStartFailsWithTheLog(t *testing.T) {
	g := NewWithT(t)
	opts := labOptions(t)
	opts.Velero = ""
	opts.APIServerArgs = []string{"--no-such-flag"}
	_, err := Start(t.Context(), opts)
	g.Expect(err).To(MatchError(And(ContainSubstring("kube-apiserver ended with exit code"), ContainSubstring("no-such-flag"))))
}
