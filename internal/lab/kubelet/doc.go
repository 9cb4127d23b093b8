// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet stands in for the kubelet of the lab's node, as far as exec goes. The real kube-apiserver sends an
// exec in a pod to the address that the pod's Node states (status.addresses InternalIP and
// status.daemonEndpoints.kubeletEndpoint.Port), as a request for /exec/{namespace}/{pod}/{container}. This package
// answers it with Kubernetes' own streaming code, and keeps a record of each command. No container is behind it: a
// function decides how long a command takes and how it ends.
//
// kubelet.go has the server, calls.go the record, certificate.go the certificate that it makes for itself. It asks its
// clients for no credentials, so let it listen on the loopback address only.
package kubelet
