// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/velero-clipper/clipper/internal/lab/recorder"
)

// plurals are the resources of the kinds that plugins name.
var plurals = map[string]string{
	"ConfigMap": "configmaps", "Secret": "secrets", "ServiceAccount": "serviceaccounts", "Deployment": "deployments.apps",
	"Widget": "widgets.parity.clipper.dev", "Gadget": "gadgets.parity.clipper.dev", "Pod": "pods",
	"PersistentVolumeClaim": "persistentvolumeclaims", "ClusterRole": "clusterroles.rbac.authorization.k8s.io",
	"StorageClass": "storageclasses.storage.k8s.io",
}

// key is what the rules of the recorder match.
func (i Item) key() string {
	if i.namespace == "" {
		return i.kind + " " + i.name
	}
	return i.kind + " " + i.namespace + "/" + i.name
}

// reference is how a plugin names an item.
func (i Item) reference() string {
	if i.namespace == "" {
		return plurals[i.kind] + " " + i.name
	}
	return plurals[i.kind] + " " + i.namespace + "/" + i.name
}

// plugins lets the recorder do something with a few items.
func (g *generator) plugins(c *Case) {
	all := append(append([]Item{}, g.namespaced...), g.clustered...)
	if len(all) == 0 || !g.chance(2) {
		return
	}
	c.Plugins.Actions = map[string]recorder.Action{}
	for _, name := range []string{"recorder-v1", "recorder-v2", "recorder-block"} {
		var action recorder.Action
		for range g.IntN(3) {
			action.Rules = append(action.Rules, g.rule(name, all))
		}
		c.Plugins.Actions[name] = action
	}
}

// rule is what one plugin does with one item.
func (g *generator) rule(plugin string, all []Item) recorder.Rule {
	rule := recorder.Rule{Match: pick(g, all).key()}
	switch g.IntN(8) {
	case 0:
		rule.Error = "told to fail"
	case 1:
		rule.Skip = plugin != "recorder-block"
	case 2:
		rule.Labels = map[string]string{"seen": "yes"}
	case 3:
		rule.Items = []string{"configmaps nowhere/none"}
	case 4:
		rule.Operation = plugin + "-" + rule.Match
		rule.PostItems = []string{pick(g, all).reference()}
	default:
		rule.Items = []string{pick(g, all).reference(), pick(g, all).reference()}
		rule.MustInclude = g.chance(3) && plugin != "recorder-block"
	}
	return rule
}

// policy gives the backup a resource policy that decides about volumes.
func (g *generator) policy(c *Case) {
	if !g.chance(5) {
		return
	}
	action := pick(g, []string{"skip", "snapshot", "custom"})
	condition := pick(g, []object{
		{"csi": object{"driver": DriverName}}, {"nfs": object{}}, {"pvcLabels": object{"x": "1"}}, {"capacity": "0,2Gi"},
	})
	c.Velero = append(c.Velero, Item{Object: "ConfigMap policy", Data: map[string]any{"policy": object{
		"version": "v1", "volumePolicies": []any{object{"conditions": condition, "action": object{"type": action}}},
	}}})
	c.Spec.ResourcePolicy = &corev1.TypedLocalObjectReference{Kind: "configmap", Name: "policy"}
}
