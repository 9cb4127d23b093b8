//go:build tools

package clipper

import (
	_ "github.com/container-storage-interface/spec/lib/go/csi"
	_ "github.com/google/cel-go/cel"
	_ "github.com/johannesboyne/gofakes3"
	_ "github.com/johannesboyne/gofakes3/backend/s3mem"
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "github.com/spf13/cobra"
	_ "github.com/vmware-tanzu/velero/pkg/cmd/velero"
	_ "go.uber.org/goleak"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sync/errgroup"
	_ "google.golang.org/grpc"
	_ "k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	_ "sigs.k8s.io/controller-runtime"
	_ "sigs.k8s.io/yaml"
)
