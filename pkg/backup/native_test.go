// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	vsv1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/volumesnapshotter/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// disks is a snapshotter plugin that knows all volumes but those of CSI drivers. A call takes a second.
type disks struct {
	vsv1.VolumeSnapshotter
	events *events
	fail   map[string]error
	// calls in flight, and the most there were.
	calls, most atomic.Int32
}

func (*disks) Init(map[string]string) error { return nil }

func (*disks) GetVolumeID(object runtime.Unstructured) (string, error) {
	id, _, _ := unstructured.NestedString(object.UnstructuredContent(), "spec", "awsElasticBlockStore", "volumeID")
	return id, nil
}

func (*disks) GetVolumeInfo(string, string) (string, *int64, error) { return "gp3", nil, nil }

func (d *disks) CreateSnapshot(id, _ string, _ map[string]string) (string, error) {
	now := d.calls.Add(1)
	defer d.calls.Add(-1)
	d.most.Store(max(d.most.Load(), now))
	time.Sleep(time.Second) //nolint:forbidigo // the clock of the bubble
	d.events.add("native " + id)
	return "snap-of-" + id, d.fail[id]
}

// withDisks adds a location of the plugin.
func (c *cluster) withDisks() *disks {
	d := &disks{events: c.events, fail: map[string]error{}}
	c.locations = []*velerov1.VolumeSnapshotLocation{builder.ForVolumeSnapshotLocation("velero", "disks").Provider("aws").Result()}
	c.snapshotters = snapshotters{"aws": d}
	return d
}

// nativeSnapshots returns the records of a result.
func (r *run) nativeSnapshots() string {
	records, _, _ := r.result.Volumes.NativeSnapshots()
	encoded, err := json.Marshal(records)
	r.c.Expect(err).NotTo(HaveOccurred())
	return string(encoded)
}

func TestNativeSnapshotsOfABackup(t *testing.T) { // 62, 173, 259, 269
	inCluster(t, func(c *cluster) {
		d := c.withDisks()
		d.fail["vol-bad"] = errors.New("quota")
		c.claim("good", nativeVolume)
		c.claim("bad", nativeVolume)
		c.claims("csi")
		c.add(pod("a", "good"), pod("b", "bad"), pod("c", "csi"))
		r := c.take()
		c.Expect(c.events.all("native")).To(ConsistOf("native vol-good", "native vol-bad"))
		_, attempted, done := r.result.Volumes.NativeSnapshots()
		c.Expect([]int{attempted, done}).To(Equal([]int{2, 1}))
		c.Expect(r.nativeSnapshots()).To(And(ContainSubstring("snap-of-vol-good"), Not(ContainSubstring("snap-of-vol-bad")), ContainSubstring(`"Failed"`)))
		c.Expect(r.files()).To(ContainElements("pods app/a", "persistentvolumeclaims app/good", "persistentvolumes pv-good", "persistentvolumes pv-csi"))
		for _, gone := range []string{"pods app/b", "persistentvolumeclaims app/bad", "persistentvolumes pv-bad"} {
			c.Expect(r.files()).NotTo(ContainElement(gone), "196")
		}
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("b: "), ContainSubstring("quota"))))
		c.Expect(r.skipped()).NotTo(ContainSubstring("pv-good"))
	})
}

func TestNativeSnapshotsOfAHookedPodAreTakenWhileItIsFrozen(t *testing.T) { // 161
	inCluster(t, func(c *cluster) {
		c.withDisks()
		c.claim("disk-1", nativeVolume)
		c.claim("disk-2", nativeVolume)
		c.claims("csi")
		c.taker.hold = holdAll
		c.add(hooked("db", "disk-1", "csi", "disk-2"))
		c.plugin("note", func(item *unstructured.Unstructured) (*answer, error) {
			c.events.add("write " + item.GetName())
			return nil, nil
		}, "pods")
		r := c.start()
		time.Sleep(3 * time.Second) //nolint:forbidigo // the clock of the bubble
		c.Expect(c.events.all()).To(Equal([]string{"freeze app/db", "create csi", "native vol-disk-1", "native vol-disk-2"}), "while the CSI snapshot is being cut")
		c.taker.cut("csi")
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(c.events.all()[4:]).To(Equal([]string{"cut csi", "thaw app/db", "write db"}), "one snapshot of each volume")
		c.Expect(r.files()).To(ContainElements("pods app/db", "persistentvolumes pv-disk-1", "persistentvolumes pv-disk-2"))
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestAFailedNativeSnapshotOfAHookedPod(t *testing.T) { // 196, 269, 368
	inCluster(t, func(c *cluster) {
		d := c.withDisks()
		d.fail["vol-disk"] = errors.New("quota")
		c.withNodeAgent()
		c.claim("disk", nativeVolume)
		c.claims("files")
		c.add(wanting("files", hooked("db", "disk", "files")))
		r := c.take()
		c.Expect(c.events.all("freeze", "native", "pvb", "thaw")).To(Equal([]string{"freeze app/db", "native vol-disk", "thaw app/db"}),
			"nothing is read of a pod that won't be in the backup")
		c.Expect(r.files()).NotTo(ContainElement("pods app/db"))
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("db: "), ContainSubstring("quota"))))
	})
}

func TestPluginsTakeNoMoreSnapshotsAtOnceThanThereAreWorkers(t *testing.T) {
	for _, workers := range []int{1, 3} {
		inCluster(t, func(c *cluster) {
			c.workers = workers
			d := c.withDisks()
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				c.claim(name, nativeVolume)
				if name < "d" {
					c.add(hooked("pod-"+name, name))
				} else {
					c.add(pod("pod-"+name, name))
				}
			}
			c.take()
			c.Expect(c.events.all("native")).To(HaveLen(6))
			c.Expect(d.most.Load()).To(BeEquivalentTo(workers))
		})
	}
}

func TestAHookedVolumeThatAPluginTakesOut(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.withDisks()
		c.claim("disk", nativeVolume)
		c.add(hooked("db", "disk"))
		c.plugin("out", func(item *unstructured.Unstructured) (*answer, error) {
			item.SetAnnotations(map[string]string{velerov1.SkipFromBackupAnnotation: "true"})
			return &answer{item: item}, nil
		}, "persistentvolumes")
		r := c.take()
		c.Expect(r.files()).NotTo(ContainElement("persistentvolumes pv-disk"))
		c.Expect(r.nativeSnapshots()).To(ContainSubstring("snap-of-vol-disk"), "it is recorded, and so deleted with the backup")
	})
}
