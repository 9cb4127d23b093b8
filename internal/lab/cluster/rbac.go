// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BuiltInRole is the ClusterRole that "velero install" binds.
const BuiltInRole = "cluster-admin"

// grantedLabel marks what Grant has created.
const grantedLabel = "lab.clipper.dev/granted"

// Rights are what UserVelero may do in RBAC mode.
type Rights struct {
	// Role is the name of a ClusterRole that every cluster has, or a path, with a slash in it, of a YAML file with roles and
	// their bindings, or of a folder with a kustomization. Default: BuiltInRole.
	Role string
	// Without are permissions that are taken out of these roles, each as "verb resource.group", such as "watch
	// volumesnapshots.snapshot.storage.k8s.io". RBAC can't deny, so one that a wildcard gives is an error.
	Without []string
}

// Grant replaces all that UserVelero was granted before.
func (c *Cluster) Grant(ctx context.Context, rights Rights) error {
	objects, err := rights.objects()
	if err != nil {
		return fmt.Errorf("reading the rights of %s: %w", UserVelero, err)
	}
	for _, kind := range []client.Object{&rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRole{}} {
		if err := c.admin.DeleteAllOf(ctx, kind, client.HasLabels{grantedLabel}); err != nil {
			return fmt.Errorf("withdrawing the rights of %s: %w", UserVelero, err)
		}
	}
	for _, kind := range []client.Object{&rbacv1.RoleBinding{}, &rbacv1.Role{}} {
		if err := c.admin.DeleteAllOf(ctx, kind, client.HasLabels{grantedLabel}, client.InNamespace(VeleroNamespace)); err != nil {
			return fmt.Errorf("withdrawing the rights of %s: %w", UserVelero, err)
		}
	}
	// It is there when a server is installed, and preflight looks for it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: VeleroNamespace, Name: "velero"}}
	if err := c.admin.Create(ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the service account of Velero: %w", err)
	}
	for _, object := range objects {
		object.SetLabels(map[string]string{grantedLabel: "true"})
		if err := c.create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func (r Rights) objects() ([]client.Object, error) {
	if r.Role == "" {
		r.Role = BuiltInRole
	}
	if !strings.Contains(r.Role, "/") {
		if len(r.Without) > 0 {
			return nil, fmt.Errorf("nothing can be taken out of the built-in role %s: give the path of a role of your own", r.Role)
		}
		return []client.Object{&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "velero"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: VeleroNamespace, Name: "velero"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r.Role},
		}}, nil
	}
	objects, err := readRBAC(r.Role)
	if err != nil {
		return nil, err
	}
	for _, permission := range r.Without {
		if err := takeOut(objects, permission); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// readRBAC reads the RBAC objects of a file, or of the resources of a folder's kustomization, and leaves others out.
func readRBAC(path string) ([]client.Object, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return readRBACFile(path)
	}
	content, err := os.ReadFile(filepath.Join(path, "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal(content, &kustomization); err != nil {
		return nil, fmt.Errorf("reading the kustomization of %s: %w", path, err)
	}
	var objects []client.Object
	for _, resource := range kustomization.Resources {
		found, err := readRBAC(filepath.Join(path, resource))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", resource, err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

func readRBACFile(file string) ([]client.Object, error) {
	content, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	decoder := serializer.NewCodecFactory(Scheme()).UniversalDeserializer()
	documents := yaml.NewDocumentDecoder(content)
	defer documents.Close()
	var objects []client.Object
	buffer := make([]byte, 1<<20)
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object, _, err := decoder.Decode(buffer[:n], nil, nil)
		if err != nil {
			return nil, err
		}
		switch typed := object.(type) {
		case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding, *rbacv1.Role, *rbacv1.RoleBinding:
			objects = append(objects, typed.(client.Object))
		}
	}
}

// takeOut removes one permission from all roles.
func takeOut(objects []client.Object, permission string) error {
	verb, target, ok := strings.Cut(permission, " ")
	resource, group, _ := strings.Cut(target, ".")
	if !ok || resource == "" {
		return fmt.Errorf("%q is no permission: write verb and resource.group, such as \"watch volumesnapshots.snapshot.storage.k8s.io\"", permission)
	}
	found := false
	for _, object := range objects {
		rules := rulesOf(object)
		if rules == nil {
			continue
		}
		var kept []rbacv1.PolicyRule
		for _, rule := range *rules {
			if !grants(rule, verb, resource, group) {
				kept = append(kept, rule)
				continue
			}
			if !slices.Contains(rule.Verbs, verb) || !slices.Contains(rule.Resources, resource) || !slices.Contains(rule.APIGroups, group) {
				return fmt.Errorf("%q can't be taken out of role %s: a wildcard gives it", permission, object.GetName())
			}
			found = true
			kept = append(kept, without(rule, verb, resource)...)
		}
		*rules = kept
	}
	if !found {
		return fmt.Errorf("%q can't be taken out: no role has it", permission)
	}
	return nil
}

func rulesOf(object client.Object) *[]rbacv1.PolicyRule {
	switch role := object.(type) {
	case *rbacv1.ClusterRole:
		return &role.Rules
	case *rbacv1.Role:
		return &role.Rules
	}
	return nil
}

func grants(rule rbacv1.PolicyRule, verb, resource, group string) bool {
	has := func(list []string, value string) bool {
		return slices.Contains(list, value) || slices.Contains(list, "*")
	}
	return has(rule.Verbs, verb) && has(rule.Resources, resource) && has(rule.APIGroups, group)
}

// without splits a rule into one for the other resources and one for the other verbs.
func without(rule rbacv1.PolicyRule, verb, resource string) []rbacv1.PolicyRule {
	others, rest := *rule.DeepCopy(), *rule.DeepCopy()
	others.Resources = slices.DeleteFunc(others.Resources, func(r string) bool { return r == resource })
	rest.Resources = []string{resource}
	rest.Verbs = slices.DeleteFunc(rest.Verbs, func(v string) bool { return v == verb })
	var out []rbacv1.PolicyRule
	if len(others.Resources) > 0 {
		out = append(out, others)
	}
	if len(rest.Verbs) > 0 {
		out = append(out, rest)
	}
	return out
}
