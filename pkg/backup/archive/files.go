// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	veleroarchive "github.com/vmware-tanzu/velero/pkg/archive"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// File is one regular file of the tarball.
type File struct {
	// Path in the tarball, relative, with slashes.
	Path string
	// Data is the whole content.
	Data []byte
	// ModTime of the entry; zero means the time at which it is written (178).
	ModTime time.Time
}

// ItemFiles returns the files of one object, as it is after all plugins: they may have given it another name or
// namespace, and the paths use the new ones (172). version is the object's API version, without the group, as it was
// before the plugins (169).
//
// An object in its preferred version gives two files with the same content: the plain path first, for readers that know
// nothing of versions, then the one with the version and the mark of the preferred one. In any other version it gives
// the versioned file alone (176, 177). It fails for an object that can't be written as JSON, or under a name that a
// plugin gave it.
func ItemFiles(obj *unstructured.Unstructured, gr schema.GroupResource, preferred schema.GroupVersionResource, version string) ([]File, error) {
	// Only a plugin can have made a name that isn't one. With "../" in it the file would be somebody else's.
	for _, name := range []string{obj.GetNamespace(), obj.GetName()} {
		if wrong := path.IsValidPathSegmentName(name); len(wrong) > 0 {
			return nil, fmt.Errorf("%q can't be the name or namespace of %s: it %s", name, gr, strings.Join(wrong, ", "))
		}
	}
	if obj.GetName() == "" {
		return nil, fmt.Errorf("an object of %s in namespace %q has no name any more", gr, obj.GetNamespace())
	}
	// The map is encoded, not the Unstructured: that one's own encoder adds a newline (178).
	data, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s/%s as JSON: %w", gr, obj.GetNamespace(), obj.GetName(), err)
	}
	id := velero.ResourceIdentifier{GroupResource: gr, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	return Files(id, preferred, version, data), nil
}

// Files is ItemFiles for an object that is JSON already, as json.Marshal writes it.
func Files(id velero.ResourceIdentifier, preferred schema.GroupVersionResource, version string, data []byte) []File {
	file := func(versionDir string) File {
		path := veleroarchive.GetVersionedItemFilePath("", id.GroupResource.String(), id.Namespace, id.Name, versionDir)
		return File{Path: path, Data: data}
	}
	if version != preferred.Version {
		return []File{file(version)}
	}
	return []File{file(""), file(version + velerov1.PreferredVersionDir)}
}
