// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshotrules

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/vmware-tanzu/velero/pkg/client"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/velero-clipper/clipper/pkg/snapshot/rules"
)

// cluster is where a ConfigMap is read from.
type cluster struct {
	client    kubernetes.Interface
	namespace string
}

// clusterOf makes a client for the cluster and namespace that the command line names, as Velero's own commands do.
func clusterOf(c *cobra.Command) (cluster, error) {
	file, err := client.LoadConfig()
	if err != nil {
		return cluster{}, fmt.Errorf("reading Velero's client configuration: %w", err)
	}
	factory := client.NewFactory("velero-snapshot-rules", file)
	own := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	factory.BindFlags(own)
	var errs []error
	own.VisitAll(func(flag *pflag.Flag) {
		if given := c.Flag(flag.Name); given != nil && given.Changed {
			errs = append(errs, flag.Value.Set(given.Value.String()))
		}
	})
	kube, err := factory.KubeClient()
	return cluster{client: kube, namespace: factory.Namespace()}, errors.Join(append(errs, err)...)
}

// source says which rules a command is about.
type source struct {
	file      string
	builtIn   bool
	configMap string
	// cluster connects to the cluster; it is only called when the ConfigMap is wanted.
	cluster func() (cluster, error)
}

func (s *source) bind(flags *pflag.FlagSet) {
	flags.StringVarP(&s.file, "file", "f", "", "Take your rules from this file, a list of rules or the manifest of the ConfigMap, and not from the cluster.")
	flags.BoolVar(&s.builtIn, "built-in", false, "Take the built-in rules only. No cluster is needed.")
	flags.StringVar(&s.configMap, "csi-snapshot-error-rules", rules.DefaultConfigMap, "The ConfigMap with your rules, as in the server's flag of this name.")
}

// load returns the rules and, in words, where those of the platform are from.
func (s *source) load(ctx context.Context) (*rules.Set, string, error) {
	switch {
	case s.builtIn && s.file != "":
		return nil, "", errors.New("--built-in and --file exclude each other")
	case s.builtIn:
		return rules.BuiltIn(), "none", nil
	case s.file != "":
		text, err := os.ReadFile(s.file)
		if err != nil {
			return nil, "", fmt.Errorf("reading the rules: %w", err)
		}
		set, err := rules.FromFile(s.file, string(text))
		return set, "file " + s.file, err
	}
	cluster, err := s.cluster()
	if err != nil {
		return nil, "", fmt.Errorf("finding the cluster whose rules are asked about: %w; without a cluster use --file or --built-in", err)
	}
	where := fmt.Sprintf("ConfigMap %s/%s", cluster.namespace, s.configMap)
	configMap, err := cluster.client.CoreV1().ConfigMaps(cluster.namespace).Get(ctx, s.configMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return rules.BuiltIn(), where + ", which does not exist", nil
	case err != nil:
		return nil, "", fmt.Errorf("reading %s: %w; without a cluster use --file or --built-in", where, err)
	}
	set, err := rules.FromConfigMap(configMap)
	if err != nil {
		return nil, "", fmt.Errorf("%w\nthe server goes on with the rules that it had, or the built-in ones when it was started since", err)
	}
	return set, where, nil
}
