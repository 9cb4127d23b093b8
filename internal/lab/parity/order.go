// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"slices"
	"strings"
)

// ordered is the order in which items were met, by resource or kind. Stock takes the resources of a group in an order that
// changes with each of its looks at the discovery, apart from pods, claims and volumes, which come first; so
// the order of items of different kinds says something for these three only.
type ordered map[string]Sequence

// volumeKinds are the kinds, and the resources, whose order among each other is defined.
var volumeKinds = map[string]bool{
	"Pod": true, "PersistentVolumeClaim": true, "PersistentVolume": true, "VolumeSnapshot": true, "VolumeSnapshotContent": true,
	"VolumeSnapshotClass": true,
	"pods":                true, "persistentvolumeclaims": true, "persistentvolumes": true, "volumesnapshots.snapshot.storage.k8s.io": true,
	"volumesnapshotcontents.snapshot.storage.k8s.io": true, "volumesnapshotclasses.snapshot.storage.k8s.io": true,
}

// add appends an item to the sequence of its kind, and to that of pods and volumes if it is one of them.
func (o ordered) add(prefix, kind, item string) {
	o[prefix+kind] = append(o[prefix+kind], item)
	if volumeKinds[kind] {
		o[prefix+"pods and volumes"] = append(o[prefix+"pods and volumes"], item)
	}
}

// addPath appends an object by a path in the tarball. An object in its preferred version has two of them, one after the other; which
// comes first isn't defined for those that the finalizer adds.
func (o ordered) addPath(resource, path string) {
	parts := strings.Split(path, "/")
	parts = slices.DeleteFunc(parts, func(part string) bool { return strings.HasSuffix(part, preferredVersion) })
	object := strings.Join(parts, "/")
	if known := o[resource]; len(known) > 0 && known[len(known)-1] == object {
		return
	}
	o.add("", resource, object)
}

// preferredVersion ends the folder of an object's preferred version.
const preferredVersion = "-preferredversion"

func (o ordered) tree() map[string]any {
	out := make(map[string]any, len(o))
	for key, sequence := range o {
		if strings.HasSuffix(key, "CustomResourceDefinition") || strings.HasPrefix(key, "customresourcedefinitions.") {
			slices.Sort(sequence) // stock takes the kinds of a backup in random order
		}
		out[key] = sequence
	}
	return out
}
