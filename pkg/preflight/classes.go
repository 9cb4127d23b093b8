// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	veleroutil "github.com/vmware-tanzu/velero/pkg/util/csi"
)

// checkVolumes says what there is to protect.
func checkVolumes(s *State) []Finding {
	if s.Volumes.Err != nil {
		return notReadable(Warning, "PersistentVolumes", s.Volumes.Err, ruleLine("", []string{"persistentvolumes"}, []string{"get", "list"}))
	}
	v := s.Volumes.Value
	var out []Finding
	if len(v.CSI) == 0 {
		out = append(out, Finding{
			Severity: Info, Reason: "NoCSIVolumes", Object: "PersistentVolumes",
			Message: "No PersistentVolume of a CSI driver is bound to a claim, so there is nothing to snapshot.",
		})
	}
	if v.Other > 0 {
		out = append(out, Finding{
			Severity: Info, Reason: "VolumesWithoutCSI", Object: "PersistentVolumes",
			Message: fmt.Sprintf("%d bound PersistentVolumes aren't provided by a CSI driver (in-tree, local, NFS and the like): no CSI snapshot is taken of them.", v.Other),
		})
	}
	return out
}

// checkClasses asks, for each driver with volumes, which VolumeSnapshotClass a backup would choose.
func checkClasses(s *State) []Finding {
	var out []Finding
	if s.Drivers.Err != nil {
		out = append(out, notReadable(Info, "CSIDrivers", s.Drivers.Err, ruleLine("storage.k8s.io", []string{"csidrivers"}, []string{"get", "list"}))...)
	}
	if s.Classes.Err != nil {
		out = append(out, notReadable(Warning, "VolumeSnapshotClasses", s.Classes.Err,
			ruleLine(snapshotv1.GroupName, []string{"volumesnapshotclasses"}, []string{"get", "list"}))...)
	}
	for _, driver := range sortedKeys(s.Volumes.Value.CSI) {
		if s.Drivers.Err == nil && !slices.Contains(s.Drivers.Value, driver) {
			out = append(out, Finding{
				Severity: Warning, Reason: "CSIDriverMissing", Object: "CSIDriver " + driver,
				Message: fmt.Sprintf("CSI driver %s has %d volumes and no CSIDriver object: it may not be installed any more.", driver, s.Volumes.Value.CSI[driver]),
				Fix: "install the driver, or, if it is gone for good, delete its volumes: " +
					"kubectl get persistentvolumes -o custom-columns=NAME:.metadata.name,DRIVER:.spec.csi.driver | grep -F " + driver,
			})
		}
		if s.Classes.Err == nil && s.API["volumesnapshotclasses"].V1 {
			out = append(out, checkClass(driver, s.Volumes.Value.CSI[driver], s.Classes.Value)...)
		}
	}
	return out
}

// checkClass lets Velero choose for a claim and a backup without annotations, and judges how sure the choice is.
func checkClass(driver string, volumes int, all []snapshotv1.VolumeSnapshotClass) []Finding {
	object := "CSIDriver " + driver
	var own, labelled, preferred []string
	for _, class := range all {
		if class.Driver != driver {
			continue
		}
		own = append(own, class.Name)
		if _, ok := class.Labels[velerov1.VolumeSnapshotClassSelectorLabel]; ok {
			labelled = append(labelled, class.Name)
		}
		if _, ok := class.Annotations[velerov1.VolumeSnapshotClassKubernetesAnnotation]; ok {
			preferred = append(preferred, class.Name)
		}
	}
	if len(own) == 0 {
		return []Finding{{
			Severity: Error, Reason: "SnapshotClassMissing", Object: object,
			Message: fmt.Sprintf("CSI driver %s has %d volumes and no VolumeSnapshotClass: their claims fail in every backup that wants snapshots of them.", driver, volumes),
			Fix: fmt.Sprintf(`kubectl create -f - <<< '{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshotClass","metadata":{"name":"velero-%s",`+
				`"labels":{"%s":"true"}},"driver":"%s","deletionPolicy":"Delete"}'`, nameFrom(driver), velerov1.VolumeSnapshotClassSelectorLabel, driver),
		}}
	}
	chosen, err := veleroutil.GetVolumeSnapshotClassForStorageClass(driver, &snapshotv1.VolumeSnapshotClassList{Items: all})
	if err != nil || chosen == nil {
		return []Finding{{
			Severity: Error, Reason: "SnapshotClassUndecided", Object: object,
			Message: fmt.Sprintf("CSI driver %s has the VolumeSnapshotClasses %s, and none of them has the label %s or is the default, so none is chosen.",
				driver, strings.Join(own, ", "), velerov1.VolumeSnapshotClassSelectorLabel),
			Fix: fmt.Sprintf("kubectl label volumesnapshotclass %s %s=true", own[0], velerov1.VolumeSnapshotClassSelectorLabel),
		}}
	}
	return judgeChoice(driver, chosen, labelled, preferred)
}

func judgeChoice(driver string, chosen *snapshotv1.VolumeSnapshotClass, labelled, preferred []string) []Finding {
	object := "VolumeSnapshotClass " + chosen.Name
	if len(labelled) > 1 {
		return []Finding{{
			Severity: Warning, Reason: "SnapshotClassAmbiguous", Object: object,
			Message: fmt.Sprintf("CSI driver %s has %d VolumeSnapshotClasses with the label %s (%s): %s is taken because it is first in the list.",
				driver, len(labelled), velerov1.VolumeSnapshotClassSelectorLabel, strings.Join(labelled, ", "), chosen.Name),
			Fix: fmt.Sprintf("kubectl label volumesnapshotclass %s %s-", strings.Join(others(labelled, chosen.Name), " "), velerov1.VolumeSnapshotClassSelectorLabel),
		}}
	}
	if len(labelled) == 0 && len(preferred) > 1 {
		return []Finding{{
			Severity: Warning, Reason: "SnapshotClassAmbiguous", Object: object,
			Message: fmt.Sprintf("CSI driver %s has %d default VolumeSnapshotClasses (%s): %s is taken because it is first in the list.",
				driver, len(preferred), strings.Join(preferred, ", "), chosen.Name),
			Fix: fmt.Sprintf("kubectl label volumesnapshotclass %s %s=true", chosen.Name, velerov1.VolumeSnapshotClassSelectorLabel),
		}}
	}
	why := "it is the driver's only one"
	switch {
	case len(labelled) == 1:
		why = "it has the label " + velerov1.VolumeSnapshotClassSelectorLabel
	case len(preferred) == 1:
		why = "it is the default"
	}
	policy := "a VolumeSnapshot that is deleted before its backup is finalized takes the storage's snapshot with it"
	if chosen.DeletionPolicy == snapshotv1.VolumeSnapshotContentRetain {
		policy = "a VolumeSnapshot that somebody else than Velero deletes leaves the storage's snapshot behind"
	}
	return []Finding{{
		Severity: Info, Reason: "SnapshotClassChosen", Object: object,
		Message: fmt.Sprintf("For volumes of CSI driver %s, VolumeSnapshotClass %s is taken because %s; its deletionPolicy is %s: %s.",
			driver, chosen.Name, why, chosen.DeletionPolicy, policy),
	}}
}

func others(names []string, but string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == but })
}

// nameFrom makes an object's name of a driver's, which may hold capitals.
func nameFrom(driver string) string { return strings.ReplaceAll(strings.ToLower(driver), "_", "-") }
