// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/velero-clipper/clipper/internal/lab/process"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

func TestMain(m *testing.M) {
	// The goroutine that starts all children lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/velero-clipper/clipper/internal/lab/process.serveSpawns"))
}

// allPrograms are paths of programs that nobody starts.
var allPrograms = toolchain.Paths{
	toolchain.Etcd: "/p/etcd", toolchain.KubeAPIServer: "/p/kube-apiserver",
	toolchain.SnapshotController: "/p/snapshot-controller", toolchain.CSISnapshotter: "/p/csi-snapshotter",
}

// prepared is a cluster of which nothing runs yet.
func prepared(t *testing.T, opts Options) *Cluster {
	t.Helper()
	g := NewWithT(t)
	opts.Dir, opts.Programs = filepath.Join(t.TempDir(), "cluster"), allPrograms
	opts, err := opts.withDefaults()
	g.Expect(err).NotTo(HaveOccurred())
	c := &Cluster{opts: opts, processes: map[string]*process.Process{}}
	g.Expect(c.prepare()).To(Succeed())
	return c
}

func TestOptionsDefaults(t *testing.T) {
	g := NewWithT(t)
	opts, err := Options{
		Dir: "d", Programs: allPrograms, SnapshotCRDs: "crds",
		Drivers: []DriverEndpoint{
			{Name: "one", Socket: "/s1"},
			{Name: "two", Socket: "/s2", StorageClasses: []string{"fast", "slow"}, SnapshotClass: "snap"},
		},
		Snapshotter: Snapshotter{Workers: 3},
	}.withDefaults()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(opts.Authorization).To(Equal(AuthorizeAlways))
	g.Expect(opts.NodeName).To(Equal(DefaultNode))
	g.Expect(opts.Snapshotter).To(Equal(Snapshotter{
		Workers: 3, QPS: 100, Burst: 200, RetryStart: time.Second, RetryMax: 5 * time.Minute, Timeout: time.Minute,
	}))
	g.Expect(opts.Drivers[0].StorageClasses).To(Equal([]string{"one"}))
	g.Expect(opts.Drivers[0].SnapshotClass).To(Equal("one"))
	g.Expect(opts.Drivers[1].StorageClasses).To(Equal([]string{"fast", "slow"}))
	g.Expect(opts.Drivers[1].SnapshotClass).To(Equal("snap"))
}

func TestOptionsAreRefused(t *testing.T) {
	cases := map[string]struct {
		change func(*Options)
		want   string
	}{
		"no folder":         {change: func(o *Options) { o.Dir = "" }, want: "no folder"},
		"odd authorization": {change: func(o *Options) { o.Authorization = "Webhook" }, want: `authorization "Webhook" is neither`},
		"no API server":     {change: func(o *Options) { o.Programs = toolchain.Paths{toolchain.Etcd: "e"} }, want: "path of kube-apiserver is missing"},
		"no controller": {
			change: func(o *Options) {
				o.Programs = toolchain.Paths{toolchain.Etcd: "e", toolchain.KubeAPIServer: "a"}
				o.SnapshotCRDs = "crds"
			},
			want: "path of snapshot-controller is missing",
		},
		"drivers without CRDs": {
			change: func(o *Options) { o.Drivers = []DriverEndpoint{{Name: "d", Socket: "s"}} }, want: "without the snapshot CRDs",
		},
		"a driver without socket": {
			change: func(o *Options) { o.SnapshotCRDs, o.Drivers = "crds", []DriverEndpoint{{Name: "d"}} },
			want:   `driver "d" needs a name and a socket`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			opts := Options{Dir: "d", Programs: allPrograms}
			tc.change(&opts)
			_, err := Start(t.Context(), opts)
			NewWithT(t).Expect(err).To(MatchError(And(HavePrefix("starting the cluster:"), ContainSubstring(tc.want))))
		})
	}
}

func TestAccounts(t *testing.T) {
	g := NewWithT(t)
	c := prepared(t, Options{SnapshotCRDs: "crds", Drivers: []DriverEndpoint{{Name: "lab.csi", Socket: "/s"}}})

	file, err := os.Open(c.accounts.tokenFile())
	g.Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	g.Expect(err).NotTo(HaveOccurred())
	groups, tokens := map[string]string{}, map[string]bool{}
	for _, row := range rows {
		g.Expect(row).To(HaveLen(4))
		groups[row[1]] = row[3]
		tokens[row[0]] = true
	}
	g.Expect(tokens).To(HaveLen(len(rows)), "no two users share a token")
	g.Expect(groups).To(Equal(map[string]string{
		"admin": "system:masters", "kubelet": "system:masters", "snapshot-controller": "system:masters",
		"csi-snapshotter-lab.csi":             "system:masters",
		"system:serviceaccount:velero:velero": "system:serviceaccounts,system:serviceaccounts:velero",
	}))

	fromFile, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig(UserVelero))
	g.Expect(err).NotTo(HaveOccurred())
	config, err := c.RESTConfig(UserVelero)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fromFile.BearerToken).To(Equal(config.BearerToken))
	g.Expect(fromFile.Host).To(Equal(c.URL()))
	g.Expect(filepath.Base(c.Kubeconfig(UserVelero))).To(Equal("system-serviceaccount-velero-velero.kubeconfig"))

	_, err = c.RESTConfig("nobody")
	g.Expect(err).To(MatchError(ContainSubstring("no user nobody")))
	info, err := os.Stat(c.accounts.tokenFile())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
}

func TestFlags(t *testing.T) {
	g := NewWithT(t)
	c := prepared(t, Options{
		Authorization: AuthorizeRBAC, SnapshotCRDs: "crds", APIServerArgs: []string{"--v=4"},
		Drivers:     []DriverEndpoint{{Name: "lab.csi", Socket: "/s"}},
		Snapshotter: Snapshotter{Workers: 7, QPS: 5, Burst: 10, RetryMax: 2 * time.Second, SidecarArgs: []string{"--v=5"}},
	})
	api := c.apiServerSpec()
	g.Expect(api.Path).To(Equal("/p/kube-apiserver"))
	g.Expect(api.Args).To(ContainElements("--authorization-mode=RBAC", "--bind-address=127.0.0.1",
		"--disable-admission-plugins=ServiceAccount,DefaultStorageClass,PodSecurity", "--endpoint-reconciler-type=none"))
	g.Expect(api.Args[len(api.Args)-1]).To(Equal("--v=4"), "what the caller adds comes last and wins")
	g.Expect(c.etcdSpec().Args).To(ContainElement("--unsafe-no-fsync"))

	sidecar := c.sidecarSpec(c.opts.Drivers[0])
	g.Expect(sidecar.Args).To(ContainElements("--csi-address=/s", "--worker-threads=7", "--kube-api-qps=5",
		"--kube-api-burst=10", "--retry-interval-start=1s", "--retry-interval-max=2s", "--leader-election=false", "--v=5",
		"--kubeconfig="+c.Kubeconfig(UserSidecar("lab.csi"))))
	g.Expect(c.controllerSpec().Args).To(ContainElement("--kubeconfig=" + c.Kubeconfig(UserSnapshotController)))
	g.Expect(strings.Join(c.controllerSpec().Args, " ")).NotTo(ContainSubstring("csi-address"))
}

func TestStartOfAProgramThatIsMissing(t *testing.T) {
	_, err := Start(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "c"), Programs: allPrograms})
	NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("starting etcd"), ContainSubstring("no such file"))))
}

func TestStoppedClusterStartsNothing(t *testing.T) {
	g := NewWithT(t)
	c := prepared(t, Options{})
	c.Stop()
	c.Stop()
	g.Expect(c.StartAPIServer(t.Context())).To(MatchError(ContainSubstring("has been stopped")))
}

func TestProxiedUserIsLedToItsProxy(t *testing.T) {
	g := NewWithT(t)
	c := prepared(t, Options{Proxied: []User{UserVelero}})
	defer c.Stop()
	host := func(user User) string {
		config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig(user))
		g.Expect(err).NotTo(HaveOccurred())
		return config.Host
	}
	g.Expect(host(UserVelero)).To(And(Equal(c.Proxy(UserVelero).URL()), HavePrefix("https://127.0.0.1:")))
	g.Expect(host(UserSnapshotController)).To(Equal(c.URL()))
	g.Expect(c.Proxy(UserSnapshotController)).To(BeNil())
}

func TestOldContent(t *testing.T) {
	g := NewWithT(t)
	content := oldContent(7)
	g.Expect(content.Spec.DeletionPolicy).To(BeEquivalentTo("Retain"))
	g.Expect(content.Spec.VolumeSnapshotRef.UID).To(BeEmpty(), "or the snapshot-controller would have work to do")
	g.Expect(content.Labels).To(HaveKey(OldContentLabel))
	raw, err := json.Marshal(content)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(raw)).To(BeNumerically(">", 1000), "about as large as a real one, managed fields apart")
	g.Expect(oldContent(8).Name).NotTo(Equal(content.Name))
}
