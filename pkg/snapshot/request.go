// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Priority says who is served first when not everything may be in flight at once.
type Priority int

const (
	// Batch is for volumes nobody is stopped for.
	Batch Priority = iota
	// Frozen is for volumes whose application is frozen until they are cut. Frozen requests are always served before
	// Batch requests, whichever owner they belong to.
	Frozen
)

// Owner is on whose behalf a snapshot is taken. Its name and UID are put on the VolumeSnapshot as labels from the moment
// it is created, so that whoever finds the object later knows where it belongs (DESIGN.md section 6).
type Owner struct {
	// Name of the backup, unshortened; it is shortened for the label value.
	Name string
	// UID of the backup.
	UID types.UID
	// Namespace of the backup: that of the Velero installation. It is put on the VolumeSnapshot as an annotation, and only
	// that installation sweeps it. Without one nobody does.
	Namespace string
	// Limit on what this owner may have in flight at once; zero means no limit of its own. It can only lower the
	// limit of the Taker.
	Limit int
}

// Request asks for one snapshot of one PersistentVolumeClaim.
type Request struct {
	// Owner of the snapshot; required.
	Owner Owner
	// Namespace and name of the claim; required.
	Namespace, PVC string
	// PVCUID is the claim's UID; required. Together with the owner's UID it gives the VolumeSnapshot its name, so that
	// asking again finds the first one instead of making a second.
	PVCUID types.UID
	// Driver is the CSI driver of the volume, as in pv.spec.csi.driver; required.
	Driver string
	// Class is the VolumeSnapshotClass to use; required.
	Class string
	// Group, if not nil, has the snapshot taken as a member of a group.
	Group *Group
	// StorageClass of the claim; for error rules and messages only.
	StorageClass string
	// Labels and Annotations for the VolumeSnapshot, beside those that the Taker adds itself.
	Labels, Annotations map[string]string
	// Timeout counts from the creation of the VolumeSnapshot to its cut. Time spent in the queue doesn't count.
	// Required, positive.
	Timeout time.Duration
	// Priority decides who is served first; the default is Batch.
	Priority Priority
}

// Phase is how far a snapshot has come.
type Phase string

const (
	// Queued: not created yet, waiting for its turn.
	Queued Phase = "Queued"
	// Cutting: the VolumeSnapshot is created, its point in time isn't fixed yet.
	Cutting Phase = "Cutting"
	// Cut: the point in time is fixed (status.snapshotHandle is set); the application may go on.
	Cut Phase = "Cut"
	// Failed: it will not be cut; Outcome.Reason and Outcome.Message say why.
	Failed Phase = "Failed"
)

// Reason is the machine-readable cause of a failure, in CamelCase.
type Reason string

const (
	// ReasonTimedOut: the snapshot wasn't cut within its own timeout.
	ReasonTimedOut Reason = "TimedOut"
	// ReasonNoProgress: the driver cut nothing at all for as long as the timeout, so everything asked of it was given up.
	ReasonNoProgress Reason = "NoProgress"
	// ReasonTerminalError: the driver or a controller reported an error that cannot heal.
	ReasonTerminalError Reason = "TerminalError"
	// ReasonCreateRefused: the API refused the VolumeSnapshot for good (Forbidden, Invalid, missing CRD).
	ReasonCreateRefused Reason = "CreateRefused"
	// ReasonDeleted: somebody else deleted the VolumeSnapshot, or its content, before it was cut.
	ReasonDeleted Reason = "Deleted"
	// ReasonAbandoned: the caller's context ended first.
	ReasonAbandoned Reason = "Abandoned"
)

// Outcome is what became of a Request.
type Outcome struct {
	// Phase is Cut or Failed.
	Phase Phase
	// Reason and Message say why, when Phase is Failed. Message is one sentence for people, with the driver's own words
	// where there are any.
	Reason  Reason
	Message string
	// VolumeSnapshot as last seen; its name is set as soon as creation was tried, nil before.
	VolumeSnapshot *snapshotv1.VolumeSnapshot
	// Content is the VolumeSnapshotContent as last seen, with everything its consumers need (spec, status); nil when it
	// was never seen. It is shared: callers must not change it.
	Content *snapshotv1.VolumeSnapshotContent
	// Lost says, in a sentence, that a snapshot that was cut is being lost: somebody deletes an object of it, and the
	// physical snapshot goes along. Empty otherwise. It can come after Decided.
	Lost string
	// Queued, Created and Decided are when the request was taken in, when its VolumeSnapshot was created (zero when it
	// never was) and when the outcome was known.
	Queued, Created, Decided time.Time
}

// Err returns nil for a cut snapshot and otherwise an error that carries reason and message.
func (o Outcome) Err() error {
	if o.Phase == Cut {
		return nil
	}
	return &Error{Reason: o.Reason, Message: o.Message}
}

// Error is the failure of one snapshot.
type Error struct {
	Reason  Reason
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }
