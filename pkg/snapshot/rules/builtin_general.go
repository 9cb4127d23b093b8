// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

const (
	specification = "CSI specification, CreateSnapshot errors"
	snapshotter   = "external-snapshotter"
)

// textRules are about words that mean the same with any driver. Those that wait come first.
func textRules() []Rule {
	return append(patientTextRules(), controllerRules()...)
}

// guardRules are about what no storage decides: they hold even where a driver's rule would give up.
func guardRules() []Rule {
	return []Rule{
		{
			// Never an argument that is wrong: "invalid throttle" isn't a rate limit.
			Name: "rate-limit",
			Codes: []string{
				unavailable, resourceExhausted, permissionDenied, unauthenticated, internal, unknown, aborted, failedPrecondition, outOfRange,
			},
			Pattern: `\btoo many requests\b|TooManyRequests|(\b|_)rate[ _]limit|\brate-limited\b|RateLimit(ed|Exceeded|ing)` +
				`|(\b|_)rate[ _]exceeded|RateExceeded|RequestLimitExceeded|\bthrottl(ed|ing)\b|ThrottlingException` +
				`|\b(http|status|statuscode|code)\W{1,4}429\b`,
			Verdict: throttled, Reason: "the storage refuses requests that come too fast",
			Source: "aws-ebs-csi-driver#1608, azuredisk-csi-driver#773, gcp-compute-persistent-disk-csi-driver#1847",
		},
		{
			Name: "connection-lost",
			Pattern: `unexpected HTTP status code received from server|transport is closing|connection refused|connection reset by peer` +
				`|\bi/o timeout\b|context deadline exceeded|TLS handshake timeout|no route to host`,
			Verdict: retryable, Reason: "a connection on the way to the storage is down", Source: "gRPC and Go network errors",
		},
	}
}

func patientTextRules() []Rule {
	return []Rule{
		{
			Name: "operation-in-progress", Codes: []string{aborted, alreadyExists, failedPrecondition},
			Pattern: `\boperation\b.*\b(already exists|pending)\b|\bin progress\b`,
			Verdict: retryable, Reason: "another operation on this volume is running", Source: specification,
		},
		{
			Name:    "asked-to-try-again",
			Pattern: `\b(re)?try( \w+)? (again|later)\b|\bplease (re)?try\b|\btemporar(y|ily) (unavailable|failure|error)\b`,
			Verdict: retryable, Reason: "the driver asks to try again", Source: "the driver's own words",
		},
		{
			Name: "credentials-expired", Codes: []string{permissionDenied, unauthenticated},
			Pattern: `\b(token|session|credentials?)\b.{0,60}\bexpired\b|\bexpired\b.{0,60}\b(token|session|credentials?)\b|ExpiredToken`,
			Verdict: retryable, Reason: "a credential has run out; drivers renew theirs", Source: "the driver's own words",
		},
	}
}

// controllerRules are about errors of the snapshot-controller and the sidecar themselves, in which no driver had a part.
func controllerRules() []Rule {
	none := []string{noCode}
	return []Rule{
		{
			Name: "claim-not-bound", Codes: none, Pattern: `the PVC \S+ is not yet bound to a PV`,
			Verdict: terminal, After: lag, Reason: "the claim is not bound to a volume", Source: "velero#7832",
		},
		{
			Name: "no-default-class", Codes: none, Pattern: `cannot find default snapshot class|\d+ default snapshot classes were found`,
			Verdict: terminal, After: lag, Source: snapshotter,
			Reason: "the driver has no default VolumeSnapshotClass, or several; name one in the backup",
		},
		{
			Name: "class-not-found", Codes: none, Pattern: `Failed to get snapshot class with error .*not found`,
			Verdict: terminal, After: lag, Reason: "the VolumeSnapshotClass does not exist", Source: snapshotter,
		},
		{
			Name: "claim-not-found", Codes: none, Pattern: `failed to retrieve PVC \S+ from the lister: .*not found`,
			Verdict: terminal, After: lag, Reason: "the claim was deleted", Source: snapshotter,
		},
		{
			Name: "not-csi", Codes: none, Source: snapshotter,
			Pattern: `cannot find CSI PersistentVolumeSource for volume|snapshotting non-CSI volumes is not supported`,
			Verdict: terminal, Reason: "the volume is not a CSI volume",
		},
		{
			Name: "claim-not-matching", Codes: none, Pattern: `claim in dataSource not bound or invalid`,
			Verdict: terminal, After: lag, Reason: "claim and volume do not point at each other", Source: snapshotter,
		},
		{
			Name: "claim-being-deleted", Codes: none, Pattern: `cannot add finalizer on claim\b.* because it is being deleted`,
			Verdict: terminal, Reason: "the claim is being deleted", Source: "external-snapshotter#349",
		},
		{
			Name: "snapshot-secret-or-class-missing", Codes: none, Source: snapshotter,
			Pattern: `failed to get input parameters to create snapshot .*(error getting secret|volumesnapshotclass\S*) .*not found` +
				`|failed to get snapshot class \S+ for snapshot content \S+: .*not found`,
			Verdict: terminal, After: lag, Reason: "the VolumeSnapshotClass, or the secret that it names, does not exist",
		},
		{
			Name: "snapshot-gone-in-storage", Codes: none, Pattern: `can not find snapshot for snapshotID`,
			Verdict: terminal, After: lag, Reason: "the storage no longer has this snapshot", Source: "velero#6535",
		},
		{
			// After the claim that is being deleted, which is worded as a failed update too.
			Name: "write-conflict", Codes: []string{noCode},
			Pattern: `snapshot controller failed to update .* on API server|the object has been modified`,
			Verdict: retryable, Reason: "two writes met; the next one settles it", Source: "external-snapshotter#300",
		},
	}
}

// codeRules are what the CSI specification says when nothing is known about the words. Internal, Unknown, NotFound,
// FailedPrecondition and the rest are missing on purpose: drivers use them for what heals too.
func codeRules() []Rule {
	return []Rule{
		{
			Name: "code-deadline-exceeded", Codes: []string{deadlineExceeded}, Verdict: retryable, Source: specification + "; longhorn#3167",
			Reason: "the driver needs longer than one call may take; external-snapshotter asks again for the same snapshot",
		},
		{
			Name: "code-unavailable", Codes: []string{unavailable}, Verdict: retryable, Source: specification,
			Reason: "the driver is restarting or out of reach",
		},
		{
			Name: "code-canceled", Codes: []string{canceled}, Verdict: retryable, Source: specification,
			Reason: "the sidecar or the driver was shutting down",
		},
		{
			Name: "code-aborted", Codes: []string{aborted}, Verdict: retryable, Source: specification,
			Reason: "another operation on this volume or snapshot is pending",
		},
		{
			Name: "code-resource-exhausted", Codes: []string{resourceExhausted}, Verdict: throttled, Source: specification,
			Reason: "the storage has run out of something, which may be requests or space",
		},
		{
			Name: "code-unimplemented", Codes: []string{unimplemented}, Verdict: terminal, Source: specification,
			Reason: "the driver cannot take snapshots of this volume",
		},
		{
			Name: "code-invalid-argument", Codes: []string{invalidArgument}, Verdict: terminal, Source: specification,
			Reason: "the driver refuses the request as it is; look at the VolumeSnapshotClass and the volume",
		},
		{
			Name: "code-already-exists", Codes: []string{alreadyExists}, Verdict: terminal, Source: specification,
			Reason: "the storage has a snapshot of this name that belongs to another volume",
		},
		{
			Name: "code-permission-denied", Codes: []string{permissionDenied}, Verdict: terminal, Source: specification,
			Reason: "the driver's account may not take this snapshot; an administrator must grant it",
		},
		{
			Name: "code-unauthenticated", Codes: []string{unauthenticated}, Verdict: terminal, Source: specification,
			Reason: "the driver's credentials are not valid; an administrator must replace them",
		},
	}
}
