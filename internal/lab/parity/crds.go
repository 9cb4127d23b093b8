// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

// crd makes a CRD whose versions are all alike; the last one is stored.
func crd(kind, plural string, scope apiextensionsv1.ResourceScope, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	out := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".parity.clipper.dev"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "parity.clipper.dev", Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural},
		},
	}
	for i, version := range versions {
		out.Spec.Versions = append(out.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == len(versions)-1,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: ptr.To(true),
			}},
		})
	}
	return out
}

// installCRDs makes the suite's own kinds and waits until they are served.
func installCRDs(ctx context.Context, c *cluster.Cluster) error {
	missing := map[string]bool{}
	for _, definition := range []*apiextensionsv1.CustomResourceDefinition{
		crd("Widget", "widgets", apiextensionsv1.NamespaceScoped, "v1beta1", "v1"),
		crd("Gadget", "gadgets", apiextensionsv1.ClusterScoped, "v1"),
	} {
		missing[definition.Name] = true
		if err := c.Client().Create(ctx, definition); err != nil {
			return fmt.Errorf("creating CRD %s: %w", definition.Name, err)
		}
	}
	return cluster.Await(ctx, c.Client(), &apiextensionsv1.CustomResourceDefinitionList{}, func(event watch.Event) (bool, error) {
		definition, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return false, nil
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				delete(missing, definition.Name)
			}
		}
		return len(missing) == 0, nil
	})
}
