// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

const (
	// driverName is the CSI driver of the lab, its StorageClass and its VolumeSnapshotClass.
	driverName = "lab.csi.clipper.dev"
	// hookedPods and plainVolumes are those of each of the two namespaces.
	hookedPods   = 5
	plainVolumes = 30
	// leakNamespace holds the small workload of the leak test.
	leakNamespace = "leaks"
)

// namespaces of the workload; each has a backup of its own, and both run at the same time.
var namespaces = []string{"chaos-a", "chaos-b"}

// populate makes the workload.
func (l *Lab) populate(ctx context.Context) error {
	if err := l.cluster.CreateNamespaces(ctx, append([]string{leakNamespace}, namespaces...)...); err != nil {
		return err
	}
	for _, namespace := range namespaces {
		if err := l.fill(ctx, namespace, hookedPods, plainVolumes); err != nil {
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
