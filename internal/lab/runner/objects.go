// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// createManifest creates an object as a scenario has it. A VolumeSnapshot that is made this way is a user's: it counts neither as
// one of a backup nor as left over.
func (r *run) createManifest(ctx context.Context, manifest scenario.Manifest) error {
	// By way of JSON, which has the number types that unstructured objects are made of.
	data, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("reading a manifest: %w", err)
	}
	if data, err = r.fillIn(data); err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		return fmt.Errorf("reading a manifest: %w", err)
	}
	name := strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
	if err := r.lab.cluster.Client().Create(ctx, object); err != nil {
		return fmt.Errorf("creating %s %s: %w", object.GetKind(), name, err)
	}
	r.board.update(func(rec *recording) { rec.foreign[object.GetUID()] = true })
	r.note(result.KindScenario, name, "%s created", object.GetKind())
	return nil
}

// snapshotOf stands in a manifest for the name of the newest VolumeSnapshot of a claim.
var snapshotOf = regexp.MustCompile(`\{snapshot of ([^}]+)\}`)

// fillIn replaces what only a running experiment knows.
func (r *run) fillIn(manifest []byte) ([]byte, error) {
	var missing error
	filled := snapshotOf.ReplaceAllFunc(manifest, func(found []byte) []byte {
		claim := string(snapshotOf.FindSubmatch(found)[1])
		var newest *snapshotRecord
		r.board.view(func(rec *recording) {
			for _, s := range rec.snapshots {
				if s.namespace+"/"+s.pvc == claim && !rec.notOfBackups(s.uid) && (newest == nil || newest.created.Before(s.created)) {
					newest = s
				}
			}
		})
		if newest == nil {
			missing = fmt.Errorf("there never was a VolumeSnapshot of claim %s", claim)
			return found
		}
		return []byte(newest.name)
	})
	return filled, missing
}

// patchObject changes an object by a merge patch.
func (r *run) patchObject(ctx context.Context, patch scenario.Patch) error {
	object, err := objectOfKind(patch.Kind)
	if err != nil {
		return err
	}
	object.SetNamespace(patch.Namespace)
	object.SetName(patch.Name)
	data, err := json.Marshal(patch.Merge)
	if err != nil {
		return fmt.Errorf("reading a patch: %w", err)
	}
	name := strings.TrimPrefix(patch.Namespace+"/"+patch.Name, "/")
	r.note(result.KindScenario, name, "%s patched", patch.Kind)
	if err := r.lab.cluster.Client().Patch(ctx, object, client.RawPatch(types.MergePatchType, data)); err != nil {
		return fmt.Errorf("patching %s %s: %w", patch.Kind, name, err)
	}
	return nil
}
