// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/client"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/velero-clipper/clipper/pkg/preflight"
)

// served is a Discovery.
type served []string

func (s served) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{GroupVersion: groupVersion}
	for _, name := range s {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

// unreachable is a Discovery of no cluster.
type unreachable struct{}

func (unreachable) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return nil, errors.New("connection refused")
}

// allowed is an Access.
type allowed struct{}

func (allowed) Allowed(context.Context, preflight.Permission) (bool, error) { return true, nil }
func (allowed) Who(context.Context) (string, bool)                          { return "user me", true }

var all = served{"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"}

// fixed gives the same sources whatever the command line says.
func fixed(t *testing.T, discovery preflight.Discovery) func(*cobra.Command) sources {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, snapshotv1.AddToScheme, velerov1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	server := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero"},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "velero", Command: []string{"/velero"}, Args: []string{"server", "--features=EnableCSI"}},
		}}}},
	}
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(server).Build()
	return func(*cobra.Command) sources {
		return func(string) (preflight.Sources, error) {
			return preflight.Sources{Cluster: cluster, Discovery: discovery, Access: allowed{}, Namespace: "velero"}, nil
		}
	}
}

// execute returns what the command printed to its two outputs, and the exit status that its error stands for.
func execute(c *cobra.Command, args ...string) (out, errOut string, status int) {
	var stdout, stderr bytes.Buffer
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(args)
	err := c.Execute()
	var with interface{ ExitStatus() int }
	switch {
	case errors.As(err, &with):
		status = with.ExitStatus()
	case err != nil:
		status = -1
	}
	return stdout.String(), stderr.String(), status
}

func TestExitStatus(t *testing.T) {
	tests := map[string]struct {
		discovery preflight.Discovery
		args      []string
		status    int
		out, err  string
	}{
		"nothing above a warning": {all, nil, 0, "RightsSuffice", ""},
		"an error among them":     {served{"volumesnapshots"}, nil, 1, "SnapshotCRDMissing", ""},
		"the same in JSON":        {served{"volumesnapshots"}, []string{"-o", "json"}, 1, `"reason": "SnapshotCRDMissing"`, ""},
		"no cluster":              {unreachable{}, nil, 2, "", "connection refused"},
		"an unknown form":         {all, []string{"-o", "yaml"}, 2, "", "use table or json"},
		"an unknown flag":         {all, []string{"--fast"}, 2, "", "--help"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, errOut, status := execute(newCommand(fixed(t, test.discovery)), test.args...)
			g.Expect(status).To(Equal(test.status), errOut)
			g.Expect(out).To(ContainSubstring(test.out))
			if test.err == "" {
				g.Expect(errOut).To(BeEmpty(), "the findings say it all")
				return
			}
			g.Expect(out).To(BeEmpty())
			g.Expect(errOut).To(ContainSubstring(test.err))
		})
	}
}

func TestOutputs(t *testing.T) {
	g := NewWithT(t)
	out, _, _ := execute(newCommand(fixed(t, all)), "-o", "json")
	var report preflight.Report
	g.Expect(json.Unmarshal([]byte(out), &report)).To(Succeed())
	g.Expect(report.Findings).NotTo(BeEmpty())
	g.Expect(report.Errors).To(BeZero())

	table, _, _ := execute(newCommand(fixed(t, all)))
	g.Expect(table).To(HavePrefix("SEVERITY"))
	for _, finding := range report.Findings {
		g.Expect(table).To(ContainSubstring(finding.Message))
		g.Expect(table).To(ContainSubstring(finding.Fix))
	}
	g.Expect(table).To(HaveSuffix(report.String() + ".\n"))
}

// root is a root command with the flags of Velero's.
func root(t *testing.T) *cobra.Command {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	root := &cobra.Command{Use: "velero"}
	client.NewFactory("velero", client.VeleroConfig{}).BindFlags(root.PersistentFlags())
	root.AddCommand(NewCommand())
	return root
}

func TestBadInputIsNamed(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"no such kubeconfig": {[]string{"preflight", "--kubeconfig=/nowhere"}, "/nowhere"},
		"no namespace":       {[]string{"preflight", "--as-service-account=velero", "--kubeconfig=testdata/kubeconfig"}, "velero/velero"},
		"arguments":          {[]string{"preflight", "all"}, `"all"`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, errOut, status := execute(root(t), test.args...)
			g.Expect(status).To(Equal(2))
			g.Expect(out).To(BeEmpty())
			g.Expect(errOut).To(ContainSubstring(test.says))
		})
	}
}

func TestTheRootsFlagsNameTheNamespace(t *testing.T) {
	g := NewWithT(t)
	command := root(t)
	g.Expect(command.PersistentFlags().Set("namespace", "backup")).To(Succeed())
	g.Expect(command.PersistentFlags().Set("kubeconfig", "testdata/kubeconfig")).To(Succeed())
	preflightCommand, _, err := command.Find([]string{"preflight"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(preflightCommand.ParseFlags(nil)).To(Succeed())
	factory, err := factoryFor(preflightCommand)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(factory.Namespace()).To(Equal("backup"))
	config, err := factory.ClientConfig()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Host).To(Equal("https://127.0.0.1:1"))
	g.Expect(config.QPS).To(BeEquivalentTo(qps))
}
