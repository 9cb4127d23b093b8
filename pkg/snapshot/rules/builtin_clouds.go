// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

// cloudFamilies are the drivers of clouds. Codes stand where they tell a final error from another one with like words; what
// waits needs none, since waiting does no harm.
func cloudFamilies() []family {
	return []family{
		{drivers: []string{"ebs.csi.aws.com"}, rules: ebsRules()},
		{drivers: []string{"disk.csi.azure.com"}, rules: azureDiskRules()},
		{drivers: []string{"file.csi.azure.com"}, rules: azureFileRules()},
		{drivers: []string{"pd.csi.storage.gke.io"}, rules: gcpDiskRules()},
		{drivers: []string{"cinder.csi.openstack.org"}, rules: cinderRules()},
		{drivers: []string{"manila.csi.openstack.org", "*.manila.csi.openstack.org"}, rules: manilaRules()},
		{drivers: []string{"dobs.csi.digitalocean.com"}, rules: digitalOceanRules()},
		{drivers: []string{"blockvolume.csi.oraclecloud.com"}, rules: []Rule{{
			Name: "oci-backup-slow", Pattern: `Timed out waiting for backup to become available`,
			Verdict: retryable, Reason: "the storage needs longer than the driver waits", Source: "oci-cloud-controller-manager#491",
		}}},
		{drivers: []string{"vpc.block.csi.ibm.io"}, rules: []Rule{{
			Name: "ibm-vpc-not-authorized", Codes: []string{internal}, Pattern: `SnapshotSpaceOrderFailed.*not authorized`,
			Verdict: terminal, Reason: "the driver's account may not order snapshot space", Source: "external-snapshotter#779",
		}}},
		{drivers: []string{"diskplugin.csi.alibabacloud.com"}, rules: []Rule{{
			Name: "alibaba-snapshot-object-gone", Codes: []string{internal}, Pattern: `failed to get VolumeSnapshot: .*not found`,
			Verdict: terminal, After: lag, Reason: "the VolumeSnapshot that the driver looks for was deleted", Source: "alibaba-cloud-csi-driver#1007",
		}}},
		{drivers: []string{"bsu.csi.outscale.com"}, rules: []Rule{{
			Name: "outscale-quota", Codes: []string{internal, resourceExhausted}, Pattern: `QuotaExceed?ed|\bquota (is |was |has been )?(reached|exceeded)`,
			Verdict: terminal, Reason: "the account's snapshot quota is used up", Source: "osc-bsu-csi-driver#923",
		}}},
	}
}

func ebsRules() []Rule {
	return []Rule{
		// Limits of one volume say nothing about others: the next try may come in time, and asking less of the driver would only
		// hold up the other volumes.
		{
			Name: "ebs-volume-rate", Pattern: `SnapshotCreationPerVolumeRateExceeded`,
			Verdict: retryable, Reason: "snapshots of one EBS volume must be some 15 s apart", Source: "velero#10483, aws-ebs-csi-driver#1608",
		},
		{
			Name: "ebs-pending-snapshots", Pattern: `ConcurrentSnapshotLimitExceeded`,
			Verdict: retryable, Reason: "too many snapshots of this EBS volume are pending", Source: "AWS knowledge center, ebs-snapshot-stuck",
		},
		{
			Name: "ebs-api-rate", Pattern: `RequestLimitExceeded|ThrottlingException|\bThrottling\b`,
			Verdict: throttled, Reason: "AWS throttles the account's API requests", Source: "aws-ebs-csi-driver, CreateSnapshot",
		},
		{
			Name: "ebs-operation-in-progress", Pattern: `An operation with the given Volume \S+ already exists`,
			Verdict: retryable, Reason: "another operation on this volume is running", Source: "aws-ebs-csi-driver, inflight.go",
		},
		{
			Name: "ebs-snapshot-quota", Codes: []string{resourceExhausted}, Pattern: `\bSnapshotLimitExceeded\b`,
			Verdict: terminal, Source: "aws-ebs-csi-driver, isAwsErrorSnapshotLimitExceeded",
			Reason: "the account's quota of EBS snapshots is used up; delete some or have it raised",
		},
		{
			Name: "ebs-not-authorized", Codes: []string{internal}, Pattern: `\bUnauthorizedOperation\b|\bnot authorized to perform\b`,
			Verdict: terminal, Reason: "the driver's IAM role may not do this", Source: "EC2 API error codes",
		},
		{
			Name: "ebs-volume-gone", Codes: []string{internal}, Pattern: `\bInvalidVolume\.NotFound\b`,
			Verdict: terminal, Reason: "the EBS volume was deleted outside Kubernetes", Source: "velero#225",
		},
		{
			Name: "ebs-class-parameter", Codes: []string{invalidArgument}, Source: "aws-ebs-csi-driver, CreateSnapshot",
			Pattern: `Invalid parameter key .* for CreateSnapshot|Invalid tag value|Error interpolating tag|is not a valid arn|Could not parse SnapshotLock`,
			Verdict: terminal, Reason: "a parameter of the VolumeSnapshotClass is wrong",
		},
		{
			Name: "ebs-node-local-volume", Codes: []string{invalidArgument}, Pattern: `node-local volumes cannot be snapshotted`,
			Verdict: terminal, Reason: "this kind of volume has no snapshots", Source: "aws-ebs-csi-driver, validateCreateSnapshotRequest",
		},
		{
			Name: "ebs-other-volume", Codes: []string{alreadyExists}, Pattern: `already exists for different volume`,
			Verdict: terminal, Reason: "the name belongs to a snapshot of another volume", Source: "aws-ebs-csi-driver, CreateSnapshot",
		},
		{
			Name: "ebs-fast-restore-zone", Codes: []string{invalidArgument}, Pattern: `Availability zone .* is not supported for fast snapshot restore`,
			Verdict: terminal, Reason: "a parameter of the VolumeSnapshotClass names a zone without fast restore", Source: "aws-ebs-csi-driver, CreateSnapshot",
		},
		{
			Name: "ebs-follow-up-failed", Codes: []string{internal}, Pattern: `Failed to create Fast Snapshot Restores|Failed to lock snapshot`,
			Verdict: terminal, Source: "aws-ebs-csi-driver#1608",
			Reason: "the snapshot was cut, and deleted since fast restore or the lock failed; each new try cuts another one",
		},
	}
}

func azureDiskRules() []Rule {
	const source = "azuredisk-csi-driver, controllerserver.go"
	return []Rule{
		{
			Name: "azuredisk-rate", Pattern: `create snapshot error:.*(TooManyRequests|client throttled|\b429\b)`,
			Verdict: throttled, Reason: "Azure throttles the subscription's requests", Source: "azuredisk-csi-driver#773",
		},
		{
			Name: "azuredisk-not-ready-in-time", Pattern: `waitForSnapshotReady\(.*failed with`,
			Verdict: retryable, Reason: "the snapshot goes on in Azure while the driver has stopped waiting", Source: source,
		},
		{
			Name: "azuredisk-operation-in-progress", Pattern: `An operation with the given Volume ID \S+ already exists`,
			Verdict: retryable, Reason: "another operation on this volume is running", Source: "azuredisk-csi-driver, nodeserver.go",
		},
		{
			Name: "azuredisk-other-volume", Codes: []string{alreadyExists}, Pattern: `already exists, but the SourceVolumeId is different`,
			Verdict: terminal, Reason: "the name belongs to a snapshot of another volume", Source: source,
		},
		{
			Name: "azuredisk-class-option", Codes: []string{internal}, Pattern: `invalid option .* in VolumeSnapshotClass`,
			Verdict: terminal, Reason: "a parameter of the VolumeSnapshotClass is wrong", Source: source,
		},
		{
			Name: "azuredisk-class-value", Codes: []string{invalidArgument}, Source: source,
			Pattern: `cross region with incremental is false|must be between 60 and 300 minutes|could not get resource group from diskURI`,
			Verdict: terminal, Reason: "a parameter of the VolumeSnapshotClass does not fit this disk",
		},
		{
			Name: "azuredisk-not-authorized", Codes: []string{internal}, Source: "velero#9675",
			Pattern: `create snapshot error:.*(AuthorizationFailed|does not have authorization)`,
			Verdict: terminal, Reason: "the driver's identity lacks a role",
		},
	}
}

func azureFileRules() []Rule {
	return []Rule{
		{
			Name: "azurefile-rate", Pattern: `TooManyRequests|Read_ObservationWindow`,
			Verdict: throttled, Reason: "Azure throttles the subscription's storage requests", Source: "azurefile-csi-driver#2569, velero#7393",
		},
		{
			Name: "azurefile-share-snapshots", Codes: []string{internal, resourceExhausted}, Pattern: `\bShareSnapshotCountExceeded\b`,
			Verdict: terminal, Reason: "the share has as many snapshots as Azure allows (200); delete some", Source: "Azure/AKS#4394",
		},
		{
			Name: "azurefile-class-parameter", Codes: []string{invalidArgument}, Pattern: `invalid parameter .* in storage class`,
			Verdict: terminal, Reason: "a parameter of the class is wrong", Source: "azurefile-csi-driver, controllerserver.go",
		},
	}
}

func gcpDiskRules() []Rule {
	const source = "gcp-compute-persistent-disk-csi-driver, createPDSnapshot"
	return []Rule{
		{
			Name: "gcp-disk-rate", Pattern: `RESOURCE_OPERATION_RATE_EXCEEDED|Operation rate exceeded for resource`,
			Verdict: retryable, Reason: "snapshots of one disk come too fast", Source: "gcp-compute-persistent-disk-csi-driver#1847",
		},
		{
			// Google's APIs answer 403 for some rate limits.
			Name: "gcp-api-rate", Pattern: `Failed to (create|get) snapshot: .*\b429\b|(user)?RateLimitExceeded|Quota exceeded for quota metric`,
			Verdict: throttled, Reason: "the project's API requests per minute are used up", Source: "gcp-compute-persistent-disk-csi-driver, userErrorCodeMap",
		},
		{
			Name: "gcp-org-policy", Codes: []string{failedPrecondition}, Pattern: `Violates GCP org policy`,
			Verdict: terminal, Reason: "a policy of the organisation forbids it, such as the location", Source: source,
		},
		{
			Name: "gcp-disk-gone", Codes: []string{notFound}, Pattern: `CreateSnapshot could not find disk|Could not find volume with ID`,
			Verdict: terminal, Reason: "the disk was deleted outside Kubernetes", Source: source,
		},
		{
			Name: "gcp-unsupported", Codes: []string{invalidArgument}, Source: source,
			Pattern: `not supported with the multi-zone PV volumeHandle|Cannot create backup type .* for regional disk|Invalid snapshot (type|parameters)`,
			Verdict: terminal, Reason: "the volume or a parameter of the VolumeSnapshotClass is not supported",
		},
		{
			Name: "gcp-snapshot-failed", Codes: []string{internal}, Pattern: `\bsnapshot\b.* status is FAILED`,
			Verdict: terminal, Reason: "the snapshot failed in Google Cloud, and each new try finds it under the same name", Source: source,
		},
		{
			Name: "gcp-forbidden", Codes: []string{permissionDenied}, Pattern: `\b403\b|forbidden|permission`,
			Verdict: terminal, Reason: "the driver's service account may not do this, or a quota of the project is used up", Source: source,
		},
	}
}

func cinderRules() []Rule {
	const source = "cloud-provider-openstack, cinder controllerserver.go"
	return []Rule{
		{
			Name: "cinder-in-use", Codes: []string{internal}, Pattern: `status must be available, but current status is: in-use`,
			Verdict: terminal, Source: "cloud-provider-openstack#1812",
			Reason: "the volume is attached; the VolumeSnapshotClass needs the parameter force-create",
		},
		{
			Name: "cinder-duplicates", Codes: []string{internal}, Pattern: `Multiple (snapshots|backups) reported by Cinder with same name`,
			Verdict: terminal, Reason: "Cinder has several snapshots of this name", Source: source,
		},
		{
			Name: "cinder-no-backups", Codes: []string{failedPrecondition}, Pattern: `Backups are not enabled in Cinder`,
			Verdict: terminal, Reason: "the VolumeSnapshotClass asks for backups, which Cinder has switched off", Source: source,
		},
	}
}

func manilaRules() []Rule {
	const source = "cloud-provider-openstack, manila controllerserver.go"
	return []Rule{
		{
			Name: "manila-slow", Codes: []string{deadlineExceeded}, Pattern: `deadline exceeded while waiting for snapshot`,
			Verdict: retryable, Reason: "the share needs longer than the driver waits", Source: source,
		},
		{
			Name: "manila-error-state", Codes: []string{internal}, Pattern: `is in error state|unexpected state: wanted creating/available`,
			Verdict: terminal, Reason: "the snapshot failed in Manila", Source: source,
		},
	}
}

func digitalOceanRules() []Rule {
	return []Rule{
		{
			Name: "digitalocean-rate", Pattern: `\b429\b.*rate-limited`,
			Verdict: retryable, Reason: "DigitalOcean takes one snapshot of a volume in ten minutes", Source: "csi-digitalocean#370, velero#6164",
		},
		{
			Name: "digitalocean-too-many", Codes: []string{internal}, Pattern: `too many snapshots for requested volume`,
			Verdict: terminal, Reason: "the volume has as many snapshots as DigitalOcean allows; delete some", Source: "digitalocean/velero-plugin#11",
		},
	}
}
