// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

func TestAFailedSnapshotKeepsPodAndClaimOut(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data", "fine")
		c.add(pod("db", "data"), pod("web", "fine"))
		c.taker.hold = holdOnly("data")
		r := c.start()
		c.taker.fail("data", snapshot.ReasonTerminalError, "PVC app/data: the driver says: quota exceeded")
		c.Expect(r.wait().err).NotTo(HaveOccurred())

		c.Expect(r.files()).To(ContainElements("persistentvolumes pv-data", "pods app/web", "persistentvolumeclaims app/fine"))
		c.Expect(r.files()).NotTo(ContainElement("pods app/db"))
		c.Expect(r.files()).NotTo(ContainElement("persistentvolumeclaims app/data"))
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("db: "), HaveSuffix("quota exceeded"))), "one line, for the pod (196)")
		c.Expect(r.result.SnapshotsAttempted).To(Equal(2), "the failed one counts (360)")
		c.Expect(r.result.Snapshots.VolumeSnapshots).To(HaveLen(1))
		c.Expect(r.result.Operations).To(HaveLen(1))
		c.Expect(c.settler.asked).To(Equal([]snapshot.Ref{{Namespace: "app", Name: snapshotOf("data"), UID: "vs-of-data"}}))
	})
}

func TestAClaimOfTwoPodsHasOneSnapshot(t *testing.T) { // field case F20
	inCluster(t, func(c *cluster) {
		c.workers = 2
		c.claims("shared")
		c.add(pod("web-1", "shared"), pod("web-2", "shared"))
		r := c.take()
		c.Expect(c.taker.requests()).To(HaveLen(1))
		c.Expect(r.files()).To(ContainElements("pods app/web-1", "pods app/web-2"))
		c.Expect(r.result.Operations).To(HaveLen(1))
	})
}

func TestAFailedSnapshotFailsBothPodsThatShareIt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("shared")
		c.add(pod("web-1", "shared"), pod("web-2", "shared"))
		c.taker.hold = holdAll
		r := c.start()
		c.taker.fail("shared", snapshot.ReasonTimedOut, "no answer")
		r.wait()
		c.Expect(r.files()).NotTo(ContainElement(HavePrefix("pods ")))
		c.Expect(c.errors()).To(HaveLen(2))
	})
}

func TestAClaimThatAPluginBringsInLateIsSnapshottedAndWaitedFor(t *testing.T) {
	inCluster(t, func(c *cluster) {
		// Out of reach of the collection, so that it is in no block.
		c.replace(func(b *velerov1.Backup) {
			b.Spec.ExcludedNamespaceScopedResources = append(b.Spec.ExcludedNamespaceScopedResources, "persistentvolumeclaims")
		})
		c.claims("late")
		c.add(builder.ForConfigMap("app", "settings").Result(), builder.ForSecret("app", "other").Result())
		c.plugin("operator", func(item *unstructured.Unstructured) (*answer, error) {
			annotate(item, velerov1.MustIncludeAdditionalItemAnnotation, "true")
			return &answer{item: item, additional: []velero.ResourceIdentifier{named("persistentvolumeclaims", "app", "late")}}, nil
		}, "configmaps")
		c.taker.hold = holdAll
		r := c.start()
		c.Expect(c.events.all("create")).To(Equal([]string{"create late"}))
		c.Expect(r.isOver()).To(BeFalse())
		c.taker.cut("late")
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(c.errors()).To(BeEmpty())
		c.Expect(r.files()).To(ContainElements(snapshotFiles("late", true)))
		c.Expect(position(r.files(), "persistentvolumeclaims app/late")).To(BeNumerically("<", position(r.files(), "configmaps app/settings")))
		c.Expect(c.taker.requests()[0].Owner).To(Equal(snapshot.Owner{Name: "nightly", Namespace: "velero", UID: "backup-uid", Limit: snapshot.DefaultParallelism}))
	})
}

func annotate(item *unstructured.Unstructured, key, value string) {
	annotations := item.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	item.SetAnnotations(annotations)
}

// These end one claim's way, or take another one, and leave the rest of the backup alone.
func TestClaimsThatAreNotSnapshotted(t *testing.T) {
	type objects = func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)
	cases := map[string]struct {
		backup  func(*velerov1.Backup)
		claim   objects
		in      bool
		errors  []any
		warning any
		skipped string
	}{
		"unbound": {
			claim: func(pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
				pvc.Status.Phase, pvc.Spec.VolumeName = "", ""
			},
			in:      true,
			warning: And(ContainSubstring("app/data"), ContainSubstring("Pending"), ContainSubstring("not bound")),
		},
		"not wanted": {
			backup:  func(b *velerov1.Backup) { b.Spec.SnapshotVolumes = new(bool) },
			in:      true,
			skipped: "pv-data",
		},
		"not a CSI volume": {
			claim: func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
				pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas"}}
			},
			in:      true,
			skipped: "pv-data",
		},
		"a driver without a class": {
			claim: func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
				pv.Spec.CSI.Driver = "other.example.com"
			},
			errors: []any{And(ContainSubstring("other.example.com"), ContainSubstring("create one"), ContainSubstring(velerov1.VolumeSnapshotClassSelectorLabel))},
		},
		"a class that isn't there": {
			claim: func(pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
				pvc.Annotations = map[string]string{velerov1.VolumeSnapshotClassDriverPVCAnnotation: "gone"}
			},
			errors: []any{And(ContainSubstring("gone"), ContainSubstring("correct or remove the annotation"))},
		},
		"a group": {
			backup: func(b *velerov1.Backup) { b.Spec.VolumeGroupSnapshotLabelKey = "velero.io/volume-group" },
			claim: func(pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
				pvc.Labels = map[string]string{"velero.io/volume-group": "db"}
			},
			errors: []any{And(ContainSubstring("volume group db"), ContainSubstring("the cluster has no CRD volumegroupsnapshots.groupsnapshot.storage.k8s.io"),
				ContainSubstring("take the group label off"))},
		},
		"a group of which no snapshot is wanted": {
			backup: func(b *velerov1.Backup) {
				b.Spec.VolumeGroupSnapshotLabelKey, b.Spec.SnapshotVolumes = "velero.io/volume-group", new(bool)
			},
			claim: func(pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
				pvc.Labels = map[string]string{"velero.io/volume-group": "db"}
			},
			in:      true,
			skipped: "pv-data",
		},
		"excluded by label": {
			claim: func(pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
				pvc.Labels = map[string]string{velerov1.ExcludeFromBackupLabel: "true"}
			},
			skipped: "pv-data",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				if test.backup != nil {
					c.replace(test.backup)
				}
				if test.claim == nil {
					test.claim = func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {}
				}
				c.claim("data", test.claim)
				c.add(builder.ForConfigMap("app", "settings").Result())
				r := c.take()
				c.Expect(c.taker.requests()).To(BeEmpty())
				c.Expect(position(r.files(), "persistentvolumeclaims app/data") >= 0).To(Equal(test.in))
				c.Expect(r.files()).To(ContainElement("configmaps app/settings"))
				c.Expect(c.errors()).To(ConsistOf(test.errors...))
				if test.warning != nil {
					c.Expect(c.warnings()).To(ConsistOf(test.warning))
				} else {
					c.Expect(c.warnings()).To(BeEmpty())
				}
				summary, err := r.result.Volumes.SkippedSummary()
				c.Expect(err).NotTo(HaveOccurred())
				if test.skipped != "" {
					c.Expect(summary).To(ContainSubstring(test.skipped))
				} else {
					c.Expect(summary).NotTo(ContainSubstring("pv-data"))
				}
			})
		})
	}
}

func TestAClusterWithoutTheSnapshotCRDs(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data")
		c.add(pod("db", "data"))
		c.onList = func(list client.ObjectList) error {
			if _, ok := list.(*snapshotv1.VolumeSnapshotClassList); ok {
				return &meta.NoKindMatchError{}
			}
			return nil
		}
		r := c.take()
		c.Expect(c.errors()).To(ConsistOf(And(ContainSubstring("snapshot.storage.k8s.io"), ContainSubstring("install the snapshot CRDs"))))
		c.Expect(r.files()).To(ContainElement("persistentvolumes pv-data"))
		c.Expect(r.files()).NotTo(ContainElement("pods app/db"))
	})
}

func TestTheSnapshotWaitsForABusyAPI(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data")
		refusals := 0
		c.onPatch = func(object client.Object, _ map[string]any) error {
			if object.GetName() == snapshotOf("data") && refusals < 5 {
				refusals++
				return apierrors.NewServiceUnavailable("the API server is starting")
			}
			return nil
		}
		r := c.take()
		c.Expect(refusals).To(Equal(5))
		c.Expect(r.files()).To(ContainElement("persistentvolumeclaims app/data"))
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestASnapshotThatCannotBeAnnotatedFails(t *testing.T) {
	for name, refusal := range map[string]error{
		"refused for good":     apierrors.NewForbidden(snapshotv1.Resource("volumesnapshots"), snapshotOf("data"), errors.New("no such role")),
		"busy for too long":    apierrors.NewTooManyRequests("slow down", 1),
		"something unheard of": errors.New("what"),
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.claims("data")
				c.onPatch = func(object client.Object, _ map[string]any) error {
					if object.GetName() == snapshotOf("data") {
						return refusal
					}
					return nil
				}
				begin := time.Now()
				r := c.take()
				c.Expect(time.Since(begin)).To(BeNumerically("<", time.Minute))
				c.Expect(c.errors()).To(ConsistOf(ContainSubstring(refusal.Error())))
				c.Expect(r.files()).NotTo(ContainElement("persistentvolumeclaims app/data"))
			})
		})
	}
}

func TestAContentThatCannotBeLabelledIsAWarning(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data")
		c.onPatch = func(object client.Object, _ map[string]any) error {
			if object.GetName() == contentOf("data") {
				return apierrors.NewForbidden(snapshotv1.Resource("volumesnapshotcontents"), contentOf("data"), errors.New("no such role"))
			}
			return nil
		}
		r := c.take()
		c.Expect(c.warnings()).To(ConsistOf(ContainSubstring("can't be labelled")))
		c.Expect(c.errors()).To(BeEmpty())
		c.Expect(r.files()).To(ContainElements("volumesnapshotcontents "+contentOf("data"), "persistentvolumeclaims app/data"))
	})
}

func TestTheWalkWaitsALittleForReadiness(t *testing.T) {
	for neverReady, seconds := range map[bool]time.Duration{false: 0, true: 2 * time.Second} {
		inCluster(t, func(c *cluster) {
			c.claims("a", "b")
			c.taker.neverReady = neverReady
			begin := time.Now()
			c.take()
			synctest.Wait()
			c.Expect(time.Since(begin)).To(Equal(seconds))
			c.Expect(c.errors()).To(BeEmpty())
			c.Expect(c.warnings()).To(BeEmpty())
		})
	}
}

func TestASnapshotThatIsDeletedAfterItsCut(t *testing.T) {
	t.Run("and lost", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			c.claims("data", "fine")
			c.add(pod("db", "data"), pod("web", "fine"))
			c.taker.afterCut = func(o *snapshot.Outcome) {
				if *o.VolumeSnapshot.Spec.Source.PersistentVolumeClaimName == "data" {
					o.Lost = "PVC app/data: VolumeSnapshot app/x was deleted by somebody else"
				}
			}
			r := c.take()
			c.Expect(r.files()).NotTo(ContainElement("persistentvolumeclaims app/data"), "a claim without its data isn't in the backup")
			c.Expect(r.files()).To(ContainElement("pods app/web"))
			c.Expect(c.errors()).To(ConsistOf(HaveSuffix("was deleted by somebody else")))
		})
	})
	t.Run("and kept by its content", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			c.claims("data")
			c.add(pod("db", "data"))
			c.taker.content = func(content *snapshotv1.VolumeSnapshotContent) {
				content.Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentRetain
			}
			c.taker.afterCut = func(o *snapshot.Outcome) {
				o.VolumeSnapshot = o.VolumeSnapshot.DeepCopy()
				o.VolumeSnapshot.DeletionTimestamp = ptr.To(metav1.Now())
				c.Expect(c.client.Delete(t.Context(), &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{
					Namespace: "app", Name: o.VolumeSnapshot.Name,
				}})).To(Succeed())
			}
			r := c.take()
			c.Expect(r.files()).To(ContainElements("persistentvolumeclaims app/data", "volumesnapshots app/"+snapshotOf("data"),
				"volumesnapshotcontents "+contentOf("data")))
			c.Expect(c.errors()).To(BeEmpty())
			c.Expect(c.warnings()).To(ContainElement(ContainSubstring("is kept")))
			c.Expect(r.result.Operations).To(BeEmpty(), "nothing could be asked about it")
		})
	})
}

func TestWhatTheClaimsActionSaysToLaterPlugins(t *testing.T) { // 190, 191, 283
	inCluster(t, func(c *cluster) {
		c.claims("data")
		c.claim("share", func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nas"}}
		})
		c.plugin("later", func(item *unstructured.Unstructured) (*answer, error) {
			for _, key := range []string{velerov1.MustIncludeAdditionalItemAnnotation, velerov1.SkippedNoCSIPVAnnotation} {
				if item.GetAnnotations()[key] == "true" {
					c.events.add("later " + item.GetName() + " " + key)
				}
			}
			return nil, nil
		}, "persistentvolumeclaims")
		r := c.take()
		c.Expect(c.events.all("later")).To(ConsistOf(
			"later data "+velerov1.MustIncludeAdditionalItemAnnotation, "later share "+velerov1.SkippedNoCSIPVAnnotation,
		))
		for path, key := range map[string]string{
			"persistentvolumeclaims/namespaces/app/data":                                   velerov1.MustIncludeAdditionalItemAnnotation,
			"persistentvolumeclaims/namespaces/app/share":                                  velerov1.SkippedNoCSIPVAnnotation,
			"volumesnapshots.snapshot.storage.k8s.io/namespaces/app/" + snapshotOf("data"): velerov1.MustIncludeAdditionalItemAnnotation,
		} {
			c.Expect(r.object(path).GetAnnotations()).To(HaveKeyWithValue(key, "true"), path)
		}
	})
}
