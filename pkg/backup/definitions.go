// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"

	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
)

// definitions backs up the CRDs of the resource types that are in the backup, unless the filters speak of CRDs
// themselves (336 to 339).
func (r *run) definitions(ctx context.Context) error {
	crds := kuberesource.CustomResourceDefinitions
	if r.filter.IncludesResource(crds) || r.filter.ExcludesResource(crds) {
		return nil
	}
	fetcher := collect.Fetcher{Discovery: r.deps.Discovery, Dynamic: r.deps.Dynamic}
	block := &itemblock.Block{}
	for _, gr := range r.visits.backedUpTypes() {
		if gr.Group == "" { // a CRD's name has a group in it
			continue
		}
		item, err := fetcher.Fetch(ctx, velero.ResourceIdentifier{GroupResource: crds, Name: gr.String()})
		switch {
		case apierrors.IsNotFound(err): // a built-in type
		case err != nil:
			r.log.WithError(err).WithField("resource", gr.String()).Error("The definition of a backed-up resource type can't be read")
		default:
			block.Items = append(block.Items, *item)
		}
	}
	if len(block.Items) > 0 {
		if err := r.worker(ctx, func() { r.walk(ctx, block) }); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}
