// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"time"

	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

// Names that a new cluster comes with.
const (
	// VeleroNamespace holds Velero's own objects.
	VeleroNamespace = "velero"
	// DefaultNode is the name of the only node.
	DefaultNode = "lab-node"
	// ContainerName is the container of each pod that CreatePods makes.
	ContainerName = "app"
)

// Authorization is the API server's authorization mode.
type Authorization string

// The authorization modes. With AuthorizeRBAC every user but UserVelero may do
// everything; what the Velero user may do is for the caller to bind.
const (
	AuthorizeAlways Authorization = "AlwaysAllow"
	AuthorizeRBAC   Authorization = "RBAC"
)

// Endpoint is a TCP endpoint.
type Endpoint struct {
	Host string
	Port int
}

// DriverEndpoint is a CSI driver and the classes that lead to it.
type DriverEndpoint struct {
	// Name of the driver, also called the provisioner.
	Name string
	// Socket is the absolute path of the driver's unix socket. The driver may start later than the cluster.
	Socket string
	// StorageClasses to create. Default: one, named like the driver.
	StorageClasses []string
	// SnapshotClass is the name of the VolumeSnapshotClass. Default: the driver's name.
	SnapshotClass string
	// NoSnapshotClass leaves the VolumeSnapshotClass out.
	NoSnapshotClass bool
}

// Snapshotter holds the settings of the snapshot-controller and the sidecars.
// A zero field takes the default given, which isn't always that of the programs.
type Snapshotter struct {
	// Workers is --worker-threads. Default: 10.
	Workers int
	// QPS and Burst limit API requests. Default: 100 and 200; the programs' own
	// 5 and 10 make a hundred snapshots take two minutes.
	QPS   float64
	Burst int
	// RetryStart and RetryMax bound the back-off. Default: 1 s and 5 min.
	RetryStart, RetryMax time.Duration
	// Timeout is the sidecar's limit of one call to the driver. Default: 1 min.
	Timeout time.Duration
	// ControllerArgs and SidecarArgs are appended.
	ControllerArgs, SidecarArgs []string
}

// Options of a cluster.
type Options struct {
	// Dir gets state, credentials and logs (Dir/logs). It must be empty or not there.
	Dir string
	// Programs from toolchain.Ensure: etcd, kube-apiserver, and, if there are
	// drivers, snapshot-controller and csi-snapshotter.
	Programs toolchain.Paths
	// SnapshotCRDs is the folder from toolchain.SnapshotCRDs. Empty leaves the snapshot CRDs, classes and controllers out.
	SnapshotCRDs string
	// Velero is the binary whose CRDs are installed. Empty leaves them out.
	Velero string
	// Authorization mode. Default: AuthorizeAlways.
	Authorization Authorization
	// NodeName. Default: DefaultNode.
	NodeName string
	// Kubelet is where the node's kubelet listens. The zero value gives a node on which nothing can be executed.
	Kubelet Endpoint
	// Drivers each get a sidecar, StorageClasses and a VolumeSnapshotClass.
	Drivers []DriverEndpoint
	// Snapshotter settings of controller and sidecars.
	Snapshotter Snapshotter
	// Proxied users reach the API server through a proxy of their own, which Proxy returns, so that the API can be made to
	// misbehave for them alone.
	Proxied []User
	// APIServerArgs are appended to kube-apiserver's.
	APIServerArgs []string
}

func (o Options) withDefaults() (Options, error) {
	if o.Authorization == "" {
		o.Authorization = AuthorizeAlways
	}
	if o.NodeName == "" {
		o.NodeName = DefaultNode
	}
	if o.Kubelet.Host == "" {
		o.Kubelet.Host = "127.0.0.1"
	}
	o.Snapshotter = o.Snapshotter.withDefaults()
	drivers := make([]DriverEndpoint, len(o.Drivers))
	for i, driver := range o.Drivers {
		drivers[i] = driver.withDefaults()
	}
	o.Drivers = drivers
	return o, o.validate()
}

func (d DriverEndpoint) withDefaults() DriverEndpoint {
	if len(d.StorageClasses) == 0 {
		d.StorageClasses = []string{d.Name}
	}
	if d.SnapshotClass == "" {
		d.SnapshotClass = d.Name
	}
	return d
}

func (s Snapshotter) withDefaults() Snapshotter {
	setDefault(&s.Workers, 10)
	setDefault(&s.QPS, 100)
	setDefault(&s.Burst, 200)
	setDefault(&s.RetryStart, time.Second)
	setDefault(&s.RetryMax, 5*time.Minute)
	setDefault(&s.Timeout, time.Minute)
	return s
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o Options) validate() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("no folder for the cluster's state is given"))
	}
	if o.Authorization != AuthorizeAlways && o.Authorization != AuthorizeRBAC {
		errs = append(errs, fmt.Errorf("authorization %q is neither %s nor %s", o.Authorization, AuthorizeAlways, AuthorizeRBAC))
	}
	needed := []toolchain.Program{toolchain.Etcd, toolchain.KubeAPIServer}
	if o.SnapshotCRDs != "" {
		needed = append(needed, toolchain.SnapshotController)
	}
	if len(o.Drivers) > 0 {
		needed = append(needed, toolchain.CSISnapshotter)
		if o.SnapshotCRDs == "" {
			errs = append(errs, errors.New("drivers are given without the snapshot CRDs"))
		}
	}
	for _, program := range needed {
		if o.Programs[program] == "" {
			errs = append(errs, fmt.Errorf("the path of %s is missing", program))
		}
	}
	for _, driver := range o.Drivers {
		if driver.Name == "" || driver.Socket == "" {
			errs = append(errs, fmt.Errorf("driver %q needs a name and a socket", driver.Name))
		}
	}
	return errors.Join(errs...)
}
