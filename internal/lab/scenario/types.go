// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/velero-clipper/clipper/internal/lab/recorder"
)

// Scenario is one experiment. The keys of a scenario file are the yaml tags of these structs.
type Scenario struct {
	// Name of the experiment, in the result and in the names of log folders.
	Name string `yaml:"name"`
	// Description says in a sentence what the experiment is to show.
	Description string `yaml:"description"`
	// Timeout bounds everything from the first backup to the last step. Default 10m.
	Timeout  Duration    `yaml:"timeout"`
	Cluster  Cluster     `yaml:"cluster"`
	Storage  Storage     `yaml:"storage"`
	Workload []Namespace `yaml:"workload"`
	// Manifests are created as they are, after the workload.
	Manifests []Manifest `yaml:"manifests"`
	// Commands says what commands do that no pod hook declares, such as the hooks in a backup's spec. First match wins.
	Commands []CommandRule `yaml:"commands"`
	Server   Server        `yaml:"server"`
	// Floor says whether the snapshots are first taken with no Velero at all, to have a measure. Default true.
	Floor *bool `yaml:"floor"`
	// Backups are created in this order, all at once unless one waits for another by its After.
	Backups []Backup `yaml:"backups"`
	// Events happen one after the other while the backups run.
	Events []Event `yaml:"events"`
	// Second is one more cluster, with the same object store and the same storage. Default: there is none.
	Second *SecondCluster `yaml:"secondCluster"`
	// Then lists what is done after the last backup reached its last phase and the last event happened.
	Then []Step `yaml:"then"`
	// Settle bounds the wait for the cluster to come to rest before leftovers are counted.
	Settle Settle `yaml:"settle"`
	// Expect are CEL expressions over the result, all of which must be true.
	Expect []Expectation `yaml:"expect"`

	// File is the path that the scenario was read from.
	File string `yaml:"-"`
}

// Authorization modes of the API server.
const (
	AlwaysAllow = "AlwaysAllow"
	RBAC        = "RBAC"
)

// Cluster is the control plane.
type Cluster struct {
	Snapshotter Snapshotter `yaml:"snapshotter"`
	// Authorization is AlwaysAllow (the default) or RBAC.
	Authorization string `yaml:"authorization"`
	// SnapshotCRDs false leaves the snapshot CRDs out, to see what the server says to that. Default true.
	SnapshotCRDs *bool `yaml:"snapshotCRDs"`
	// OldSnapshots is how many VolumeSnapshotContents of a foreign driver are there before the server starts, with which
	// nobody has anything to do any more. Default 0.
	OldSnapshots int `yaml:"oldSnapshots"`
	// NodeAgent is the stand-in for Velero's node agent. Default: there is none.
	NodeAgent *NodeAgent `yaml:"nodeAgent"`
}

// SecondCluster is a control plane of its own, with a Velero server that uses the object store of the first one, and sidecars
// that talk to the same drivers. It is started when the first step is done in it.
type SecondCluster struct {
	Server Server `yaml:"server"`
}

// NodeAgent says how moving data behaves.
type NodeAgent struct {
	// Takes is how long each PodVolumeBackup takes, and each DataUpload once its snapshot is ready. Default 0.
	Takes Duration `yaml:"takes"`
	// Fail is the message with which each of them fails instead.
	Fail string `yaml:"fail"`
}

// Snapshotter sets the limits of the snapshot-controller and of the csi-snapshotter sidecars.
type Snapshotter struct {
	// Workers is the number of worker threads. Default 10, as the programs' own.
	Workers int `yaml:"workers"`
	// QPS and Burst limit the requests to the API server. Default 100 and 200; the programs' own are 5 and 10.
	QPS   int `yaml:"qps"`
	Burst int `yaml:"burst"`
	// Timeout of one CSI call. Default 1m, as the sidecar's own.
	Timeout Duration `yaml:"timeout"`
}

// Storage is the CSI drivers.
type Storage struct {
	// Drivers default to one named lab.csi.clipper.dev that cuts in 2 s.
	Drivers []Driver `yaml:"drivers"`
}

// Driver is one CSI driver.
type Driver struct {
	Name string `yaml:"name"`
	// Groups has the driver take volume group snapshots, too, with a VolumeGroupSnapshotClass of its name. Default false.
	Groups bool `yaml:"groups"`
	// SnapshotClass false leaves the driver without a VolumeSnapshotClass. Default true.
	SnapshotClass *bool `yaml:"snapshotClass"`
	// SnapshotClassLabel false leaves the class without the label by which Velero finds it. Default true.
	SnapshotClassLabel *bool `yaml:"snapshotClassLabel"`
	// DeletionPolicy of the class, Delete (the default) or Retain.
	DeletionPolicy string `yaml:"deletionPolicy"`
	// MoreClasses are VolumeSnapshotClasses beside the one that is named like the driver.
	MoreClasses []SnapshotClass `yaml:"moreClasses"`
	// Behaviour lists how volumes behave; the first rule that matches counts.
	Behaviour []Behaviour `yaml:"behaviour"`
}

// SnapshotClass is one more VolumeSnapshotClass of a driver.
type SnapshotClass struct {
	Name string `yaml:"name"`
	// Labels and Annotations are as the file has them; none is added.
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
	// DeletionPolicy is Delete (the default) or Retain.
	DeletionPolicy string `yaml:"deletionPolicy"`
}

// Behaviour says how the driver treats the volumes that it matches.
type Behaviour struct {
	// Match is a pattern for "namespace/pvc", see MatchName. Default "*".
	Match string `yaml:"match"`
	// Cut is how long CreateSnapshot takes. Default 0.
	Cut Duration `yaml:"cut"`
	// Ready is how long after the cut the snapshot becomes ready to use. Default 0.
	Ready Duration `yaml:"ready"`
	// Jitter adds a random time up to this to each Cut.
	Jitter Duration `yaml:"jitter"`
	// Capacity is how many snapshots the storage works on at once; more wait their turn. 0 is any number.
	Capacity int `yaml:"capacity"`
	// Hang makes CreateSnapshot never answer, until the behaviour changes.
	Hang bool `yaml:"hang"`
	// HangFor is a hang that ends, for each volume, when this much time has passed since its first call.
	HangFor Duration `yaml:"hangFor"`
	Fail    *Fail    `yaml:"fail"`
	// LateCut is for hang, hangFor and fail: the storage takes the snapshot all the same, Cut after the first call.
	LateCut  bool      `yaml:"lateCut"`
	Throttle *Throttle `yaml:"throttle"`
	// AppendRequestID ends the message of every error with another random request ID.
	AppendRequestID bool `yaml:"appendRequestID"`
}

// Fail makes CreateSnapshot return an error.
type Fail struct {
	// Code is a gRPC code by its name, such as Internal or ResourceExhausted.
	Code    string `yaml:"code"`
	Message string `yaml:"message"`
	// Times is how often, for each volume, before it works; 0 is always.
	Times int `yaml:"times"`
}

// Throttle makes CreateSnapshot refuse calls above a rate.
type Throttle struct {
	PerSecond float64 `yaml:"perSecond"`
	// Code and Message of the refusal. Default ResourceExhausted, "rate exceeded".
	Code    string `yaml:"code"`
	Message string `yaml:"message"`
}

// Namespace is a namespace and what is in it.
type Namespace struct {
	Namespace string            `yaml:"namespace"`
	Labels    map[string]string `yaml:"labels"`
	// PVCs are claims of their own, which pods may mount by their name in "mounts".
	PVCs []Claim `yaml:"pvcs"`
	Pods []Pod   `yaml:"pods"`
	// Objects counts plain objects that have nothing to do with volumes.
	Objects Objects `yaml:"objects"`
}

// Objects counts plain objects.
type Objects struct {
	ConfigMaps int `yaml:"configMaps"`
	Secrets    int `yaml:"secrets"`
}

// Claim is a PVC, or several when Count is set and the name holds {i}.
type Claim struct {
	Name        string            `yaml:"name"`
	Count       int               `yaml:"count"`
	Driver      string            `yaml:"driver"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
	// Phase is Bound (the default), Pending (no volume) or Lost.
	Phase string `yaml:"phase"`
	// StorageClass of claim and volume; it need not exist, and "" is none at all. Default: the driver's.
	StorageClass *string `yaml:"storageClass"`
}

// Pod is a pod, or several when Count is set and the name holds {i}.
type Pod struct {
	Name string `yaml:"name"`
	// Count makes this many pods; {i} in the name is replaced by 0, 1, 2, ...
	Count       int               `yaml:"count"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
	// Containers are the names of the pod's containers. Default [app].
	Containers []string `yaml:"containers"`
	// Phase of the pod. Default Running.
	Phase string `yaml:"phase"`
	// PVCs is how many claims of its own each pod mounts; they are named "<pod>-0", "<pod>-1", ...
	PVCs int `yaml:"pvcs"`
	// Driver of these claims. Default: the first driver.
	Driver string `yaml:"driver"`
	// Mounts are claims of the namespace that the pod mounts too; several pods may share one.
	Mounts []string `yaml:"mounts"`
	Hooks  Hooks    `yaml:"hooks"`
}

// Hooks are the backup hooks that a pod's annotations declare.
type Hooks struct {
	Pre  *Hook `yaml:"pre"`
	Post *Hook `yaml:"post"`
}

// Hook is a command, what Velero is told about it, and what it does when it is run.
type Hook struct {
	Command Command `yaml:"command"`
	// Container, OnError (Fail or Continue) and Timeout go into the annotations as they are; empty leaves Velero's default.
	Container string   `yaml:"container"`
	OnError   string   `yaml:"onError"`
	Timeout   Duration `yaml:"timeout"`
	// Takes is how long the command runs and Exit its exit status.
	Takes Duration `yaml:"takes"`
	Exit  int      `yaml:"exit"`
}

// CommandRule says what a command in a container does.
type CommandRule struct {
	// Match is a pattern for "namespace/pod", see MatchName. Default "*".
	Match   string   `yaml:"match"`
	Command Command  `yaml:"command"`
	Takes   Duration `yaml:"takes"`
	Exit    int      `yaml:"exit"`
}

// Engines.
const (
	EngineParallel = "parallel"
	EngineStock    = "stock"
)

// Server is the Velero server.
type Server struct {
	// Engine is parallel (the default) or stock, which runs the same server with --csi-snapshot-parallelism=0.
	Engine string `yaml:"engine"`
	// Args are added to "velero server", Env to its environment.
	Args []string          `yaml:"args"`
	Env  map[string]string `yaml:"env"`
	// Features replace Velero's feature flags. Default: EnableCSI.
	Features []string `yaml:"features"`
	// RBAC says what the server may do, where the cluster's authorization is RBAC.
	RBAC Rights `yaml:"rbac"`
	// Plugins is how the lab's recording plugin behaves. Default: the server has no such plugin.
	Plugins *Plugins `yaml:"plugins"`
	// MustNotStart is for bad input: the experiment ends when the server has refused to start. It needs no backups then.
	MustNotStart bool `yaml:"mustNotStart"`
}

// Plugins is the behaviour of the recording plugin, with the field names of its behaviour file.
type Plugins struct{ recorder.Behaviour }

// Rights are those of the server's service account.
type Rights struct {
	// Role is a ClusterRole that every cluster has, or a file or kustomization with roles and bindings, as a path with a slash in it,
	// relative to the scenario's file. Default cluster-admin, as "velero install" has it.
	Role string `yaml:"role"`
	// Without are permissions taken out of these roles, each as "verb resource.group".
	Without []string `yaml:"without"`
}

// Backup is one Velero backup.
type Backup struct {
	Name        string            `yaml:"name"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
	// After names a backup that must have reached its last phase before this one is created. Default: none, it is created at once.
	After string `yaml:"after"`
	// When is what must be so before it is created; it can't stand beside After.
	When *Condition `yaml:"when"`
	// Phase is the one with which it is created, as if a server had left it so. Default: none, it is a new one.
	Phase string     `yaml:"phase"`
	Spec  BackupSpec `yaml:"spec"`
}

// BackupSpec is a Velero BackupSpec with the field names of the API.
type BackupSpec struct{ velerov1.BackupSpec }

// RestoreSpec is a Velero RestoreSpec with the field names of the API.
type RestoreSpec struct{ velerov1.RestoreSpec }

// Settle says when the cluster counts as being at rest: no leftovers and no driver call in flight for the time of Quiet,
// or else when Limit has passed.
type Settle struct {
	// Quiet defaults to 1s.
	Quiet Duration `yaml:"quiet"`
	// Limit is how long leftovers are waited for. Default 90s: a sidecar worker may be held by a call for a minute.
	Limit Duration `yaml:"limit"`
}

// Expectation is a CEL expression and where it stands.
type Expectation struct {
	Expression   string
	Line, Column int
}
