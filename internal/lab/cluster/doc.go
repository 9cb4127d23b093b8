// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes control plane on this machine, without containers: etcd, kube-apiserver, the
// snapshot-controller, and one csi-snapshotter sidecar for each CSI driver. There is no scheduler and no
// controller-manager: the lab itself creates the node, bound volumes and running pods ([Cluster.CreateVolumes],
// [Cluster.CreatePods]) and writes their status.
//
// It promises that everything listens on loopback only, that each component has a token of its own, so that the audit
// log (of the Velero user alone) counts what the server under test asks for, and that [Cluster.Stop] leaves no
// process behind. The state is thrown away; durability is switched off for speed.
//
//	c, err := cluster.Start(ctx, cluster.Options{
//		Dir: dir, Programs: paths, SnapshotCRDs: crds, Velero: "bin/velero",
//		Kubelet: cluster.Endpoint{Host: "127.0.0.1", Port: kubeletPort},
//		Drivers: []cluster.DriverEndpoint{{Name: "lab.csi.clipper.dev", Socket: socket}},
//	})
//	defer c.Stop()
//
// Read cluster.go first: Start is the list of steps. controlplane.go has the flags, users.go who may log in,
// objects.go what a new cluster holds, workload.go what is backed up.
package cluster
