// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// callTimeout bounds one API request, so that a connection that hangs is noticed.
	callTimeout = 30 * time.Second
	// firstRetry and lastRetry bound the pause after a transient API error; it doubles in between.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// AnnInstallation is the annotation of a VolumeSnapshot that says which Velero installation made it, by its namespace. Several
// installations in one cluster must not take each other's snapshots for leftovers. An existing VolumeSnapshot without it is
// taken over all the same; it is only never swept.
const AnnInstallation = "velero.io/backup-namespace"

// AnnStorageClass is the annotation of a VolumeSnapshot that says which StorageClass its claim had, for the error rules: what is
// seen of a snapshot later says only which claim it was, and that may be gone.
const AnnStorageClass = "velero.io/claim-storage-class"

// AnnDataMover is the annotation of a VolumeSnapshot whose data is moved elsewhere; its value is the data mover. Such a snapshot is
// in no backup, whatever its backup's state: the data mover removes it when it has the data.
const AnnDataMover = "velero.io/data-mover"

// Name is the name of the VolumeSnapshot that is taken for an owner of a PVC: "velero-" and 128 bits, in hexadecimal, of
// the SHA-256 of both UIDs. It is the same each time, so that asking again finds the first snapshot, and short enough for
// a label value.
func Name(owner, pvc types.UID) string {
	sum := sha256.Sum256([]byte(string(owner) + "/" + string(pvc)))
	return "velero-" + hex.EncodeToString(sum[:16])
}

// validate says what a request lacks.
func validate(r Request) error {
	missing := map[string]bool{
		"Owner.Name": r.Owner.Name == "", "Owner.UID": r.Owner.UID == "", "Namespace": r.Namespace == "", "PVC": r.PVC == "",
		"PVCUID": r.PVCUID == "", "Driver": r.Driver == "", "Class": r.Class == "", "Timeout": r.Timeout <= 0,
	}
	var errs []error
	for _, field := range []string{"Owner.Name", "Owner.UID", "Namespace", "PVC", "PVCUID", "Driver", "Class", "Timeout"} {
		if missing[field] {
			errs = append(errs, fmt.Errorf("%s is missing", field))
		}
	}
	if g := r.Group; g != nil && (g.LabelKey == "" || g.Name == "" || g.Version == "" || g.Class == "" || g.VolumeHandle == "") {
		errs = append(errs, errors.New("Group is incomplete"))
	}
	return errors.Join(errs...)
}

// desired is the VolumeSnapshot that a request asks for.
func desired(r Request) *snapshotv1.VolumeSnapshot {
	labels := maps.Clone(r.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[velerov1.BackupNameLabel] = label.GetValidName(r.Owner.Name)
	labels[velerov1.BackupUIDLabel] = string(r.Owner.UID)
	labels[velerov1.PVCUIDLabel] = string(r.PVCUID)
	annotations := maps.Clone(r.Annotations)
	for key, value := range map[string]string{AnnInstallation: r.Owner.Namespace, AnnStorageClass: r.StorageClass} {
		if value == "" {
			continue
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
	}
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   r.Namespace,
			Name:        Name(r.Owner.UID, r.PVCUID),
			Labels:      labels,
			Annotations: annotations,
		},
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To(r.PVC)},
			VolumeSnapshotClassName: ptr.To(r.Class),
		},
	}
}

// creation is the answer to one try to create a VolumeSnapshot.
type creation struct {
	// vs is the object as it is in the API; nil when err is set.
	vs  *snapshotv1.VolumeSnapshot
	err error
	// refused: trying again can't help, and this try made nothing. Without it an error leaves open whether the object
	// was created.
	refused bool
	// reason of a refusal; the default is ReasonCreateRefused.
	reason Reason
	// foreign: an object of that name exists that isn't ours.
	foreign bool
}

// create tries once. An object of the same name that was made for the same owner and PVC is taken over: it is ours, from a
// try whose answer was lost or from a server that ended.
func create(ctx context.Context, client Client, r Request) creation {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	want := desired(r)
	vs, err := client.VolumeSnapshots(r.Namespace).Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return adopt(ctx, client, want)
	}
	if err != nil {
		return failedCreation(want, err)
	}
	return creation{vs: vs}
}

func adopt(ctx context.Context, client Client, want *snapshotv1.VolumeSnapshot) creation {
	got, err := client.VolumeSnapshots(want.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// Deleted between the two requests: the next try creates it.
		return creation{err: fmt.Errorf("reading the existing VolumeSnapshot %s/%s: %w", want.Namespace, want.Name, err)}
	}
	if err != nil {
		return failedCreation(want, err)
	}
	if why := stranger(got, want); why != "" {
		return creation{refused: true, foreign: true, err: fmt.Errorf("a VolumeSnapshot %s/%s exists already and %s; delete it or wait for its end",
			want.Namespace, want.Name, why)}
	}
	return creation{vs: got}
}

// stranger says why an existing VolumeSnapshot can't be taken for the wanted one; empty when it can.
func stranger(got, want *snapshotv1.VolumeSnapshot) string {
	for _, key := range []string{velerov1.BackupUIDLabel, velerov1.PVCUIDLabel} {
		if got.Labels[key] != want.Labels[key] {
			return fmt.Sprintf("has %s=%q instead of %q", key, got.Labels[key], want.Labels[key])
		}
	}
	if source := ptr.Deref(got.Spec.Source.PersistentVolumeClaimName, ""); source != *want.Spec.Source.PersistentVolumeClaimName {
		return fmt.Sprintf("is of PVC %q instead of %q", source, *want.Spec.Source.PersistentVolumeClaimName)
	}
	if class := ptr.Deref(got.Spec.VolumeSnapshotClassName, ""); class != *want.Spec.VolumeSnapshotClassName {
		return fmt.Sprintf("has class %q instead of %q", class, *want.Spec.VolumeSnapshotClassName)
	}
	if got.DeletionTimestamp != nil {
		return "is being deleted"
	}
	return ""
}

func failedCreation(want *snapshotv1.VolumeSnapshot, err error) creation {
	if isTransient(err) {
		return creation{err: fmt.Errorf("creating VolumeSnapshot %s/%s: %w", want.Namespace, want.Name, err)}
	}
	if isMissingResource(err) {
		err = missingCRD(snapshotsResource, err)
	} else if apierrors.IsForbidden(err) {
		err = fmt.Errorf("the server may not create it (a missing permission, a quota or an admission policy): %w", err)
	}
	return creation{refused: true, err: fmt.Errorf("creating VolumeSnapshot %s/%s: %w", want.Namespace, want.Name, err)}
}

// isMissingResource tells a path that the API server doesn't serve from a named object that isn't there.
func isMissingResource(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}

// isTransient says whether an API error may heal by itself: an overloaded or restarting server, a conflict, and everything
// that isn't an answer of the API server at all, such as refused or lost connections and the client's own rate limiter.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err != nil
	}
	switch code := status.Status().Code; code {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusConflict:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}

// retryDelay is the pause before try number n+1, n counted from 1; the server's own wish comes first.
func retryDelay(n int, err error) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		return min(time.Duration(seconds)*time.Second, time.Minute)
	}
	delay := firstRetry
	for ; n > 1 && delay < lastRetry; n-- {
		delay *= 2
	}
	return min(delay, lastRetry)
}
