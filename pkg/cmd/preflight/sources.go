// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/vmware-tanzu/velero/pkg/client"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/velero-clipper/clipper/pkg/preflight"
)

// qps and burst let the fifty or so requests through at once.
const qps, burst = 50, 100

// clusterSources reads from the cluster that the command line names.
func clusterSources(c *cobra.Command) sources {
	return func(account string) (preflight.Sources, error) {
		factory, err := factoryFor(c)
		if err != nil {
			return preflight.Sources{}, err
		}
		out, err := SourcesFrom(factory)
		if err != nil || account == "" {
			return out, err
		}
		kube, err := factory.KubeClient()
		if err != nil {
			return preflight.Sources{}, err
		}
		out.Access, err = accessOf(c.Context(), kube, account)
		return out, err
	}
}

// accessOf answers for a service account. The cluster would answer for one that doesn't exist, too, that it may do nothing; so
// this asks first, and lets it pass when asking isn't allowed.
func accessOf(ctx context.Context, kube kubernetes.Interface, account string) (preflight.Access, error) {
	namespace, name, ok := strings.Cut(account, "/")
	if !ok || namespace == "" || name == "" {
		return nil, fmt.Errorf("--as-service-account=%s is no namespace/name, such as velero/velero", account)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := kube.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("--as-service-account=%s: there is no ServiceAccount %s in namespace %s; see kubectl get serviceaccounts --namespace %s",
			account, name, namespace, namespace)
	}
	return preflight.ServiceAccount{Authorization: kube.AuthorizationV1(), Namespace: namespace, Name: name}, nil
}

// SourcesFrom reads with the rights that the factory's clients have, past any cache.
func SourcesFrom(factory client.Factory) (preflight.Sources, error) {
	kube, err := factory.KubeClient()
	if err != nil {
		return preflight.Sources{}, err
	}
	cluster, err := factory.KubebuilderClient()
	if err != nil {
		return preflight.Sources{}, fmt.Errorf("making a client for the cluster: %w", err)
	}
	return preflight.Sources{
		Cluster:   cluster,
		Discovery: kube.Discovery(),
		Access:    preflight.Self{Authorization: kube.AuthorizationV1(), Authentication: kube.AuthenticationV1()},
		Namespace: factory.Namespace(),
	}, nil
}

// factoryFor makes a factory of our own that is set as the root command's is: Velero hands that one out to its own commands only.
func factoryFor(c *cobra.Command) (client.Factory, error) {
	config, err := client.LoadConfig()
	if err != nil {
		return nil, fmt.Errorf("reading Velero's client configuration: %w", err)
	}
	factory := client.NewFactory("velero-preflight", config)
	flags := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	factory.BindFlags(flags)
	var errs []error
	flags.VisitAll(func(flag *pflag.Flag) {
		if given := c.Flag(flag.Name); given != nil && given.Changed {
			errs = append(errs, flag.Value.Set(given.Value.String()))
		}
	})
	factory.SetClientQPS(qps)
	factory.SetClientBurst(burst)
	return factory, errors.Join(errs...)
}
