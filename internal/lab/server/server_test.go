// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

func TestMain(m *testing.M) {
	// The goroutine that starts all children lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/velero-clipper/clipper/internal/lab/process.serveSpawns"))
}

// optionsFor has a shell script in place of the velero binary.
func optionsFor(t *testing.T, script string, objects ...client.Object) Options {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "velero")
	NewWithT(t).Expect(os.WriteFile(binary, []byte("#!/bin/sh\n"+script), 0o755)).To(Succeed())
	return Options{
		Binary: binary, Kubeconfig: "/kubeconfig", Dir: filepath.Join(dir, "server"), PluginDir: "/plugins",
		Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(objects...).Build(),
		Store:  Store{URL: "http://127.0.0.1:9000", Bucket: "velero"},
	}
}

func withDefaults(t *testing.T, opts Options) Options {
	t.Helper()
	opts, err := opts.withDefaults()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return opts
}

func TestOptionsAreRefused(t *testing.T) {
	_, err := Start(t.Context(), Options{Binary: "/velero", Dir: "d", PluginDir: "p", Store: Store{URL: "u"}})
	NewWithT(t).Expect(err).To(MatchError("starting the Velero server: Kubeconfig is missing\nStore.Bucket is missing\nthe Client is missing"))
}

func TestPrepareLocation(t *testing.T) {
	t.Run("new", func(t *testing.T) {
		g := NewWithT(t)
		opts := withDefaults(t, optionsFor(t, ""))
		g.Expect(opts.prepareLocation(t.Context())).To(Succeed())
		location := &velerov1.BackupStorageLocation{}
		g.Expect(opts.Client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "default"}, location)).To(Succeed())
		g.Expect(location.Spec.Provider).To(Equal("aws"))
		g.Expect(location.Spec.Default).To(BeTrue())
		g.Expect(location.Spec.ObjectStorage.Bucket).To(Equal("velero"))
		g.Expect(location.Spec.Config).To(Equal(map[string]string{
			"region": "lab", "s3ForcePathStyle": "true", "s3Url": "http://127.0.0.1:9000",
		}))
	})
	t.Run("of an earlier server", func(t *testing.T) {
		g := NewWithT(t)
		old := &velerov1.BackupStorageLocation{
			ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "default"},
			Status: velerov1.BackupStorageLocationStatus{
				Phase: velerov1.BackupStorageLocationPhaseAvailable, LastValidationTime: &metav1.Time{Time: time.Now()},
			},
		}
		opts := withDefaults(t, optionsFor(t, "", old))
		g.Expect(opts.prepareLocation(t.Context())).To(Succeed())
		location := &velerov1.BackupStorageLocation{}
		g.Expect(opts.Client.Get(t.Context(), client.ObjectKeyFromObject(old), location)).To(Succeed())
		g.Expect(location.Status.LastValidationTime).To(BeNil())
		g.Expect(location.Status.Phase).To(Equal(velerov1.BackupStorageLocationPhaseAvailable), "as it was")
	})
}

// validate does what a server does when it has started.
func validate(ctx context.Context, c client.Client, phase velerov1.BackupStorageLocationPhase) error {
	location := &velerov1.BackupStorageLocation{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "velero", Name: "default"}, location); err != nil {
		return err
	}
	location.Status.Phase, location.Status.Message = phase, "the bucket is "+string(phase)
	location.Status.LastValidationTime = &metav1.Time{Time: time.Now()}
	return c.Update(ctx, location)
}

// watchedClient tells when it is watched, since the fake client delivers only what changes after that.
type watchedClient struct {
	client.WithWatch
	watched chan struct{}
}

func newWatchedClient(opts *Options) *watchedClient {
	w := &watchedClient{WithWatch: opts.Client, watched: make(chan struct{}, 1)}
	opts.Client = w
	return w
}

func (w *watchedClient) Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	watcher, err := w.WithWatch.Watch(ctx, list, opts...)
	w.watched <- struct{}{}
	return watcher, err
}

func TestStartWaitsForTheLocation(t *testing.T) {
	g := NewWithT(t)
	opts := optionsFor(t, `env; echo "args: $@"; exec sleep 600`)
	opts.Args, opts.Env = []string{"--client-qps=50"}, []string{"HOME=/elsewhere", "EXTRA=1"}
	w := newWatchedClient(&opts)
	var group errgroup.Group
	group.Go(func() error {
		<-w.watched
		return validate(t.Context(), w, velerov1.BackupStorageLocationPhaseAvailable)
	})
	s, err := Start(t.Context(), opts)
	g.Expect(group.Wait()).To(Succeed())
	g.Expect(err).NotTo(HaveOccurred())
	_, ended := s.ExitStatus()
	g.Expect(ended).To(BeFalse())
	status := s.Kill9()
	g.Expect(status.Requested).To(BeTrue())
	g.Expect(s.StartTime()).To(BeNumerically(">", 0))
	g.Expect(s.MetricsURL()).To(MatchRegexp(`^http://127\.0\.0\.1:\d+/metrics$`))
}

func TestStartReportsAnUnavailableLocation(t *testing.T) {
	g := NewWithT(t)
	opts := optionsFor(t, "echo no such bucket; exec sleep 600")
	opts.StartTimeout = 200 * time.Millisecond
	w := newWatchedClient(&opts)
	var group errgroup.Group
	group.Go(func() error {
		<-w.watched
		return validate(t.Context(), w, velerov1.BackupStorageLocationPhaseUnavailable)
	})
	_, err := Start(t.Context(), opts)
	g.Expect(group.Wait()).To(Succeed())
	g.Expect(err).To(MatchError(And(ContainSubstring("location default is Unavailable: the bucket is Unavailable"),
		ContainSubstring("not ready within 200ms"), ContainSubstring("no such bucket"))))
}

func TestStartOfAServerThatEnds(t *testing.T) {
	g := NewWithT(t)
	_, err := Start(t.Context(), optionsFor(t, "echo bad flag >&2; exit 3"))
	g.Expect(err).To(MatchError(And(ContainSubstring("velero ended with exit code 3"), ContainSubstring("bad flag"))))
}

func TestEnvironmentAndArguments(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("AWS_PROFILE", "mine")
	opts := withDefaults(t, optionsFor(t, `env; echo "args: $@"`))
	opts.Args, opts.Env = []string{"--client-qps=50"}, []string{"HOME=/elsewhere", "EXTRA=1"}
	s, err := launch(t.Context(), opts)
	g.Expect(err).NotTo(HaveOccurred())
	status, err := s.Wait(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Code).To(BeZero())
	log, err := os.ReadFile(s.LogPath())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(log)).To(And(
		ContainSubstring("KUBECONFIG=/kubeconfig\n"), ContainSubstring("AWS_ACCESS_KEY_ID=lab\n"),
		ContainSubstring("VELERO_NAMESPACE=velero\n"), ContainSubstring("HOME=/elsewhere\n"), ContainSubstring("EXTRA=1\n"),
		ContainSubstring("TMPDIR="+filepath.Join(opts.Dir, "tmp")),
		Not(ContainSubstring("AWS_PROFILE")),
		MatchRegexp(`args: server --features=EnableCSI --plugin-dir=/plugins --metrics-address=127\.0\.0\.1:\d+ --profiler-address=127\.0\.0\.1:\d+ --client-qps=50`),
	))
	g.Expect(s.EndedError()).To(MatchError(ContainSubstring("exit code 0")))
}

func TestTerm(t *testing.T) {
	g := NewWithT(t)
	opts := withDefaults(t, optionsFor(t, "exec sleep 600"))
	s, err := launch(t.Context(), opts)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Term(t.Context(), time.Minute).String()).To(Equal("signal terminated"))
	<-s.Done()
}

const exposition = `# TYPE velero_backup_total gauge
velero_backup_total 3
# TYPE velero_backup_success_total counter
velero_backup_success_total{schedule=""} 2
velero_backup_success_total{schedule="daily"} 5
# TYPE velero_backup_duration_seconds histogram
velero_backup_duration_seconds_bucket{schedule="daily",le="+Inf"} 4
velero_backup_duration_seconds_sum{schedule="daily"} 12.5
velero_backup_duration_seconds_count{schedule="daily"} 4
`

func TestMetrics(t *testing.T) {
	g := NewWithT(t)
	status := http.StatusOK
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(exposition))
	}))
	defer web.Close()
	defer http.DefaultClient.CloseIdleConnections()
	s := &Server{opts: Options{MetricsAddress: web.Listener.Addr().String()}}
	metrics, err := s.Metrics(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	cases := []struct {
		name   string
		labels map[string]string
		want   float64
		found  bool
	}{
		{name: "velero_backup_total", want: 3, found: true},
		{name: "velero_backup_success_total", want: 7, found: true},
		{name: "velero_backup_success_total", labels: map[string]string{"schedule": "daily"}, want: 5, found: true},
		{name: "velero_backup_success_total", labels: map[string]string{"schedule": "weekly"}},
		{name: "velero_backup_success_total", labels: map[string]string{"unknown": ""}},
		{name: "velero_backup_duration_seconds", want: 4, found: true},
		{name: "velero_nothing"},
	}
	for _, tc := range cases {
		value, found := metrics.Value(tc.name, tc.labels)
		g.Expect(found).To(Equal(tc.found), "%+v", tc)
		g.Expect(value).To(Equal(tc.want), "%+v", tc)
	}

	status = http.StatusInternalServerError
	_, err = s.Metrics(t.Context())
	g.Expect(err).To(MatchError(ContainSubstring("500 Internal Server Error")))
}
