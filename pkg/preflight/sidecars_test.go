// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

func TestFlagOf(t *testing.T) {
	tests := map[string]struct {
		words []string
		value string
		ok    bool
	}{
		"not there":            {[]string{"--other=1", "kube-api-qps=3"}, "", false},
		"with =":               {[]string{"prog", "--kube-api-qps=7.5"}, "7.5", true},
		"one dash":             {[]string{"-kube-api-qps=7"}, "7", true},
		"in a word of its own": {[]string{"--kube-api-qps", "7", "--x"}, "7", true},
		"without a value":      {[]string{"--kube-api-qps", "--x"}, "", true},
		"a longer name":        {[]string{"--kube-api-qps-x=3"}, "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			value, ok := flagOf(test.words, "kube-api-qps")
			g.Expect(ok).To(Equal(test.ok))
			g.Expect(value).To(Equal(test.value))
		})
	}
}

func TestVersionOf(t *testing.T) {
	for image, want := range map[string]*version{
		"registry.k8s.io/sig-storage/csi-snapshotter:v8.2.0":          {8, 2, 0},
		"localhost:5000/csi-snapshotter:8.6":                          {8, 6, 0},
		"localhost:5000/csi-snapshotter":                              nil,
		"csi-snapshotter:v8.3.0-eks-1-33-4":                           {8, 3, 0},
		"longhornio/csi-snapshotter:v7.0.2-20250204":                  {7, 0, 2},
		"csi-snapshotter:v6.2.1@sha256:0123":                          {6, 2, 1},
		"quay.io/openshift/csi-snapshotter@sha256:0123456789":         nil,
		"csi-snapshotter:latest":                                      nil,
		"csi-snapshotter:20240131":                                    nil,
		"csi-snapshotter:v8":                                          {8, 0, 0},
		"gke.gcr.io/csi-snapshotter:v6.1.0-gke.13@sha256:aaaaaaaaaaa": {6, 1, 0},
	} {
		t.Run(image, func(t *testing.T) {
			g := NewWithT(t)
			got, ok := versionOf(image)
			g.Expect(ok).To(Equal(want != nil))
			if want != nil {
				g.Expect(got).To(Equal(*want))
			}
		})
	}
	g := NewWithT(t)
	g.Expect(withTag("localhost:5000/x:v1@sha256:00", "v2")).To(Equal("localhost:5000/x:v2"))
	g.Expect(withTag("localhost:5000/x", "v2")).To(Equal("localhost:5000/x:v2"))
	g.Expect(version{7, 9, 9}.before(version{8, 0, 0})).To(BeTrue())
	g.Expect(version{8, 5, 1}.before(version{8, 6, 0})).To(BeTrue())
	g.Expect(version{8, 6, 0}.before(version{8, 6, 0})).To(BeFalse())
}

func sidecar(name, image string, args ...string) Workload {
	return Workload{
		Kind: "Deployment", Namespace: "csi", Name: name, Wanted: 1, Ready: 1, Program: Sidecar, Container: "csi-snapshotter", Index: 1, Image: image, Args: args,
	}
}

const newest = "csi-snapshotter:v8.7.0"

// tuned are flags with which there is nothing to say about limits.
var tuned = []string{"--kube-api-qps=100", "--kube-api-burst=200", "--worker-threads=100"}

func stateWith(volumes map[string]int, workloads ...Workload) *State {
	return &State{
		Server:    Answer[Server]{Value: Server{Found: true, CSI: true, SnapshotTimeout: 10 * time.Minute}},
		Volumes:   Answer[Volumes]{Value: Volumes{CSI: volumes}},
		Workloads: Answer[[]Workload]{Value: workloads},
	}
}

func TestEstimateIsThatOfTheMeasurement(t *testing.T) {
	g := NewWithT(t)
	measured := limitsOf(Workload{}).wait(80)
	g.Expect(measured).To(BeNumerically("~", 143*time.Second, 5*time.Second), "80 snapshots took 143 s in external-snapshotter#1344")
	g.Expect(limitsOf(sidecar("x", newest, tuned...)).wait(80)).To(BeNumerically("<", 10*time.Second))
	g.Expect(limitsOf(Workload{}).wait(1)).To(BeZero())
}

func TestCheckSidecars(t *testing.T) {
	text := func(w Workload, text string) Workload {
		w.Text = text
		return w
	}
	stopped := sidecar("x", newest, tuned...)
	stopped.Ready = 0
	one := map[string]int{"d.csi": 100}
	tests := map[string]struct {
		state *State
		want  []string
	}{
		"tuned":             {stateWith(one, sidecar("x", newest, tuned...)), []string{"info APIRate"}},
		"default limits":    {stateWith(one, sidecar("x", newest)), []string{"warning LowAPIRate", "info FewerWorkersThanSnapshots"}},
		"few volumes":       {stateWith(map[string]int{"d.csi": 5}, sidecar("x", newest)), []string{"info APIRate"}},
		"none":              {stateWith(one), []string{"warning SidecarNotFound"}},
		"no volumes":        {stateWith(nil), nil},
		"not running":       {stateWith(one, stopped), []string{"error SnapshotterNotRunning", "info APIRate"}},
		"forgets late cuts": {stateWith(one, sidecar("x", "csi-snapshotter:v8.5.0", tuned...)), []string{"info APIRate", "info SidecarForgetsLateCuts"}},
		"hammers":           {stateWith(one, sidecar("x", "csi-snapshotter:v7.0.2", tuned...)), []string{"info APIRate", "warning SidecarHammers"}},
		"by digest":         {stateWith(one, sidecar("x", "csi-snapshotter@sha256:0", tuned...)), []string{"info APIRate", "info SidecarVersionUnknown"}},
		"long calls": {
			stateWith(one, sidecar("x", newest, append(tuned, "--timeout=15m", "--retry-interval-max=20m")...)),
			[]string{"info APIRate", "warning SidecarCallTooLong", "warning SidecarRetriesTooLate"},
		},
		"a flag with a variable": {stateWith(one, sidecar("x", newest, append(tuned, "--timeout=$(T)")...)), []string{"info NotReadable", "info APIRate"}},
		"two drivers, one names its driver": {
			stateWith(map[string]int{"a.csi": 5, "b.csi": 5}, text(sidecar("x", newest, tuned...), "--name=b.csi")),
			[]string{"info APIRate", "warning SidecarNotFound"},
		},
		"two drivers, one each": {
			stateWith(map[string]int{"a.csi": 5, "b.csi": 5}, text(sidecar("x", newest, tuned...), "--name=b.csi"), sidecar("y", newest, tuned...)),
			[]string{"info APIRate", "info APIRate"},
		},
		"unreadable": {&State{Workloads: Answer[[]Workload]{Err: errForbidden}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(reasons(checkSidecars(test.state))).To(Equal(test.want))
		})
	}
}

func TestSidecarsAreToldApart(t *testing.T) {
	g := NewWithT(t)
	ebs, other := sidecar("ebs-csi-controller", newest), sidecar("storage", newest)
	other.Text = "--driver=csi.vsphere.vmware.com\n"
	served, left := attribute([]string{"csi.vsphere.vmware.com", "driver.longhorn.io", "ebs.csi.aws.com"}, []Workload{ebs, other})
	g.Expect(served).To(Equal([]string{"ebs.csi.aws.com", "csi.vsphere.vmware.com"}))
	g.Expect(left).To(Equal([]string{"driver.longhorn.io"}))

	found := checkSidecars(stateWith(map[string]int{"ebs.csi.aws.com": 1000, "csi.vsphere.vmware.com": 1}, ebs, other))
	g.Expect(reasons(found)).To(ContainElement("warning LowAPIRate"))
	g.Expect(found[0].Message).To(ContainSubstring("1000 snapshots at once"))
}

func TestWorkersAreComparedWithTheServersLimit(t *testing.T) {
	for limit, want := range map[string]int{"5": 0, "50": 1, "unlimited": 1, "4%": 0, "20%": 1, "0": 0} {
		t.Run(limit, func(t *testing.T) {
			g := NewWithT(t)
			parallelism, err := snapshot.ParseParallelism(limit)
			g.Expect(err).NotTo(HaveOccurred())
			found := checkWorkers(sidecar("x", newest), Server{Parallelism: parallelism}, 100)
			g.Expect(found).To(HaveLen(want))
		})
	}
}

func TestCheckControllers(t *testing.T) {
	controller := sidecar("snapshot-controller", "snapshot-controller:v8.2.0")
	controller.Program = SnapshotController
	g := NewWithT(t)
	g.Expect(reasons(checkControllers(stateWith(map[string]int{"a": 60, "b": 40}, controller)))).To(Equal([]string{"warning LowAPIRate"}))
	g.Expect(reasons(checkControllers(stateWith(map[string]int{"a": 1})))).To(Equal([]string{"warning SnapshotControllerNotFound"}))
	g.Expect(reasons(checkControllers(stateWith(nil)))).To(BeEmpty())
	g.Expect(reasons(checkControllers(&State{Workloads: Answer[[]Workload]{Err: errForbidden}}))).To(Equal([]string{"info NotReadable"}))
}

// TestFixesWork applies the fix of a finding, and asks again.
func TestFixesWork(t *testing.T) {
	for name, pod := range map[string]corev1.PodSpec{
		"without args": container("csi-snapshotter", newest),
		"with others":  container("csi-snapshotter", newest, "--v=5"),
		"with too low": container("csi-snapshotter", newest, "--kube-api-qps=5", "--v=5", "--kube-api-burst", "10"),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(deployment("csi", "x", pod))
			c.volumes = []corev1.PersistentVolume{}
			for i := range 100 {
				c.volumes = append(c.volumes, volume(fmt.Sprint(i), "d.csi"))
			}
			sources := Sources{Cluster: c, Discovery: servesAll, Namespace: "velero"}
			before, err := Read(t.Context(), sources)
			g.Expect(err).NotTo(HaveOccurred())
			found := checkSidecars(before)
			g.Expect(reasons(found)).To(ContainElement("warning LowAPIRate"))

			_, patch, ok := strings.Cut(strings.TrimSuffix(found[0].Fix, "'"), "-p '")
			g.Expect(ok).To(BeTrue())
			g.Expect(c.Patch(t.Context(), deployment("csi", "x", pod), client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
			after, err := Read(t.Context(), sources)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(reasons(checkSidecars(after))).To(Equal([]string{"info APIRate", "info FewerWorkersThanSnapshots"}))
		})
	}
}

func TestPatchFlags(t *testing.T) {
	tests := map[string]struct {
		command, args []string
		want          string
	}{
		"without args": {nil, nil, `[{"op":"add","path":"/spec/template/spec/containers/1/args","value":["--kube-api-qps=100","--kube-api-burst=200"]}]`},
		"added": {
			nil, []string{"--v=2"},
			`[{"op":"add","path":"/spec/template/spec/containers/1/args/-","value":"--kube-api-qps=100"},{"op":"add","path":"/spec/template/spec/containers/1/args/-","value":"--kube-api-burst=200"}]`,
		},
		"replaced": {
			[]string{"prog", "--kube-api-burst=10"}, []string{"--v=2", "--kube-api-qps", "5"},
			`[{"op":"replace","path":"/spec/template/spec/containers/1/args/2","value":"100"},{"op":"replace","path":"/spec/template/spec/containers/1/command/1","value":"--kube-api-burst=200"}]`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := sidecar("x", newest)
			w.Command, w.Args = test.command, test.args
			g.Expect(patchFlags(w, "kube-api-qps", "100", "kube-api-burst", "200")).To(Equal("kubectl -n csi patch deployment x --type=json -p '" + test.want + "'"))
		})
	}
}
