// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func container(name, image string, words ...string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "x"}, {Name: name, Image: image, Args: words}}}
}

func deployment(namespace, name string, pod corev1.PodSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Template: corev1.PodTemplateSpec{Spec: pod}},
		Status:     appsv1.DeploymentStatus{ReadyReplicas: 1},
	}
}

// velero is what `velero install` makes.
func velero(args ...string) *appsv1.Deployment {
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "velero", Command: []string{"/velero"}, Args: append([]string{"server"}, args...)}}}
	return deployment("velero", "velero", pod)
}

func TestReadsWhatThereIs(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(
		snapshotCRD("volumesnapshots", "v1", "v1beta1", "v1"),
		velero("--features=EnableCSI", "--csi-snapshot-parallelism", "10%", "--default-csi-snapshot-timeout=3m"),
		deployment("kube-system", "snapshot-controller", container("main", "reg:5000/sig-storage/snapshot-controller:v8.2.0", "--kube-api-qps=7")),
		deployment("kube-system", "operator", container("main", "quay.io/csi-snapshot-controller-operator:1")),
		&appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "csi", Name: "plugin"},
			Spec:       appsv1.StatefulSetSpec{Template: corev1.PodTemplateSpec{Spec: container("csi-snapshotter", "mirror/by@sha256:abc", "--timeout=2m")}},
		},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "node-agent"}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 2}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "a.csi"}},
		&velerov1.Schedule{
			ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "nightly"},
			Spec:       velerov1.ScheduleSpec{Template: velerov1.BackupSpec{SnapshotMoveData: ptr.To(true)}},
		},
	)
	for i := range 1200 {
		c.volumes = append(c.volumes, volume(fmt.Sprint(i), map[bool]string{true: "a.csi"}[i < 1100]))
	}
	c.volumes[0].Status.Phase = corev1.VolumeReleased

	state, err := Read(t.Context(), Sources{Cluster: c, Discovery: servesAll, Access: access{}, Namespace: "velero"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.pages).To(Equal([]int{500, 500, 200}), "one page after the other, none of them kept")
	g.Expect(state.Volumes.Value).To(Equal(Volumes{CSI: map[string]int{"a.csi": 1099}, Other: 100}))
	g.Expect(state.API["volumesnapshots"].V1).To(BeTrue())
	g.Expect(state.API["volumesnapshots"].Definition.Value).To(Equal(Definition{Storage: "v1", Stored: []string{"v1beta1", "v1"}}))
	g.Expect(state.API["volumesnapshotclasses"].Definition.Err).To(HaveOccurred())
	g.Expect(state.Drivers.Value).To(Equal([]string{"a.csi"}))
	g.Expect(state.Server.Value.Found).To(BeTrue())
	g.Expect(state.Server.Value.CSI).To(BeTrue())
	g.Expect(state.Server.Value.Parallelism.String()).To(Equal("10%"))
	g.Expect(state.Server.Value.SnapshotTimeout).To(Equal(3 * time.Minute))
	g.Expect(state.NodeAgent.UsedBy).To(Equal("Schedule nightly"))
	g.Expect(state.NodeAgent.Agents.Value).To(Equal([]Agent{{Name: "node-agent", Wanted: 3, Ready: 2}}))
	g.Expect(state.Rights.Missing).To(BeEmpty())
	var found []string
	for _, w := range state.Workloads.Value {
		found = append(found, fmt.Sprintf("%s %s %s[%d] %d/%d", w.Program, w.object(), w.Container, w.Index, w.Ready, w.Wanted))
	}
	g.Expect(found).To(ConsistOf(
		"snapshot-controller Deployment kube-system/snapshot-controller main[1] 1/2",
		"csi-snapshotter StatefulSet csi/plugin csi-snapshotter[1] 0/1",
	))
}

func TestWhatCannotBeReadIsAFinding(t *testing.T) {
	g := NewWithT(t)
	c := newCluster()
	for _, kind := range []string{
		"PersistentVolumeList", "VolumeSnapshotClassList", "CSIDriverList", "DeploymentList", "StatefulSetList", "DaemonSetList",
		"CustomResourceDefinition", "ScheduleList", "BackupList", "DaemonSet",
	} {
		c.refused[kind] = errForbidden
	}
	state, err := Read(t.Context(), Sources{Cluster: c, Discovery: servesAll, Access: access{err: errForbidden}, Namespace: "velero"})
	g.Expect(err).NotTo(HaveOccurred())
	report := Examine(state)
	g.Expect(report.Errors).To(BeZero())
	unread := map[string]Severity{}
	for _, finding := range report.Findings {
		if finding.Reason == "NotReadable" {
			unread[finding.Object] = finding.Severity
			g.Expect(finding.Message).To(ContainSubstring("forbidden"))
		}
	}
	g.Expect(unread).To(Equal(map[string]Severity{
		"PersistentVolumes": Warning, "VolumeSnapshotClasses": Warning, "Rights of user me": Warning, "CSIDrivers": Info,
		"Deployments, StatefulSets and DaemonSets": Info, "Deployment of Velero in namespace velero": Info,
		"Schedules and Backups in namespace velero":                               Info,
		"CustomResourceDefinition volumesnapshots.snapshot.storage.k8s.io":        Info,
		"CustomResourceDefinition volumesnapshotcontents.snapshot.storage.k8s.io": Info,
		"CustomResourceDefinition volumesnapshotclasses.snapshot.storage.k8s.io":  Info,
	}))
}

func TestNoClusterIsAnError(t *testing.T) {
	g := NewWithT(t)
	_, err := Read(t.Context(), Sources{Cluster: newCluster(), Discovery: discovery{err: errors.New("connection refused")}, Namespace: "velero"})
	g.Expect(err).To(MatchError(ContainSubstring("connection refused")))

	cause := errors.New("too slow")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err = Read(ctx, Sources{Cluster: newCluster(), Discovery: servesAll, Namespace: "velero"})
	g.Expect(err).To(MatchError(cause))
}

func TestTheServersOwnSettingsComeFirst(t *testing.T) {
	g := NewWithT(t)
	own := Server{Found: true, CSI: true, SnapshotTimeout: time.Hour}
	state, err := Read(t.Context(), Sources{Cluster: newCluster(velero()), Discovery: servesAll, Namespace: "velero", Server: &own})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(state.Server.Value).To(Equal(own))
	g.Expect(state.Rights.Who).To(BeEmpty(), "nobody asked for rights")
}
