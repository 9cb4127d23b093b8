// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"strings"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

// names remembers what generated names and IDs stand for, so that they can be replaced by words that are the same for
// both engines. It locks itself.
type names struct {
	mu    sync.Mutex
	words map[string]string
	// volumes is the claim of a VolumeSnapshot by "namespace/name".
	volumes map[string]string
}

func newNames() *names { return &names{words: map[string]string{}, volumes: map[string]string{}} }

// reset forgets everything.
func (n *names) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.words, n.volumes = map[string]string{}, map[string]string{}
}

// set gives a generated text a word.
func (n *names) set(text, word string) {
	if text == "" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.words[text] = "<" + word + ">"
}

// replacer replaces all that is known so far, longer texts first.
func (n *names) replacer() *strings.Replacer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return replacerOf(n.words)
}

// watch follows the kinds with generated names until the context ends.
func (n *names) watch(ctx context.Context, group *errgroup.Group, c client.WithWatch) {
	for _, list := range []client.ObjectList{
		&snapshotv1.VolumeSnapshotList{}, &snapshotv1.VolumeSnapshotContentList{},
		&velerov1.PodVolumeBackupList{}, &velerov2alpha1.DataUploadList{}, &velerov1.BackupRepositoryList{},
	} {
		group.Go(func() error {
			return cluster.Await(ctx, c, list, func(event watch.Event) (bool, error) {
				if object, ok := event.Object.(client.Object); ok && event.Type != watch.Deleted {
					n.learn(object)
				}
				return false, nil
			})
		})
	}
}

func (n *names) learn(o client.Object) {
	switch o := o.(type) {
	case *snapshotv1.VolumeSnapshot:
		claim := o.Namespace + "/" + ptr.Deref(o.Spec.Source.PersistentVolumeClaimName, "none")
		n.mu.Lock()
		n.volumes[o.Namespace+"/"+o.Name] = claim
		n.mu.Unlock()
		n.set(o.Name, "vs "+claim)
		n.set(string(o.UID), "uid of vs "+claim)
	case *snapshotv1.VolumeSnapshotContent:
		n.mu.Lock()
		claim := n.volumes[o.Spec.VolumeSnapshotRef.Namespace+"/"+o.Spec.VolumeSnapshotRef.Name]
		n.mu.Unlock()
		n.set(string(o.UID), "uid of vsc "+claim)
		n.set(o.Name, "vsc "+claim)
		if o.Status != nil {
			n.set(ptr.Deref(o.Status.SnapshotHandle, ""), "handle "+claim)
		}
	case *velerov1.PodVolumeBackup:
		n.set(o.Name, "pvb "+o.Spec.Pod.Namespace+"/"+o.Spec.Pod.Name+" "+o.Spec.Volume)
		n.set(string(o.UID), "uid of pvb "+o.Spec.Volume)
	case *velerov1.BackupRepository:
		n.set(string(o.UID), "uid of repository "+o.Spec.VolumeNamespace)
	case *velerov2alpha1.DataUpload:
		n.set(o.Labels[velerov1.AsyncOperationIDLabel], "operation of du "+o.Spec.SourcePVC) // it ends in a hash of UIDs
		n.set(o.Name, "du "+o.Spec.SourceNamespace+"/"+o.Spec.SourcePVC)
		n.set(string(o.UID), "uid of du "+o.Spec.SourcePVC)
	}
}
