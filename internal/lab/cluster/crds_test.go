// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const (
	crdDocument = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: as.example.org}
spec: {group: example.org, scope: Namespaced, names: {plural: as, kind: A}}
`
	crdListDocument = `
apiVersion: v1
kind: List
items:
- apiVersion: apiextensions.k8s.io/v1
  kind: CustomResourceDefinition
  metadata: {name: bs.example.org}
- apiVersion: v1
  kind: Namespace
  metadata: {name: velero}
`
)

func names(crds []*apiextensionsv1.CustomResourceDefinition) []string {
	var all []string
	for _, crd := range crds {
		all = append(all, crd.Name)
	}
	return all
}

func TestParseCRDs(t *testing.T) {
	cases := map[string]struct {
		content string
		want    []string
	}{
		"one":             {content: crdDocument, want: []string{"as.example.org"}},
		"a list":          {content: crdListDocument, want: []string{"bs.example.org"}},
		"documents":       {content: crdDocument + "---\n" + crdListDocument, want: []string{"as.example.org", "bs.example.org"}},
		"something else":  {content: "kind: Kustomization\nresources: [a.yaml]\n"},
		"empty":           {content: ""},
		"empty documents": {content: "---\n---\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			crds, err := parseCRDs([]byte(tc.content))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(names(crds)).To(Equal(tc.want))
		})
	}
	_, err := parseCRDs([]byte("{"))
	NewWithT(t).Expect(err).To(HaveOccurred())
}

func TestCRDsFromDir(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	_, err := crdsFromDir(dir)
	g.Expect(err).To(MatchError(ContainSubstring("no CRD in " + dir)))
	g.Expect(os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(crdDocument), 0o644)).To(Succeed())
	crds, err := crdsFromDir(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(crds)).To(Equal([]string{"as.example.org"}))
	g.Expect(os.WriteFile(filepath.Join(dir, "b.yaml"), []byte("{"), 0o644)).To(Succeed())
	_, err = crdsFromDir(dir)
	g.Expect(err).To(MatchError(ContainSubstring("b.yaml")))
}

// script writes an executable that stands for a velero binary.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "velero")
	NewWithT(t).Expect(os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755)).To(Succeed())
	return path
}

func TestVeleroCRDs(t *testing.T) {
	t.Run("printed", func(t *testing.T) {
		g := NewWithT(t)
		crds, err := veleroCRDs(t.Context(), script(t, "cat <<EOF"+crdListDocument+"EOF\n"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(names(crds)).To(Equal([]string{"bs.example.org"}))
	})
	for name, body := range map[string]string{"it printed none": "exit 0", "unknown command": "echo unknown command >&2; exit 1"} {
		t.Run(name, func(t *testing.T) {
			_, err := veleroCRDs(t.Context(), script(t, body))
			NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("install --crds-only"), ContainSubstring(name))))
		})
	}
}

// watches is a client that plays one list of events after another, and fails when they are used up.
func watches(lists ...[]watch.Event) client.WithWatch {
	base := fake.NewClientBuilder().WithScheme(Scheme()).WithStatusSubresource(&apiextensionsv1.CustomResourceDefinition{}).Build()
	return interceptor.NewClient(base, interceptor.Funcs{
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			if len(lists) == 0 {
				return nil, errors.New("no more events")
			}
			events := watch.NewFakeWithChanSize(len(lists[0]), false)
			for _, event := range lists[0] {
				events.Action(event.Type, event.Object)
			}
			if len(lists) > 1 {
				events.Stop() // as a server does from time to time
			}
			lists = lists[1:]
			return events, nil
		},
	})
}

func crd(name string, since time.Duration) *apiextensionsv1.CustomResourceDefinition {
	object := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if since > 0 {
		object.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-since)),
		}}
	}
	return object
}

func TestAwait(t *testing.T) {
	added := func(name string) watch.Event { return watch.Event{Type: watch.Added, Object: crd(name, 0)} }
	seen := func(want string) func(watch.Event) (bool, error) {
		return func(event watch.Event) (bool, error) {
			return event.Object.(client.Object).GetName() == want, nil
		}
	}
	list := &apiextensionsv1.CustomResourceDefinitionList{}

	t.Run("found", func(t *testing.T) {
		NewWithT(t).Expect(Await(t.Context(), watches([]watch.Event{added("a"), added("b")}), list, seen("b"))).To(Succeed())
	})
	t.Run("found after an interruption", func(t *testing.T) {
		c := watches([]watch.Event{added("a")}, []watch.Event{added("a"), added("b")})
		NewWithT(t).Expect(Await(t.Context(), c, list, seen("b"))).To(Succeed())
	})
	t.Run("an error of the server", func(t *testing.T) {
		gone := apierrors.NewResourceExpired("too old")
		c := watches([]watch.Event{{Type: watch.Error, Object: &gone.ErrStatus}})
		NewWithT(t).Expect(Await(t.Context(), c, list, seen("b"))).To(MatchError(ContainSubstring("too old")))
	})
	t.Run("no watch", func(t *testing.T) {
		NewWithT(t).Expect(Await(t.Context(), watches(), list, seen("b"))).To(MatchError(ContainSubstring("no more events")))
	})
	t.Run("an error of the condition", func(t *testing.T) {
		err := Await(t.Context(), watches([]watch.Event{added("a")}), list, func(watch.Event) (bool, error) {
			return false, errors.New("that one is broken")
		})
		NewWithT(t).Expect(err).To(MatchError("that one is broken"))
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		NewWithT(t).Expect(Await(ctx, watches(nil), list, seen("b"))).To(MatchError("enough"))
	})
}

func TestAwaitEstablished(t *testing.T) {
	g := NewWithT(t)
	const used, other = "backups.velero.io", "others.velero.io"
	current := crd(used, time.Second)
	current.ResourceVersion = "1"
	events := []watch.Event{
		{Type: watch.Added, Object: crd(used, 0)},
		{Type: watch.Added, Object: crd(other, time.Second)},   // being established is enough for it
		{Type: watch.Modified, Object: crd(used, time.Second)}, // out of date: the update is refused, and that's all right
		{Type: watch.Modified, Object: current},                // is made to look older
		{Type: watch.Modified, Object: crd(used, 3*time.Minute)},
	}
	c := &Cluster{admin: watches(events)}
	g.Expect(c.admin.Create(t.Context(), crd(used, 0))).To(Succeed())
	g.Expect(c.awaitEstablished(t.Context(), []*apiextensionsv1.CustomResourceDefinition{crd(used, 0), crd(other, 0)})).To(Succeed())

	stored := &apiextensionsv1.CustomResourceDefinition{}
	g.Expect(c.admin.Get(t.Context(), client.ObjectKey{Name: used}, stored)).To(Succeed())
	condition := established(stored)
	g.Expect(condition).NotTo(BeNil())
	g.Expect(time.Since(condition.LastTransitionTime.Time)).To(BeNumerically(">", settled))
}
