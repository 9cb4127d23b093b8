// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// Answer is what one read gave: a value, or why there is none.
type Answer[T any] struct {
	Value T
	Err   error
}

// State is all that the checks know of a cluster.
type State struct {
	// Namespace that Velero is in.
	Namespace string
	// Server has the server's settings.
	Server Answer[Server]
	// API has the snapshot API's resources, by plural name.
	API map[string]Resource
	// Volumes sums the cluster's PersistentVolumes up.
	Volumes Answer[Volumes]
	// Classes are all VolumeSnapshotClasses.
	Classes Answer[[]snapshotv1.VolumeSnapshotClass]
	// Drivers are the names of all CSIDriver objects.
	Drivers Answer[[]string]
	// Workloads are those that run a part of external-snapshotter. Its Err may stand beside a Value that is not complete.
	Workloads Answer[[]Workload]
	// Rights is what the identity lacks.
	Rights Rights
	// NodeAgent is what is known of Velero's node agent.
	NodeAgent NodeAgent
}

// Server is the part of the server's settings that matters here.
type Server struct {
	// Found is false when no server was found, so that the rest are its defaults.
	Found bool
	// CSI says whether Velero's CSI feature is on.
	CSI bool
	// Parallelism is --csi-snapshot-parallelism.
	Parallelism snapshot.Parallelism
	// SnapshotTimeout is --default-csi-snapshot-timeout, 10 minutes if unset.
	SnapshotTimeout time.Duration
	// MoveData is --default-snapshot-move-data.
	MoveData bool
}

// Resource is one resource of the snapshot API.
type Resource struct {
	// V1 and Beta say in which versions the API server serves it.
	V1, Beta bool
	// Err is why that isn't known.
	Err error
	// Definition tells of its CRD, where it may be read.
	Definition Answer[Definition]
}

// Definition is the part of a CRD that matters here.
type Definition struct {
	// Storage is the version that new objects are stored in, Stored are all that there may be objects of.
	Storage string
	Stored  []string
}

// Volumes counts PersistentVolumes that are bound to a claim.
type Volumes struct {
	// CSI has them by CSI driver.
	CSI map[string]int
	// Other counts those that no CSI driver provides: in-tree volumes, host paths, NFS.
	Other int
}

// Program is a program of external-snapshotter.
type Program string

// The programs that snapshots depend on.
const (
	SnapshotController Program = "snapshot-controller"
	Sidecar            Program = "csi-snapshotter"
)

// Workload is a Deployment, StatefulSet or DaemonSet one of whose containers is a Program.
type Workload struct {
	Kind, Namespace, Name string
	// Wanted and Ready count its pods.
	Wanted, Ready int32
	Program       Program
	// Container is its name, Index its place in the pod.
	Container     string
	Index         int
	Image         string
	Command, Args []string
	// Text is what the pod template says in commands, arguments and environment; it may name a driver.
	Text string
}

// Rights is what somebody may do.
type Rights struct {
	// Who was asked about, for people; empty when nobody was.
	Who string
	// Own is true when it is the one who asks, who needn't be the server.
	Own bool
	// Missing are the permissions that they lack.
	Missing []Permission
	// Err is why it is not known, for some or all.
	Err error
}

// NodeAgent is what is known of Velero's node agent.
type NodeAgent struct {
	// UsedBy names what has data movement on; empty when nothing has.
	UsedBy string
	// UsedErr is why schedules or backups couldn't be looked at.
	UsedErr error
	// Agents are the DaemonSets of node agents.
	Agents Answer[[]Agent]
}

// Agent is one DaemonSet of node agents.
type Agent struct {
	Name          string
	Wanted, Ready int32
}
