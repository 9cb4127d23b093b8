// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
)

const roleFile = `apiVersion: v1
kind: ServiceAccount
metadata: {name: velero, namespace: velero}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: r}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: [get, list]}
- {apiGroups: [g], resources: [a, b], verbs: [create, watch]}
`

func TestRightsAreReadAndTakenOut(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(dir, "role.yaml"), []byte(roleFile), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: [role.yaml]\n"), 0o600)).To(Succeed())

	objects, err := Rights{Role: dir, Without: []string{"watch a.g"}}.objects()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(1), "the service account is not about rights")
	g.Expect(objects[0].(*rbacv1.ClusterRole).Rules).To(Equal([]rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"g"}, Resources: []string{"b"}, Verbs: []string{"create", "watch"}},
		{APIGroups: []string{"g"}, Resources: []string{"a"}, Verbs: []string{"create"}},
	}))

	for permission, complaint := range map[string]string{
		"list a.g":  "a wildcard gives it",
		"patch a.g": "no role has it",
		"a.g":       "is no permission",
	} {
		_, err := Rights{Role: dir, Without: []string{permission}}.objects()
		g.Expect(err).To(MatchError(ContainSubstring(complaint)), permission)
	}
}

func TestRightsDefaultToThoseOfVelerosInstaller(t *testing.T) {
	g := NewWithT(t)
	objects, err := Rights{}.objects()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(1))
	g.Expect(objects[0].(*rbacv1.ClusterRoleBinding).RoleRef.Name).To(Equal(BuiltInRole))
	_, err = Rights{Without: []string{"watch a.g"}}.objects()
	g.Expect(err).To(MatchError(ContainSubstring("built-in")))
}
