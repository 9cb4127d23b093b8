// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"io"
	"runtime"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// many is how many snapshots the benchmarks have under way.
const many = 10_000

// BenchmarkNext asks what may start with 10,000 snapshots of ten backups queued and all but one place taken.
func BenchmarkNext(b *testing.B) {
	list := make([]candidate, many)
	for i := range list {
		list[i] = candidate{owner: types.UID(fmt.Sprintf("backup-%d", i*10/many)), driver: fmt.Sprintf("driver-%d", i*30/many%3), inFlight: i < 49}
	}
	lim := limits{server: 50, driver: map[string]driverLimit{"driver-0": {inFlight: 40}}}
	b.ReportAllocs()
	for b.Loop() {
		if got := next(list, nil, lim); len(got) != 1 {
			b.Fatalf("%d may start", len(got))
		}
	}
}

// followed is a tracker whose cache has that many snapshots with a subscriber each.
func followed(b *testing.B, count int) (tracker *Tracker, contents []*snapshotv1.VolumeSnapshotContent, woken *int) {
	b.Helper()
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	tracker = NewTracker(newAPI(), TrackerOptions{Logger: quiet})
	woken = new(int)
	contents = make([]*snapshotv1.VolumeSnapshotContent, count)
	for i := range contents {
		r := request(i)
		vs := desired(r)
		vs.UID = types.UID(fmt.Sprintf("uid-%d", i))
		if err := tracker.snapshotInformer.GetIndexer().Add(vs); err != nil {
			b.Fatal(err)
		}
		contents[i] = oldContent(i)
		contents[i].Spec.VolumeSnapshotRef = corev1.ObjectReference{Namespace: vs.Namespace, Name: vs.Name, UID: vs.UID}
		if err := tracker.contentInformer.GetIndexer().Add(contents[i]); err != nil {
			b.Fatal(err)
		}
		tracker.subscribe(keyOf(r), func() { *woken++ })
	}
	return tracker, contents, woken
}

// oldContent is a VolumeSnapshotContent with what one has in a cluster.
func oldContent(i int) *snapshotv1.VolumeSnapshotContent {
	return &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("snapcontent-%08d-0000-4000-8000-000000000000", i), UID: types.UID(fmt.Sprintf("content-%d", i)),
			ResourceVersion: fmt.Sprint(1_000_000 + i), Finalizers: []string{"snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"},
			Annotations: map[string]string{"snapshot.storage.kubernetes.io/deletion-secret-name": "secret"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "snapshot-controller", FieldsV1: &metav1.FieldsV1{Raw: make([]byte, 900)}},
				{Manager: "csi-snapshotter", Subresource: "status", FieldsV1: &metav1.FieldsV1{Raw: make([]byte, 500)}},
			},
		},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: "driver", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, VolumeSnapshotClassName: ptr.To("class"),
			Source:            snapshotv1.VolumeSnapshotContentSource{VolumeHandle: ptr.To(fmt.Sprintf("vol-%d", i))},
			VolumeSnapshotRef: corev1.ObjectReference{Kind: "VolumeSnapshot", Namespace: "app", Name: fmt.Sprintf("old-%d", i), UID: types.UID(fmt.Sprintf("old-%d", i))},
		},
		Status: &snapshotv1.VolumeSnapshotContentStatus{
			SnapshotHandle: ptr.To(fmt.Sprintf("snap-%d", i)), ReadyToUse: ptr.To(true), RestoreSize: ptr.To(int64(1 << 30)), CreationTime: ptr.To(int64(1)),
		},
	}
}

// BenchmarkTrackerEvent takes in a change of one of 10,000 contents, each with a subscriber.
func BenchmarkTrackerEvent(b *testing.B) {
	tracker, contents, woken := followed(b, many)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		tracker.contentEvent(contents[i%many], false)
		i++
	}
	if *woken != i {
		b.Fatalf("%d woken by %d events", *woken, i)
	}
}

// BenchmarkForeignEvent takes in a change of a content that nobody waits for: in a cluster with many old snapshots most are.
func BenchmarkForeignEvent(b *testing.B) {
	tracker, _, woken := followed(b, many)
	foreign := oldContent(many + 1)
	b.ReportAllocs()
	for b.Loop() {
		tracker.contentEvent(foreign, false)
	}
	if *woken != 0 {
		b.Fatal("somebody was woken")
	}
}

// BenchmarkErrorInFlight looks at one of 10,000 snapshots that shows an error, and judges it.
func BenchmarkErrorInFlight(b *testing.B) {
	tracker, contents, _ := followed(b, many)
	l := newLoop(NewTaker(newAPI(), tracker, TakerOptions{Parallelism: Parallelism{kind: parallelismUnlimited}, Logger: tracker.snapshots.log}))
	for i, content := range contents {
		content.Status = &snapshotv1.VolumeSnapshotContentStatus{Error: &snapshotv1.VolumeSnapshotError{
			Message: ptr.To(`Failed to create snapshot: "rpc error: code = Internal desc = the storage is busy"`),
		}}
		tracker.contentEvent(content, false)
		e := newEntry(newSnapshot(request(i)))
		e.driver, e.group, e.state = l.driver("driver"), &group{open: 1}, cutting
		e.sub = tracker.subscribe(e.key, func() {})
		l.entries = append(l.entries, e)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		l.examine(l.entries[i%many])
		i++
	}
}

// BenchmarkMemoryPerContent fills the cache with 15,000 old contents and reports what each takes, with and without the
// transform.
func BenchmarkMemoryPerContent(b *testing.B) {
	const old = 15_000
	for _, transformed := range []bool{true, false} {
		b.Run(fmt.Sprintf("transform=%t", transformed), func(b *testing.B) {
			for b.Loop() {
				before := heapBytes()
				tracker := NewTracker(newAPI(), TrackerOptions{})
				for i := range old {
					var object any = oldContent(i)
					if transformed {
						object, _ = trim(object)
					}
					if err := tracker.contentInformer.GetIndexer().Add(object); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(heapBytes()-before)/old, "B/content")
				runtime.KeepAlive(tracker)
			}
		})
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
