// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
)

// maxAnnotation is the size in bytes up to which a foreign annotation is kept in the cache.
const maxAnnotation = 1024

// keptAnnotations are prefixes of what consumers of cached objects need at any size: Velero's restore and delete read
// the secrets' names and the snapshot's origin from them, and the Remover the state of a deletion.
var keptAnnotations = []string{"snapshot.storage.kubernetes.io/", "csi.storage.k8s.io/", "velero.io/"}

// trim is the transform of the informers: it takes off what nobody reads and what makes objects big. It writes only where
// there is something to take off, because client-go may hand an object to it that is already shared.
func trim(obj any) (any, error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		// A tombstone or something unknown passes unchanged, as client-go asks of a transform.
		return obj, nil //nolint:nilerr // not an error here
	}
	if object.GetManagedFields() != nil {
		object.SetManagedFields(nil)
	}
	annotations := object.GetAnnotations()
	for key, value := range annotations {
		if key == "kubectl.kubernetes.io/last-applied-configuration" || len(value) > maxAnnotation && !isKept(key) {
			delete(annotations, key)
		}
	}
	return obj, nil
}

func isKept(key string) bool {
	for _, prefix := range keptAnnotations {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
