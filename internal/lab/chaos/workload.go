// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

const (
	// driverName is the CSI driver of the lab, its StorageClass and its VolumeSnapshotClass.
	driverName = "lab.csi.clipper.dev"
	// leakNamespace holds the small workload of the leak test.
	leakNamespace = "leaks"
)

// Size is what there is in each of the two namespaces.
type Size struct {
	// Hooked pods have a volume each; Plain volumes are used by no pod.
	Hooked, Plain int
	// backups is about how long two backups take.
	backups time.Duration
}

// Full is the size that the results are told of. Small is for continuous integration: the same things happen, to fewer pods and volumes.
var (
	Full  = Size{Hooked: 5, Plain: 30, backups: 14 * time.Second}
	Small = Size{Hooked: 3, Plain: 8, backups: 7 * time.Second}
)

// hooked and all count pods with hooks and snapshots in both backups.
func (s Size) hooked() int { return s.Hooked * len(namespaces) }
func (s Size) all() int    { return (s.Hooked + s.Plain) * len(namespaces) }

// namespaces of the workload; each has a backup of its own, and both run at the same time.
var namespaces = []string{"chaos-a", "chaos-b"}

// populate makes the workload.
func (l *Lab) populate(ctx context.Context) error {
	if err := l.cluster.CreateNamespaces(ctx, append([]string{leakNamespace}, namespaces...)...); err != nil {
		return err
	}
	for _, namespace := range namespaces {
		if err := l.fill(ctx, namespace, l.opts.Size.Hooked, l.opts.Size.Plain); err != nil {
			return err
		}
	}
	return l.fill(ctx, leakNamespace, 1, 2)
}

// fill makes hooked pods with a volume each, and volumes that no pod uses.
func (l *Lab) fill(ctx context.Context, namespace string, pods, plain int) error {
	var volumes []cluster.Volume
	var hooked []cluster.Pod
	for i := range pods {
		name := fmt.Sprintf("db-%d", i)
		volumes = append(volumes, cluster.Volume{Namespace: namespace, Name: name, Driver: driverName})
		hooked = append(hooked, cluster.Pod{
			Namespace: namespace, Name: name, Claims: []string{name},
			Annotations: map[string]string{
				"pre.hook.backup.velero.io/command":  fmt.Sprintf("[%q]", freezeCommand),
				"post.hook.backup.velero.io/command": fmt.Sprintf("[%q]", thawCommand),
			},
		})
	}
	for i := range plain {
		volumes = append(volumes, cluster.Volume{Namespace: namespace, Name: fmt.Sprintf("plain-%d", i), Driver: driverName})
	}
	if err := l.cluster.CreateVolumes(ctx, volumes...); err != nil {
		return err
	}
	return l.cluster.CreatePods(ctx, hooked...)
}
