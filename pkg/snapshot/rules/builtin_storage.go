// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import "time"

// backupTargetGrace is how long an unreachable backup target may stay away: its driver looks again now and then.
const backupTargetGrace = 2 * time.Minute

// notYetGrace is how long a driver that says of a fresh volume that it isn't there is given to learn of it.
const notYetGrace = time.Minute

// storageFamilies are the drivers of storage systems.
func storageFamilies() []family {
	return []family{
		{drivers: []string{"rbd.csi.ceph.com", "*.rbd.csi.ceph.com"}, rules: rbdRules()},
		{drivers: []string{"cephfs.csi.ceph.com", "*.cephfs.csi.ceph.com"}, rules: cephfsRules()},
		{drivers: []string{"csi.vsphere.vmware.com"}, rules: vsphereRules()},
		{drivers: []string{"driver.longhorn.io"}, rules: longhornRules()},
		{drivers: []string{"csi.trident.netapp.io"}, rules: tridentRules()},
		{drivers: []string{"csi-powerstore.dellemc.com"}, rules: powerstoreRules()},
		{drivers: []string{"csi-powermax.dellemc.com"}, rules: []Rule{{
			Name: "powermax-quota", Codes: []string{internal}, Pattern: `csm-authorization: request denied: not enough quota`,
			Verdict: terminal, Reason: "the quota of CSM Authorization is used up", Source: "dell/csm#1628",
		}}},
		{drivers: []string{"pxd.portworx.com"}, rules: portworxRules()},
		{drivers: []string{"zfs.csi.openebs.io"}, rules: []Rule{{
			// The cause stands behind it, and may be an API server that was away.
			Name: "zfs-volume-gone", Codes: []string{notFound}, Pattern: `CreateSnapshot not able to get volume\b.*\bnot found`,
			Verdict: terminal, Reason: "the ZFSVolume does not exist", Source: "zfs-localpv, controller.go",
		}}},
		{drivers: []string{"local.csi.openebs.io"}, rules: lvmRules()},
		{drivers: []string{"io.openebs.csi-mayastor"}, rules: mayastorRules()},
		{drivers: []string{"linstor.csi.linbit.com"}, rules: []Rule{{
			Name: "linstor-unsupported", Codes: []string{internal}, Pattern: `Storage driver '.*' does not support snapshots`,
			Verdict: terminal, Reason: "the storage pool is of a kind that has no snapshots", Source: "linstor-server#369",
		}}},
		{drivers: []string{"spectrumscale.csi.ibm.com"}, rules: spectrumScaleRules()},
		{drivers: []string{"org.democratic-csi.*"}, rules: democraticRules()},
		{drivers: []string{"topolvm.io", "topolvm.cybozu.com"}, rules: []Rule{{
			Name: "topolvm-volume-gone", Codes: []string{notFound}, Pattern: `failed to find source volumes`,
			Verdict: terminal, Reason: "the LogicalVolume does not exist", Source: "topolvm, internal/driver/controller.go",
		}}},
		{drivers: []string{"hostpath.csi.k8s.io"}, rules: []Rule{{
			Name: "hostpath-other-volume", Codes: []string{alreadyExists}, Pattern: `same name: .* but with different SourceVolumeId`,
			Verdict: terminal, Reason: "the name belongs to a snapshot of another volume", Source: "csi-driver-host-path, controllerserver.go",
		}}},
	}
}

func cephLock(prefix string) Rule {
	return Rule{
		Name: prefix + "-operation-in-progress", Pattern: `an operation with the given (Volume|Snapshot) ID \S+ already exists`,
		Verdict: retryable, Reason: "an earlier call for this volume or snapshot still holds its lock", Source: "ceph-csi, idlocker.go; rook#6741",
	}
}

func cephSecret(prefix string) Rule {
	return Rule{
		Name: prefix + "-secret", Codes: []string{internal, invalidArgument}, Pattern: `missing (ID|key) field '.*' in secrets`,
		Verdict: terminal, Reason: "the VolumeSnapshotClass names the wrong secret", Source: "ceph-csi, credentials.go",
	}
}

func rbdRules() []Rule {
	const source = "ceph-csi, rbd controllerserver.go"
	return []Rule{
		{
			Name: "rbd-flattening-for-limit", Pattern: `rbd image .* has \d+ snapshots`,
			Verdict: retryable, Reason: "the image has many snapshots and is being flattened", Source: "ceph-csi#2469",
		},
		{
			Name: "rbd-flattening", Pattern: `flatten (is )?in progress`,
			Verdict: retryable, Reason: "the image is being flattened", Source: "ceph-csi#4973",
		},
		cephLock("rbd"),
		{
			Name: "rbd-image-gone", Codes: []string{notFound}, Pattern: `source Volume ID .* not found|pool not found`,
			Verdict: terminal, Reason: "the image or its pool does not exist", Source: source,
		},
		{
			Name: "rbd-no-layering", Codes: []string{invalidArgument}, Pattern: `has not snapshot feature\(layering\)`,
			Verdict: terminal, Reason: "the image was made without layering and has no snapshots", Source: source,
		},
		cephSecret("rbd"),
	}
}

func cephfsRules() []Rule {
	const source = "ceph-csi, cephfs controllerserver.go"
	return []Rule{
		cephLock("cephfs"),
		cephSecret("cephfs"),
		{
			Name: "cephfs-other-cluster", Codes: []string{invalidArgument}, Pattern: `requested cluster id .* not matching subvolume cluster id`,
			Verdict: terminal, Reason: "the VolumeSnapshotClass is of another Ceph cluster", Source: source,
		},
		{
			Name: "cephfs-snapshot-backed", Codes: []string{invalidArgument}, Pattern: `cannot snapshot a snapshot-backed volume`,
			Verdict: terminal, Reason: "the volume is itself the view of a snapshot", Source: source,
		},
	}
}

func vsphereRules() []Rule {
	const source = "vsphere-csi-driver, controller.go"
	return []Rule{
		{
			Name: "vsphere-supervisor-not-ready", Pattern: `volumesnapshot: .* in supervisor cluster was not Ready`,
			Verdict: retryable, Reason: "the supervisor cluster's snapshot is not ready yet", Source: "vsphere-csi-driver, wcpguest/controller.go",
		},
		{
			Name: "vsphere-snapshots-per-volume", Codes: []string{failedPrecondition}, Source: "velero#6620",
			Pattern: `reaches the configured maximum \(\d+\)|has reached or exceeded the configured maximum`,
			Verdict: terminal, Reason: "the volume has as many snapshots as vSphere is configured for; delete some, or raise global-max-snapshots-per-block-volume",
		},
		{
			Name: "vsphere-unsupported", Codes: []string{unimplemented}, Pattern: `cannot snapshot migrated vSphere volume|VC version does not support snapshot`,
			Verdict: terminal, Reason: "the volume was migrated from the in-tree driver, or vCenter is too old", Source: source,
		},
		{
			Name: "vsphere-file-volume", Codes: []string{failedPrecondition}, Pattern: `doesn't have the expected volume type`,
			Verdict: terminal, Reason: "file volumes have no snapshots in vSphere", Source: source,
		},
		{
			Name: "vsphere-partial-failure", Codes: []string{internal}, Pattern: `CnsSnapshotCreatedFault`,
			Verdict: terminal, Source: "vsphere-csi-driver#2720",
			Reason: "the snapshot was cut, its processing failed, and the driver refuses this name from now on",
		},
	}
}

func longhornRules() []Rule {
	const source = "longhorn-manager, csi/controller_server.go"
	return []Rule{
		{
			Name: "longhorn-detached", Pattern: `Action \[snapshotCR(Get|Create|List)\] not available on`,
			Verdict: retryable, Reason: "the volume is detached; it works again once it is attached", Source: "harvester#5841",
		},
		{
			Name: "longhorn-snapshot-slow", Pattern: `waitForSnapshotToBeReady: timeout`,
			Verdict: retryable, Reason: "the engine needs longer than the driver waits", Source: source,
		},
		{
			Name: "longhorn-backup-slow", Pattern: `waitForBackup(ControllerSync|Initiation): timeout`,
			Verdict: retryable, Reason: "the backup goes on while the driver has stopped waiting", Source: "longhorn#11429",
		},
		{
			Name: "longhorn-snapshot-count", Codes: []string{internal}, Pattern: `snapshot count usage \d+ is equal or larger than snapshotMaxCount`,
			Verdict: terminal, Reason: "the volume has as many snapshots as Longhorn allows; delete some", Source: "longhorn#12934",
		},
		{
			Name: "longhorn-backup-target", Codes: []string{aborted}, Pattern: `backup target .* is not available`,
			Verdict: terminal, After: backupTargetGrace, Reason: "Longhorn cannot reach its backup target", Source: source,
		},
		{
			Name: "longhorn-snapshot-type", Codes: []string{invalidArgument}, Pattern: `invalid CSI snapshot type`,
			Verdict: terminal, Reason: "the VolumeSnapshotClass has an unknown type", Source: source,
		},
		{
			Name: "longhorn-volume-gone", Codes: []string{notFound}, Pattern: `volume \S+ not found`,
			Verdict: terminal, Reason: "the Longhorn volume does not exist", Source: source,
		},
	}
}

func tridentRules() []Rule {
	const source = "trident, controller_server.go"
	return []Rule{
		{
			Name: "trident-starting", Pattern: `Trident is initializing, please try again later`,
			Verdict: retryable, Reason: "Trident is starting", Source: "trident, utils/errors",
		},
		{
			Name: "trident-not-started", Pattern: `Trident initialization failed`,
			Verdict: retryable, Reason: "Trident cannot reach a backend and keeps trying", Source: "trident, plugin.go",
		},
		{
			Name: "trident-unsupported", Codes: []string{failedPrecondition}, Pattern: `snapshots are not supported by backend type`,
			Verdict: terminal, Reason: "the backend is of a kind that has no snapshots", Source: "trident#696",
		},
		{
			Name: "trident-snapshots-per-volume", Codes: []string{resourceExhausted}, Pattern: `\b(maximum|too many) .*snapshots`,
			Verdict: terminal, Reason: "the volume has as many snapshots as the backend allows; delete some", Source: "trident#533",
		},
		{
			Name: "trident-other-volume", Codes: []string{alreadyExists}, Pattern: `snapshot exists on a different volume`,
			Verdict: terminal, Reason: "the name belongs to a snapshot of another volume", Source: source,
		},
	}
}

func powerstoreRules() []Rule {
	const source = "csi-powerstore, controller.go"
	return []Rule{
		{
			// The cause stands behind it, and may be an array that was out of reach.
			Name: "powerstore-volume-gone", Codes: []string{internal}, Source: source,
			Pattern: `can't find source volume\b.*\b(not found|could not find|does not exist)`,
			Verdict: terminal, Reason: "the volume does not exist on the array",
		},
		{
			Name: "powerstore-other-volume", Codes: []string{alreadyExists}, Pattern: `SourceVolumeId .* doesn't match`,
			Verdict: terminal, Reason: "the name belongs to a snapshot of another volume", Source: source,
		},
	}
}

func portworxRules() []Rule {
	const source = "openstorage, csi/controller.go"
	return []Rule{
		{
			Name: "portworx-node-agent", Pattern: `Unable to connect to SDK server`,
			Verdict: retryable, Reason: "the node agent is restarting", Source: source,
		},
		{
			Name: "portworx-volume-not-there", Codes: []string{aborted}, Pattern: `Volume id .* not found`,
			Verdict: terminal, After: notYetGrace, Reason: "Portworx does not know the volume", Source: source,
		},
		{
			Name: "portworx-other-volume", Codes: []string{alreadyExists}, Pattern: `already exists for another source volume id`,
			Verdict: terminal, Reason: "the name belongs to a snapshot of another volume", Source: source,
		},
	}
}

func lvmRules() []Rule {
	return []Rule{
		{
			Name: "lvm-crd-mismatch", Codes: []string{internal}, Pattern: `is invalid: \[spec\.`,
			Verdict: terminal, Reason: "the driver and its CRDs are of different versions", Source: "lvm-localpv#190",
		},
		{
			Name: "lvm-class-parameter", Codes: []string{invalidArgument}, Pattern: `failed to parse csi volume params`,
			Verdict: terminal, Reason: "a parameter of the VolumeSnapshotClass is wrong", Source: "lvm-localpv, controller.go",
		},
	}
}

func mayastorRules() []Rule {
	const source = "mayastor, csi controller.rs"
	return []Rule{
		{
			Name: "mayastor-detached", Codes: []string{notFound}, Pattern: `Failed to freeze volume .* not attached`,
			Verdict: retryable, Reason: "the volume is no longer attached and cannot be frozen", Source: source,
		},
		{
			Name: "mayastor-still-frozen", Codes: []string{failedPrecondition}, Pattern: `filesystem unfreeze failed`,
			Verdict: terminal, Reason: "the driver could not unfreeze the filesystem: look at the volume at once", Source: source,
		},
		{
			// The driver gives this code to failed preconditions too, which can heal.
			Name: "mayastor-pool-full", Codes: []string{resourceExhausted}, Source: source,
			Pattern: `\bnot enough\b.*\b(pools?|space|capacity|storage)\b|\bno space left\b|\bpool\b.*\b(is full|out of (space|capacity))\b`,
			Verdict: terminal, Reason: "the pool has no room for a snapshot",
		},
	}
}

func spectrumScaleRules() []Rule {
	const source = "ibm-spectrum-scale-csi, controllerserver.go"
	return []Rule{
		{
			Name: "spectrumscale-directory", Pattern: `Unable to stat dir .*\.snapshots`,
			Verdict: retryable, Reason: "several snapshots of one volume meet in its directory", Source: "ibm-spectrum-scale-csi#636",
		},
		{
			Name: "spectrumscale-snapshots-per-fileset", Codes: []string{outOfRange}, Pattern: `max limit of snapshots reached for fileset`,
			Verdict: terminal, Reason: "the fileset has as many snapshots as it may have (256); delete some", Source: "ibm-spectrum-scale-csi#252",
		},
		{
			Name: "spectrumscale-unsupported", Codes: []string{invalidArgument}, Source: source,
			Pattern: `taking snapshot of cache volume is not supported|only be created when source volume is`,
			Verdict: terminal, Reason: "this kind of fileset has no snapshots",
		},
	}
}

func democraticRules() []Rule {
	return []Rule{
		{
			Name: "democratic-source-gone", Codes: []string{failedPrecondition}, Pattern: `snapshot source_volume_id .* does not exist`,
			Verdict: terminal, Reason: "the dataset does not exist", Source: "democratic-csi, controller-zfs/index.js",
		},
		{
			Name: "democratic-dataset-gone", Codes: []string{internal}, Pattern: `Failed to snapshot .*Dataset .* not found`,
			Verdict: terminal, Reason: "the dataset does not exist, or the parent path of the driver's configuration is wrong", Source: "democratic-csi#528",
		},
	}
}
