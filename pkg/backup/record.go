// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"

	"github.com/sirupsen/logrus"

	"github.com/velero-clipper/clipper/pkg/hook"
)

// FreezeRecord keeps the pods that a backup has frozen beyond the life of the process; freezerecord.Record is one.
type FreezeRecord interface {
	hook.Recorder
	// Close ends it, whether or not ctx has ended.
	Close(ctx context.Context, log logrus.FieldLogger)
}

func (r *run) openRecord() hook.Recorder {
	if r.deps.OpenRecord == nil {
		return nil
	}
	r.record = r.deps.OpenRecord(r.backup)
	return r.record
}

// closeRecord ends the record when all pods are thawed, or not. It comes before the backup's last phase: what is recorded as frozen
// by a backup that is over is somebody's to thaw.
func (r *run) closeRecord(ctx context.Context) {
	if r.record != nil {
		r.record.Close(ctx, r.log)
	}
}
