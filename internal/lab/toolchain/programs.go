// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package toolchain

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Program names one program that can be built. The value is also the name of
// the executable.
type Program string

// The programs that hack/tools pins.
const (
	Etcd               Program = "etcd"
	KubeAPIServer      Program = "kube-apiserver"
	SnapshotController Program = "snapshot-controller"
	CSISnapshotter     Program = "csi-snapshotter"
	AWSPlugin          Program = "velero-plugin-for-aws"
	Lint               Program = "golangci-lint"
)

// ControlPlane lists what a lab needs, in the order in which it is built: the
// longest build first would leave a newcomer in front of one line for minutes,
// so that one comes last.
func ControlPlane() []Program {
	return []Program{Etcd, AWSPlugin, SnapshotController, CSISnapshotter, KubeAPIServer}
}

// source says where a program comes from.
type source struct {
	tool    string // folder below hack/tools that holds the go.mod
	module  string // the module whose version is shown
	pkg     string // the main package
	minutes string // a first build on two cores and in this order, for the progress line
}

var sources = map[Program]source{
	Etcd: {
		tool: "kubernetes", module: "go.etcd.io/etcd/server/v3",
		pkg: "go.etcd.io/etcd/server/v3", minutes: "about 90 seconds",
	},
	KubeAPIServer: {
		tool: "kubernetes", module: "k8s.io/kubernetes",
		pkg: "k8s.io/kubernetes/cmd/kube-apiserver", minutes: "about 7 minutes",
	},
	SnapshotController: {
		tool: "snapshotter", module: "github.com/kubernetes-csi/external-snapshotter/v8",
		pkg: "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller", minutes: "about 4 minutes",
	},
	CSISnapshotter: {
		tool: "snapshotter", module: "github.com/kubernetes-csi/external-snapshotter/v8",
		pkg: "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter", minutes: "about 1 minute",
	},
	AWSPlugin: {
		tool: "aws-plugin", module: "github.com/vmware-tanzu/velero-plugin-for-aws",
		pkg: "github.com/vmware-tanzu/velero-plugin-for-aws/velero-plugin-for-aws", minutes: "about 5 minutes",
	},
	Lint: {
		tool: "lint", module: "github.com/golangci/golangci-lint/v2",
		pkg: "github.com/golangci/golangci-lint/v2/cmd/golangci-lint", minutes: "several minutes",
	},
}

// Programs lists everything that can be built, sorted by name.
func Programs() []Program {
	all := make([]Program, 0, len(sources))
	for program := range sources {
		all = append(all, program)
	}
	slices.Sort(all)
	return all
}

// Parse returns the program of that name. The error of an unknown name lists
// the known ones.
func Parse(name string) (Program, error) {
	if _, ok := sources[Program(name)]; ok {
		return Program(name), nil
	}
	known := make([]string, 0, len(sources))
	for _, program := range Programs() {
		known = append(known, string(program))
	}
	return "", fmt.Errorf("unknown program %q: known are %s", name, strings.Join(known, ", "))
}

// moduleDir is the folder of the module that pins the program.
func (s source) moduleDir(root string) string {
	return filepath.Join(root, "hack", "tools", s.tool)
}
