// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshotrules

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/velero-clipper/clipper/pkg/snapshot/rules"
)

const mine = `
- name: pool-full
  when: driver == "block.csi.example.com" && words.contains("pool is full")
  verdict: terminal
  reason: the pool is full
`

// shell runs the command with a cluster, or without one when there is none.
type shell struct {
	cluster *fake.Clientset
	in      string
}

func (s shell) run(args ...string) (string, error) {
	c := newCommand(func(*cobra.Command) (cluster, error) {
		if s.cluster == nil {
			return cluster{}, errors.New("no configuration")
		}
		return cluster{client: s.cluster, namespace: "velero"}, nil
	})
	var out bytes.Buffer
	c.SetIn(strings.NewReader(s.in))
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func configMap(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: rules.DefaultConfigMap}, Data: map[string]string{rules.Key: text}}
}

func fileWith(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.yaml")
	NewWithT(t).Expect(os.WriteFile(name, []byte(text), 0o600)).To(Succeed())
	return name
}

const wrapped = `Failed to create snapshot: failed to take snapshot of the volume v: "rpc error: code = Internal desc = the pool is full"`

func TestCheck(t *testing.T) {
	file := fileWith(t, mine+"- {name: old, when: 'age > duration(\"1m\") && attempts > 2 && phase == \"readying\" && storageClass == \"s\" && pvcNamespace == \"n\" && pvc == \"p\"', verdict: throttled, reason: r}\n")
	tests := []struct {
		name string
		in   string
		args []string
		want []string
	}{
		{
			"a built-in rule", "", []string{"--built-in", "--driver=csi.vsphere.vmware.com", "--code=FailedPrecondition", "--message=X reaches the configured maximum (3)"},
			[]string{"Verdict:     terminal (the snapshot fails now)", "Rule:        builtin/vsphere-snapshots-per-volume", "Source:      velero#6620", "Your rules:  none"},
		},
		{
			"the code is taken from the message", "", []string{"--file", file, "--driver=block.csi.example.com", "--message", wrapped},
			[]string{"Rule:        pool-full", "Reason:      the pool is full", "Source:      " + file, "gRPC code:   Internal", "Your rules:  file " + file},
		},
		{
			"standard input", wrapped + "\n", []string{"--file", file, "--driver=block.csi.example.com", "--message=-"},
			[]string{"Rule:        pool-full"},
		},
		{
			"everything else", "", []string{
				"--file", file, "--driver=x", "--message=odd", "--age=2m", "--attempts=3", "--phase=readying", "--storage-class=s", "--pvc-namespace=n", "--pvc=p",
			},
			[]string{"Verdict:     throttled", "Rule:        old", "gRPC code:   none"},
		},
		{
			"no rule", "", []string{"--built-in", "--driver=x", "--message=odd"},
			[]string{"Verdict:     retryable (the snapshot is waited for)", "Rule:        none"},
		},
		{
			"another way to write a code", "", []string{"--built-in", "--driver=x", "--code=INVALID_ARGUMENT", "--message=odd"},
			[]string{"Rule:        builtin/code-invalid-argument", "gRPC code:   InvalidArgument"},
		},
		{
			"a verdict that is held back", "", []string{"--built-in", "--driver=x", "--message=the PVC a is not yet bound to a PV"},
			[]string{"Verdict:     retryable", "final when it still stands after 5s"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			out, err := shell{in: test.in}.run(append([]string{"check"}, test.args...)...)
			g.Expect(err).NotTo(HaveOccurred())
			for _, part := range test.want {
				g.Expect(out).To(ContainSubstring(part))
			}
		})
	}
}

func TestCheckTakesTheRulesOfTheCluster(t *testing.T) {
	g := NewWithT(t)
	check := []string{"check", "--driver=block.csi.example.com", "--message", wrapped, "-o", "json"}
	out, err := shell{cluster: fake.NewClientset(configMap(mine))}.run(check...)
	g.Expect(err).NotTo(HaveOccurred())
	var got map[string]any
	g.Expect(json.Unmarshal([]byte(out), &got)).To(Succeed())
	g.Expect(got).To(And(
		HaveKeyWithValue("verdict", "terminal"), HaveKeyWithValue("rule", "pool-full"), HaveKeyWithValue("reason", "the pool is full"),
		HaveKeyWithValue("code", "Internal"), HaveKeyWithValue("yourRules", "ConfigMap velero/clipper-snapshot-error-rules"),
		HaveKeyWithValue("matched", HaveKeyWithValue("when", `driver == "block.csi.example.com" && words.contains("pool is full")`)),
	))

	g.Expect(out).To(ContainSubstring("&&"), "people read it too")

	out, err = shell{cluster: fake.NewClientset()}.run(check...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(And(ContainSubstring("clipper-snapshot-error-rules, which does not exist"), ContainSubstring(`"rule": ""`), Not(ContainSubstring("matched"))))

	_, err = shell{cluster: fake.NewClientset(configMap("- {name: a}"))}.run(check...)
	g.Expect(err).To(MatchError(And(ContainSubstring("rule 1 (a), line 1"), ContainSubstring("the server goes on with the rules that it had"))))
}

func TestRefusals(t *testing.T) {
	forbidden := fake.NewClientset()
	forbidden.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("no role"))
	})
	some := []string{"--built-in", "--driver=x", "--message=odd"}
	tests := []struct {
		name    string
		cluster *fake.Clientset
		args    []string
		want    string
	}{
		{"no message", nil, []string{"check", "--driver=x"}, "--driver and --message are required"},
		{"nothing on standard input", nil, []string{"check", "--built-in", "--driver=x", "--message=-"}, "nothing on standard input"},
		{"no cluster", nil, []string{"check", "--driver=x", "--message=odd"}, "no configuration; without a cluster use --file or --built-in"},
		{"no permission", forbidden, []string{"list"}, "no role; without a cluster use --file or --built-in"},
		{"no file", nil, []string{"list", "--file=/nowhere/rules.yaml"}, "/nowhere/rules.yaml"},
		{"a bad file", nil, []string{"list", "--file", fileWith(t, mine+"- x\n")}, "rule 2, line 6"},
		{"two sources", nil, []string{"list", "--built-in", "--file=x"}, "exclude each other"},
		{"an odd code", nil, append([]string{"check", "--code=Odd"}, some...), "--code=Odd is no gRPC code; those of errors are Canceled, Unknown"},
		{"two codes", nil, []string{"check", "--built-in", "--driver=x", "--code=Aborted", "--message", wrapped}, "contradicts the message, which has code Internal"},
		{"an odd phase", nil, append([]string{"check", "--phase=done"}, some...), "use cutting or readying"},
		{"no attempts", nil, append([]string{"check", "--attempts=0"}, some...), "--attempts=0 is not possible"},
		{"a negative age", nil, append([]string{"check", "--age=-1s"}, some...), "--age=-1s is not possible"},
		{"an odd output", nil, append([]string{"check", "-o=xml"}, some...), "use text or json"},
		{"an odd output of list", nil, []string{"list", "--built-in", "-o=xml"}, "use text or json"},
		{"an unknown flag", nil, []string{"check", "--drivers=x"}, "See 'snapshot-rules check --help' for all flags"},
		{"an argument", nil, append([]string{"check", "words"}, some...), "unknown command"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			out, err := shell{cluster: test.cluster}.run(test.args...)
			g.Expect(err).To(MatchError(ContainSubstring(test.want)))
			g.Expect(out).To(HavePrefix("Error: "))
			g.Expect(out).NotTo(ContainSubstring("Usage:"))
		})
	}
}

func TestCheckTellsOfARuleThatFails(t *testing.T) {
	g := NewWithT(t)
	out, err := shell{}.run("check", "--file", fileWith(t, "- {name: a, when: 'attempts / 0 == 1', verdict: terminal, reason: r}"), "--driver=x", "--message=odd")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(And(ContainSubstring("Warning: rule a could not be evaluated"), ContainSubstring("retryable")))
}

func TestList(t *testing.T) {
	g := NewWithT(t)
	out, err := shell{cluster: fake.NewClientset(configMap(mine))}.run("list")
	g.Expect(err).NotTo(HaveOccurred())
	lines := strings.Split(strings.TrimSpace(out), "\n")
	g.Expect(lines[0]).To(HavePrefix("Your rules: 1, from: ConfigMap velero/clipper-snapshot-error-rules."))
	g.Expect(lines[2]).To(MatchRegexp(`^NAME +VERDICT +DRIVER +CODE +REASON$`))
	g.Expect(lines[3]).To(MatchRegexp(`^pool-full +terminal +- +- +the pool is full$`))
	g.Expect(lines).To(HaveLen(4 + len(rules.BuiltIn().Rules())))
	g.Expect(out).To(MatchRegexp(`(?m)^builtin/claim-not-bound +terminal after 5s +any +none +the claim`))
	g.Expect(out).To(MatchRegexp(`(?m)^builtin/rate-limit +throttled +any +Unavailable and 8 more +the storage`))

	out, err = shell{}.run("list", "--built-in", "-o", "json")
	g.Expect(err).NotTo(HaveOccurred())
	var got struct {
		Rules []map[string]any `json:"rules"`
	}
	g.Expect(json.Unmarshal([]byte(out), &got)).To(Succeed())
	g.Expect(got.Rules).To(HaveLen(len(rules.BuiltIn().Rules())))
	g.Expect(got.Rules[0]).To(And(HaveKeyWithValue("name", "builtin/ebs-volume-rate"), HaveKeyWithValue("kind", "driver"), HaveKeyWithValue("verdict", rules.BuiltIn().Rules()[0].Verdict.String())))
}

func TestHelp(t *testing.T) {
	g := NewWithT(t)
	out, err := shell{}.run()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(And(ContainSubstring("check"), ContainSubstring("list"), ContainSubstring("terminal")))
}

// The cluster is the one of the root command's flags.
func TestClusterOf(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("HOME", t.TempDir())
	kubeconfig := filepath.Join(t.TempDir(), "config")
	g.Expect(os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}]}`), 0o600)).To(Succeed())
	root := &cobra.Command{Use: "velero"}
	root.PersistentFlags().String("kubeconfig", "", "")
	root.PersistentFlags().String("namespace", "", "")
	var got cluster
	root.AddCommand(newCommand(func(c *cobra.Command) (cluster, error) {
		var err error
		got, err = clusterOf(c)
		return cluster{client: fake.NewClientset(), namespace: got.namespace}, err
	}))
	root.SetOut(&bytes.Buffer{})
	root.SetArgs([]string{"snapshot-rules", "list", "--namespace=backup", "--kubeconfig", kubeconfig})
	g.Expect(root.Execute()).To(Succeed())
	g.Expect(got.namespace).To(Equal("backup"))
	g.Expect(got.client).NotTo(BeNil())

	root.SetArgs([]string{"snapshot-rules", "list", "--kubeconfig", "/nowhere"})
	root.SilenceErrors = true
	g.Expect(root.Execute()).To(MatchError(ContainSubstring("without a cluster use --file or --built-in")))
}
