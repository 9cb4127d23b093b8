// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

func TestCheckCRDs(t *testing.T) {
	good := Resource{V1: true, Definition: Answer[Definition]{Value: Definition{Storage: "v1", Stored: []string{"v1"}}}}
	tests := map[string]struct {
		bad  Resource
		want string
	}{
		"served and stored in v1":  {good, "info SnapshotCRDsServed"},
		"not there":                {Resource{}, "error SnapshotCRDMissing"},
		"old":                      {Resource{Beta: true}, "error SnapshotCRDTooOld"},
		"discovery refuses":        {Resource{Err: errForbidden}, "warning NotReadable"},
		"the CRD can't be read":    {Resource{V1: true, Definition: Answer[Definition]{Err: errForbidden}}, "info NotReadable"},
		"stored in an old version": {Resource{V1: true, Definition: Answer[Definition]{Value: Definition{Storage: "v1beta1", Stored: []string{"v1beta1"}}}}, "warning OldStorageVersion"},
		"some old ones may be left": {
			Resource{V1: true, Definition: Answer[Definition]{Value: Definition{Storage: "v1", Stored: []string{"v1beta1", "v1"}}}}, "warning OldStorageVersion",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			found := checkCRDs(&State{API: map[string]Resource{"volumesnapshots": test.bad, "volumesnapshotcontents": good, "volumesnapshotclasses": good}})
			g.Expect(reasons(found)).To(Equal([]string{test.want}))
			if found[0].Reason != "SnapshotCRDsServed" {
				g.Expect(found[0].Message).To(ContainSubstring("volumesnapshots.snapshot.storage.k8s.io"))
			}
		})
	}
}

func TestCheckServer(t *testing.T) {
	disabled, err := snapshot.ParseParallelism("0")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		server Answer[Server]
		want   []string
	}{
		"as it should be": {Answer[Server]{Value: Server{Found: true, CSI: true}}, nil},
		"not there":       {Answer[Server]{}, []string{"info ServerNotFound"}},
		"without CSI":     {Answer[Server]{Value: Server{Found: true}}, []string{"error CSIFeatureOff"}},
		"stock":           {Answer[Server]{Value: Server{Found: true, CSI: true, Parallelism: disabled}}, []string{"info StockEngine"}},
		"unreadable":      {Answer[Server]{Err: errForbidden}, []string{"info NotReadable"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(reasons(checkServer(&State{Server: test.server}))).To(Equal(test.want))
		})
	}
}

func class(name, driver string, marks ...string) snapshotv1.VolumeSnapshotClass {
	c := snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Driver:     driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
	for _, mark := range marks {
		switch mark {
		case "label":
			c.Labels[velerov1.VolumeSnapshotClassSelectorLabel] = "true"
		case "default":
			c.Annotations[velerov1.VolumeSnapshotClassKubernetesAnnotation] = "true"
		case "retain":
			c.DeletionPolicy = snapshotv1.VolumeSnapshotContentRetain
		}
	}
	return c
}

func TestCheckClasses(t *testing.T) {
	tests := map[string]struct {
		classes []snapshotv1.VolumeSnapshotClass
		want    string
		says    []string
		fix     string
	}{
		"none": {
			[]snapshotv1.VolumeSnapshotClass{class("x", "other.csi", "label")}, "error SnapshotClassMissing", []string{"d.csi", "7 volumes"}, `"driver":"d.csi"`,
		},
		"the only one": {[]snapshotv1.VolumeSnapshotClass{class("a", "d.csi")}, "info SnapshotClassChosen", []string{"Class a ", "only one", "Delete"}, ""},
		"the labelled one": {
			[]snapshotv1.VolumeSnapshotClass{class("a", "d.csi", "default"), class("b", "d.csi", "label", "retain")}, "info SnapshotClassChosen",
			[]string{"Class b ", "label", "Retain"}, "",
		},
		"the default": {[]snapshotv1.VolumeSnapshotClass{class("a", "d.csi"), class("b", "d.csi", "default")}, "info SnapshotClassChosen", []string{"Class b ", "default"}, ""},
		"several and no mark": {
			[]snapshotv1.VolumeSnapshotClass{class("a", "d.csi"), class("b", "d.csi")}, "error SnapshotClassUndecided", []string{"a, b"},
			"kubectl label volumesnapshotclass a velero.io/csi-volumesnapshot-class=true",
		},
		"two labelled": {
			[]snapshotv1.VolumeSnapshotClass{class("a", "d.csi", "label"), class("b", "d.csi", "label"), class("c", "d.csi", "label")}, "warning SnapshotClassAmbiguous",
			[]string{"a, b, c", ": a is taken"}, "kubectl label volumesnapshotclass b c velero.io/csi-volumesnapshot-class-",
		},
		"two defaults": {
			[]snapshotv1.VolumeSnapshotClass{class("a", "d.csi", "default"), class("b", "d.csi", "default")}, "warning SnapshotClassAmbiguous", []string{": a is taken"},
			"kubectl label volumesnapshotclass a velero.io/csi-volumesnapshot-class=true",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			state := &State{
				Volumes: Answer[Volumes]{Value: Volumes{CSI: map[string]int{"d.csi": 7}}},
				Drivers: Answer[[]string]{Value: []string{"d.csi"}},
				Classes: Answer[[]snapshotv1.VolumeSnapshotClass]{Value: test.classes},
				API:     map[string]Resource{"volumesnapshotclasses": {V1: true}},
			}
			found := checkClasses(state)
			g.Expect(reasons(found)).To(Equal([]string{test.want}))
			for _, text := range test.says {
				g.Expect(found[0].Message).To(ContainSubstring(text))
			}
			g.Expect(found[0].Fix).To(ContainSubstring(test.fix))

			state.Drivers.Value = nil
			g.Expect(reasons(checkClasses(state))).To(ContainElement("warning CSIDriverMissing"))
			state.API = nil
			g.Expect(reasons(checkClasses(state))).To(Equal([]string{"warning CSIDriverMissing"}), "without the CRD nothing is said of classes")
		})
	}
}

func TestCheckVolumes(t *testing.T) {
	g := NewWithT(t)
	g.Expect(reasons(checkVolumes(&State{}))).To(Equal([]string{"info NoCSIVolumes"}))
	found := checkVolumes(&State{Volumes: Answer[Volumes]{Value: Volumes{CSI: map[string]int{"a": 1}, Other: 4}}})
	g.Expect(reasons(found)).To(Equal([]string{"info VolumesWithoutCSI"}))
	g.Expect(found[0].Message).To(HavePrefix("4 bound"))
}

func TestCheckNodeAgent(t *testing.T) {
	moving := NodeAgent{UsedBy: "Schedule s"}
	agents := func(a ...Agent) NodeAgent {
		n := moving
		n.Agents.Value = a
		return n
	}
	tests := map[string]struct {
		state State
		want  []string
	}{
		"no data movement":          {State{}, nil},
		"that can't be told":        {State{NodeAgent: NodeAgent{UsedErr: errForbidden}}, []string{"info NotReadable"}},
		"by default, without agent": {State{Server: Answer[Server]{Value: Server{MoveData: true}}}, []string{"error NodeAgentMissing"}},
		"by a schedule":             {State{NodeAgent: moving}, []string{"error NodeAgentMissing"}},
		"ready":                     {State{NodeAgent: agents(Agent{"node-agent", 2, 2})}, nil},
		"ready on some nodes":       {State{NodeAgent: agents(Agent{"node-agent", 2, 1})}, []string{"warning NodeAgentNotReady"}},
		"ready nowhere":             {State{NodeAgent: agents(Agent{"node-agent", 2, 0})}, []string{"error NodeAgentNotReady"}},
		"one of two kinds":          {State{NodeAgent: agents(Agent{"node-agent", 2, 2}, Agent{"node-agent-windows", 1, 0})}, []string{"error NodeAgentNotReady"}},
		"the agents can't be read":  {State{NodeAgent: NodeAgent{UsedBy: "x", Agents: Answer[[]Agent]{Err: errForbidden}}}, []string{"warning NotReadable"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(reasons(checkNodeAgent(&test.state))).To(Equal(test.want))
		})
	}
}

func TestCheckRights(t *testing.T) {
	g := NewWithT(t)
	g.Expect(checkRights(&State{})).To(BeEmpty())

	deny := func(verbs ...string) Rights {
		return review(t.Context(), access{denied: func(p Permission) bool {
			for _, verb := range verbs {
				if p.Verb == verb && p.Resource == "volumesnapshots" {
					return true
				}
			}
			return false
		}}, Permissions("velero"))
	}
	found := checkRights(&State{Namespace: "velero", Rights: deny()})
	g.Expect(reasons(found)).To(Equal([]string{"info RightsSuffice", "info RightsChecked"}))
	g.Expect(found[1].Fix).To(Equal("velero preflight --as-service-account velero/velero"))

	found = checkRights(&State{Rights: deny("watch")})
	g.Expect(reasons(found)).To(Equal([]string{"warning PermissionMissing", "info RightsChecked"}))
	g.Expect(found[0].Message).To(Equal("user me may not watch volumesnapshots.snapshot.storage.k8s.io in the whole cluster: all VolumeSnapshots of Velero are listed every 5 seconds instead."))

	found = checkRights(&State{Rights: deny("get", "list")})
	g.Expect(reasons(found)).To(Equal([]string{"error PermissionMissing", "info RightsChecked"}), "what belongs together is said once")
	g.Expect(found[0].Fix).To(ContainSubstring(`- {apiGroups: ["snapshot.storage.k8s.io"], resources: ["volumesnapshots"], verbs: ["get", "list"]}`))

	everything := review(t.Context(), access{denied: func(Permission) bool { return true }}, Permissions("velero"))
	g.Expect(checkRights(&State{Rights: everything})).To(HaveLen(len(needs)+1), "one for each line of the table")

	failed := review(t.Context(), access{err: errors.New("boom")}, Permissions("velero"))
	g.Expect(reasons(checkRights(&State{Rights: failed}))).To(Equal([]string{"warning NotReadable", "info RightsChecked"}))
}

func TestReportPutsTheWorstFirstAndLogsWhatMatters(t *testing.T) {
	g := NewWithT(t)
	state := &State{
		Namespace: "velero",
		API:       map[string]Resource{"volumesnapshots": {V1: true}, "volumesnapshotclasses": {V1: true}},
		Server:    Answer[Server]{Value: Server{Found: true, CSI: true, SnapshotTimeout: 10 * time.Minute}},
		Volumes:   Answer[Volumes]{Value: Volumes{CSI: map[string]int{"d.csi": 1}, Other: 1}},
		Drivers:   Answer[[]string]{Value: []string{"d.csi"}},
		Classes:   Answer[[]snapshotv1.VolumeSnapshotClass]{Value: []snapshotv1.VolumeSnapshotClass{class("a", "d.csi")}},
	}
	report := Examine(state)
	g.Expect(report.Findings[0].Severity).To(Equal(Error))
	g.Expect(report.Findings[len(report.Findings)-1].Severity).To(Equal(Info))
	g.Expect(report.Errors + report.Warnings + report.Infos).To(Equal(len(report.Findings)))

	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	report.Log(log)
	lines := bytes.Count(out.Bytes(), []byte("\n"))
	g.Expect(lines).To(Equal(report.Errors+report.Warnings+1), out.String())
	g.Expect(out.String()).To(ContainSubstring("level=error"))
	g.Expect(out.String()).To(ContainSubstring(fmt.Sprintf("%d errors, %d warnings, %d notes", report.Errors, report.Warnings, report.Infos)))
}
