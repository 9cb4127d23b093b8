// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"
)

// configFile reads an object of config/rbac.
func configFile(t *testing.T, name string, into any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func granted(rules []rbacv1.PolicyRule, p Permission) bool {
	has := func(list []string, value string) bool {
		return slices.Contains(list, value) || slices.Contains(list, "*")
	}
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return has(rule.Verbs, p.Verb) && has(rule.APIGroups, p.Group) && has(rule.Resources, p.Resource)
	})
}

// TestConfigGrantsWhatTheServerNeeds holds config/rbac and Permissions together.
func TestConfigGrantsWhatTheServerNeeds(t *testing.T) {
	g := NewWithT(t)
	var (
		clusterRole    rbacv1.ClusterRole
		clusterBinding rbacv1.ClusterRoleBinding
		role           rbacv1.Role
		binding        rbacv1.RoleBinding
		kustomization  struct {
			APIVersion, Kind, Namespace string
			Resources                   []string
		}
	)
	configFile(t, "cluster_role.yaml", &clusterRole)
	configFile(t, "cluster_role_binding.yaml", &clusterBinding)
	configFile(t, "role.yaml", &role)
	configFile(t, "role_binding.yaml", &binding)
	configFile(t, "kustomization.yaml", &kustomization)

	permissions := Permissions(role.Namespace)
	g.Expect(permissions).NotTo(BeEmpty())
	for _, p := range permissions {
		rules := clusterRole.Rules
		if p.Namespace == role.Namespace {
			rules = append(slices.Clone(rules), role.Rules...)
		}
		g.Expect(granted(rules, p)).To(BeTrue(), "config/rbac doesn't grant %+v", p)
	}

	g.Expect(clusterBinding.RoleRef).To(Equal(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole.Name}))
	g.Expect(binding.RoleRef).To(Equal(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}))
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: role.Namespace, Name: "velero"}}
	g.Expect(clusterBinding.Subjects).To(Equal(subject))
	g.Expect(binding.Subjects).To(Equal(subject))
	g.Expect(binding.Namespace).To(Equal(role.Namespace))

	files, err := filepath.Glob(filepath.Join("..", "..", "config", "rbac", "*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	listed := append(slices.Clone(kustomization.Resources), "kustomization.yaml")
	g.Expect(listed).To(HaveLen(len(files)), "every file is part of the base")
	for _, file := range files {
		g.Expect(listed).To(ContainElement(filepath.Base(file)))
	}
}

// TestConfigGrantsNoMore names the only wildcards: what is added to the roles by convenience is seen here.
func TestConfigGrantsNoMore(t *testing.T) {
	g := NewWithT(t)
	var clusterRole rbacv1.ClusterRole
	configFile(t, "cluster_role.yaml", &clusterRole)
	for _, rule := range clusterRole.Rules {
		g.Expect(rule.Verbs).NotTo(ContainElement("*"))
		if slices.Contains(rule.Resources, "*") {
			g.Expect(rule.Verbs).To(ConsistOf("get", "list"))
		}
	}
	for _, p := range []Permission{
		{Verb: "create", Resource: "pods"}, {Verb: "delete", Resource: "persistentvolumeclaims"}, {Verb: "create", Resource: "secrets"},
		{Verb: "update", Group: "snapshot.storage.k8s.io", Resource: "volumesnapshotclasses"}, {Verb: "impersonate", Resource: "users"},
	} {
		g.Expect(granted(clusterRole.Rules, p)).To(BeFalse(), "%+v", p)
	}
}

func TestAccessReviews(t *testing.T) {
	g := NewWithT(t)
	client := fake.NewClientset()
	var asked []any
	client.PrependReactor("create", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		switch review := action.(k8stesting.CreateAction).GetObject().(type) {
		case *authorizationv1.SelfSubjectAccessReview:
			asked = append(asked, *review.Spec.ResourceAttributes)
			review.Status.Allowed = true
			return true, review, nil
		case *authorizationv1.SubjectAccessReview:
			asked = append(asked, review.Spec)
			review.Status.EvaluationError = "no webhook"
			return true, review, nil
		case *authenticationv1.SelfSubjectReview:
			review.Status.UserInfo.Username = "alice"
			return true, review, nil
		}
		return false, nil, nil
	})
	ctx := context.Background()
	exec := Permission{Verb: "create", Resource: "pods/exec"}
	attributes := authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "exec"}

	self := Self{Authorization: client.AuthorizationV1(), Authentication: client.AuthenticationV1()}
	g.Expect(self.Allowed(ctx, exec)).To(BeTrue())
	who, own := self.Who(ctx)
	g.Expect(who).To(Equal("user alice"))
	g.Expect(own).To(BeTrue())

	account := ServiceAccount{Authorization: client.AuthorizationV1(), Namespace: "ns", Name: "sa"}
	_, err := account.Allowed(ctx, exec)
	g.Expect(err).To(MatchError(ContainSubstring("no webhook")))
	who, own = account.Who(ctx)
	g.Expect(who).To(Equal("ServiceAccount ns/sa"))
	g.Expect(own).To(BeFalse())

	g.Expect(asked).To(Equal([]any{attributes, authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &attributes, User: "system:serviceaccount:ns:sa",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"},
	}}))
}
