// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"fmt"
	"math/rand/v2"
	"strings"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Generate makes a random cluster with a random backup. The same seed makes the same case. What it makes is valid for
// Velero most of the time, and small, so that a difference can be understood.
func Generate(seed uint64) (Case, error) {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // a seed must give the same case again
	c := Case{Random: true, Name: fmt.Sprintf("seed-%d", seed), File: fmt.Sprintf("make parity SEED=%d N=1", seed)}
	g.world(&c)
	g.filters(&c.Spec)
	g.selectors(&c.Spec)
	g.order(&c.Spec)
	g.hooks(&c)
	g.plugins(&c)
	g.sidestep(&c)
	g.policy(&c)
	c.Unordered = len(c.Plugins.Actions) > 0
	return c, c.complete()
}

// generator makes one case; what it has put into the cluster is remembered for the parts that refer to it.
type generator struct {
	*rand.Rand
	namespaces []string
	// namespaced and clustered are the objects, pods and claims those of these kinds.
	namespaced, clustered []Item
	pods                  []Item
}

// chance is true once in n times.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

// some gives a random part of a list, in its order.
func some[T any](g *generator, from []T) []T {
	var out []T
	for _, one := range from {
		if g.chance(2) {
			out = append(out, one)
		}
	}
	return out
}

const (
	mostClaims  = 2 // with a CSI volume; stock takes a second for each
	mostObjects = 5 // in a namespace, of the cheap kinds
)

// names of namespaces: two share a beginning, for wildcards.
var namespaceNames = []string{"app-a", "app-b", "data", "web"}

// plainKinds are kinds without a meaning for Velero; clusterKinds are those without a namespace.
var (
	plainKinds   = []string{"ConfigMap", "ConfigMap", "Secret", "ServiceAccount", "Deployment", "Widget"}
	clusterKinds = []string{"Gadget", "ClusterRole", "StorageClass"}
)

// resources are the plural names of the kinds that filters name.
var (
	namespacedResources = []string{"configmaps", "secrets", "serviceaccounts", "deployments.apps", "widgets", "pods", "persistentvolumeclaims"}
	clusterResources    = []string{"gadgets", "clusterroles", "storageclasses", "persistentvolumes"}
)

func (g *generator) world(c *Case) {
	g.namespaces = namespaceNames[:2+g.IntN(len(namespaceNames)-1)]
	claims := 0
	for _, namespace := range g.namespaces {
		labels := ""
		if g.chance(6) {
			labels = g.labels()
		}
		c.World = append(c.World, g.item("Namespace", "", namespace, labels))
		for n := range g.IntN(mostObjects + 1) {
			g.add(c, &g.namespaced, g.item(pick(g, plainKinds), namespace, fmt.Sprintf("o%d", n), g.labels()))
		}
		g.volumes(c, namespace, &claims)
	}
	for n := range g.IntN(4) {
		g.add(c, &g.clustered, g.item(pick(g, clusterKinds), "", fmt.Sprintf("c%d", n), g.labels()))
	}
}

// volumes adds claims and pods to a namespace.
func (g *generator) volumes(c *Case, namespace string, claims *int) {
	var own []string
	for n := range g.IntN(3) {
		claim := g.item("PersistentVolumeClaim", namespace, fmt.Sprintf("v%d", n), g.labels())
		claim.Volume = volumeNFS
		if *claims < mostClaims && g.chance(2) {
			claim.Volume = volumeCSI
			*claims++
		}
		own = append(own, claim.name)
		g.add(c, &g.namespaced, claim)
	}
	for n := range g.IntN(3) {
		pod := g.item("Pod", namespace, fmt.Sprintf("p%d", n), g.labels())
		pod.Claims = some(g, own)
		if g.chance(8) {
			pod.Phase = pick(g, []string{"Succeeded", "Failed", "Pending"})
		}
		if g.chance(4) {
			pod.Annotations = map[string]string{"pre.hook.backup.velero.io/command": g.command("freeze"), "post.hook.backup.velero.io/command": g.command("thaw")}
			if g.chance(2) {
				pod.Annotations["pre.hook.backup.velero.io/on-error"] = pick(g, []string{"Fail", "Continue"})
			}
		}
		g.pods = append(g.pods, pod)
		g.add(c, &g.namespaced, pod)
	}
}

// item makes an object with its text, as if it had been read.
func (g *generator) item(kind, namespace, name, labels string) Item {
	full := name
	if namespace != "" {
		full = namespace + "/" + name
	}
	return Item{Object: strings.TrimSpace(kind + " " + full + " " + labels), kind: kind, namespace: namespace, name: name}
}

func (g *generator) add(c *Case, to *[]Item, item Item) {
	*to = append(*to, item)
	c.World = append(c.World, item)
}

func (g *generator) labels() string {
	var words []string
	if g.chance(2) {
		words = append(words, "x="+pick(g, []string{"1", "2"}))
	}
	if g.chance(4) {
		words = append(words, "y=1")
	}
	if g.chance(15) {
		words = append(words, velerov1.ExcludeFromBackupLabel+"=true")
	}
	return strings.Join(words, " ")
}

// command is one that succeeds, most of the time.
func (g *generator) command(name string) string {
	if g.chance(8) {
		return failingCommand
	}
	return name
}

const failingCommand = "boom"

// filters chooses namespaces and resources, in the old style, the scoped style, or not at all.
func (g *generator) filters(spec *velerov1.BackupSpec) {
	switch g.IntN(5) {
	case 0:
	case 1:
		spec.IncludedNamespaces = []string{pick(g, []string{"app-*", "*", "*a*", "we?", "app-[ab]"})}
	default:
		spec.IncludedNamespaces = some(g, g.namespaces)
	}
	if g.chance(5) {
		spec.ExcludedNamespaces = []string{pick(g, []string{"data", "*-b", "web"})}
		if len(spec.IncludedNamespaces) > 0 {
			spec.IncludedNamespaces = []string{"app-*"}
		}
	}
	if g.chance(12) {
		spec.IncludedNamespaces = append(spec.IncludedNamespaces, "missing")
	}
	switch g.IntN(4) {
	case 0:
		g.oldFilters(spec)
	case 1:
		spec.IncludedNamespaceScopedResources, spec.ExcludedNamespaceScopedResources = g.split(namespacedResources)
		spec.IncludedClusterScopedResources, spec.ExcludedClusterScopedResources = g.split(clusterResources)
	}
}

func (g *generator) oldFilters(spec *velerov1.BackupSpec) {
	spec.IncludedResources, spec.ExcludedResources = g.split(append(append([]string{}, namespacedResources...), clusterResources...))
	switch g.IntN(3) {
	case 0:
		spec.IncludeClusterResources = ptr.To(true)
	case 1:
		spec.IncludeClusterResources = ptr.To(false)
	}
}

// split gives includes and excludes that don't overlap; both may be empty.
func (g *generator) split(all []string) (in, out []string) {
	for _, one := range all {
		switch g.IntN(6) {
		case 0, 1:
			in = append(in, one)
		case 2:
			out = append(out, one)
		}
	}
	switch g.IntN(4) {
	case 0:
		in = nil
	case 1:
		out = nil
	case 2:
		return nil, nil
	}
	return in, out
}

func (g *generator) selectors(spec *velerov1.BackupSpec) {
	one := func() *metav1.LabelSelector {
		if g.chance(4) {
			return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "y", Operator: metav1.LabelSelectorOpDoesNotExist}}}
		}
		return &metav1.LabelSelector{MatchLabels: map[string]string{"x": pick(g, []string{"1", "2"})}}
	}
	switch g.IntN(6) {
	case 0:
		spec.LabelSelector = one()
	case 1:
		spec.OrLabelSelectors = []*metav1.LabelSelector{one(), {MatchLabels: map[string]string{"y": "1"}}}
	}
}

// order asks for an order of resources that one can see.
func (g *generator) order(spec *velerov1.BackupSpec) {
	if !g.chance(4) {
		return
	}
	spec.OrderedResources = map[string]string{}
	for kind, resource := range map[string]string{"ConfigMap": "configmaps", "Pod": "pods"} {
		var names []string
		for _, item := range g.namespaced {
			if item.kind == kind {
				names = append([]string{item.namespace + "/" + item.name}, names...)
			}
		}
		if len(names) > 0 {
			spec.OrderedResources[resource] = strings.Join(names, ",")
		}
	}
}

// hooks adds hooks to the spec.
func (g *generator) hooks(c *Case) {
	c.Commands = []Command{{Command: failingCommand, Exit: 1}}
	if !g.chance(4) {
		return
	}
	hook := func(name string) []velerov1.BackupResourceHook {
		command := velerov1.ExecHook{Command: []string{g.command(name)}}
		if g.chance(2) {
			command.OnError = pick(g, []velerov1.HookErrorMode{velerov1.HookErrorModeFail, velerov1.HookErrorModeContinue})
		}
		return []velerov1.BackupResourceHook{{Exec: &command}}
	}
	c.Spec.Hooks.Resources = []velerov1.BackupResourceHookSpec{{
		Name: "first", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"x": "1"}}, PreHooks: hook("one"), PostHooks: hook("two"),
	}, {Name: "second", IncludedNamespaces: some(g, g.namespaces), PreHooks: append(hook("three"), hook("four")...)}}
}
