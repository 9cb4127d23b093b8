// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

// location is what the server under test finds.
func (o Options) location() *velerov1.BackupStorageLocation {
	return &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Location},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: "aws", Default: true, AccessMode: velerov1.BackupStorageLocationAccessModeReadWrite,
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{
				Bucket: o.Store.Bucket, Prefix: o.Store.Prefix,
			}},
			Config: map[string]string{"region": "lab", "s3ForcePathStyle": "true", "s3Url": o.Store.URL},
		},
	}
}

// prepareLocation creates the location or, for a server that is started again, takes the time of
// the last validation away: a new one is due at once then, and can be told from the old
// one although the time has only whole seconds. The phase is left as it was.
func (o Options) prepareLocation(ctx context.Context) error {
	location := o.location()
	err := o.Client.Create(ctx, location)
	if apierrors.IsAlreadyExists(err) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"lastValidationTime":null}}`))
		err = o.Client.Patch(ctx, location, patch)
	}
	if err != nil {
		return fmt.Errorf("preparing storage location %s/%s: %w", o.Namespace, o.Location, err)
	}
	return nil
}

// awaitLocation returns nil when a server has found the location available.
func (o Options) awaitLocation(ctx context.Context) error {
	var last velerov1.BackupStorageLocationStatus
	err := cluster.Await(ctx, o.Client, &velerov1.BackupStorageLocationList{}, func(event watch.Event) (bool, error) {
		location, ok := event.Object.(*velerov1.BackupStorageLocation)
		if !ok || location.Name != o.Location {
			return false, nil
		}
		last = location.Status
		return last.LastValidationTime != nil && last.Phase == velerov1.BackupStorageLocationPhaseAvailable, nil
	}, client.InNamespace(o.Namespace))
	if err != nil && last.LastValidationTime != nil {
		err = fmt.Errorf("storage location %s is %s: %s: %w", o.Location, last.Phase, last.Message, err)
	}
	return err
}
