// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/velero-clipper/clipper/pkg/preflight"
)

func TestAccessOfAServiceAccount(t *testing.T) {
	kube := fake.NewSimpleClientset(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "server"}})
	for account, want := range map[string]string{
		"velero/server":  "",
		"velero/servant": "there is no ServiceAccount servant in namespace velero",
		"backup/server":  "there is no ServiceAccount server in namespace backup",
		"server":         "is no namespace/name",
		"/server":        "is no namespace/name",
		"velero/":        "is no namespace/name",
	} {
		t.Run(account, func(t *testing.T) {
			g := NewWithT(t)
			access, err := accessOf(t.Context(), kube, account)
			if want != "" {
				g.Expect(err).To(MatchError(ContainSubstring(want)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(access).To(BeAssignableToTypeOf(preflight.ServiceAccount{}))
		})
	}
}

func TestAccessOfAServiceAccountThatMayNotBeRead(t *testing.T) {
	g := NewWithT(t)
	kube := fake.NewSimpleClientset()
	kube.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	_, err := accessOf(t.Context(), kube, "velero/server")
	g.Expect(err).NotTo(HaveOccurred(), "whoever may create SubjectAccessReviews need not be allowed to read ServiceAccounts")
}
