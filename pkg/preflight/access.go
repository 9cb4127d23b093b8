// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// maxReviews is how many access reviews are asked for at once.
const maxReviews = 8

// Access answers whether somebody may do something. It must be safe for concurrent use.
type Access interface {
	// Allowed asks the cluster.
	Allowed(ctx context.Context, permission Permission) (bool, error)
	// Who is asked about, for people; own is true when it is the one who asks.
	Who(ctx context.Context) (name string, own bool)
}

// review asks for all permissions.
func review(ctx context.Context, access Access, permissions []Permission) Rights {
	var out Rights
	out.Who, out.Own = access.Who(ctx)
	allowed, errs := make([]bool, len(permissions)), make([]error, len(permissions))
	var group errgroup.Group
	group.SetLimit(maxReviews)
	for i, permission := range permissions {
		group.Go(func() error {
			allowed[i], errs[i] = access.Allowed(ctx, permission)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	for i, permission := range permissions {
		if errs[i] != nil {
			out.Err = errs[i] // one is enough: they are all the same
		} else if !allowed[i] {
			out.Missing = append(out.Missing, permission)
		}
	}
	return out
}

func attributes(p Permission) *authorizationv1.ResourceAttributes {
	resource, subresource, _ := strings.Cut(p.Resource, "/")
	return &authorizationv1.ResourceAttributes{
		Namespace: p.Namespace, Verb: p.Verb, Group: p.Group, Resource: resource, Subresource: subresource,
	}
}

// Self answers for the one whose credentials the clients have.
type Self struct {
	Authorization  authorizationclient.SelfSubjectAccessReviewsGetter
	Authentication authenticationclient.SelfSubjectReviewsGetter
}

// Allowed implements Access.
func (s Self) Allowed(ctx context.Context, p Permission) (bool, error) {
	review, err := s.Authorization.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes(p)},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("creating a SelfSubjectAccessReview: %w", err)
	}
	return decision(review.Status)
}

// Who implements Access.
func (s Self) Who(ctx context.Context) (string, bool) {
	review, err := s.Authentication.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username == "" {
		return "the present user", true // old clusters can't say who it is
	}
	return "user " + review.Status.UserInfo.Username, true
}

// ServiceAccount answers for a service account, to one who may create SubjectAccessReviews.
type ServiceAccount struct {
	Authorization   authorizationclient.SubjectAccessReviewsGetter
	Namespace, Name string
}

// Allowed implements Access.
func (s ServiceAccount) Allowed(ctx context.Context, p Permission) (bool, error) {
	review, err := s.Authorization.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: attributes(p),
			User:               "system:serviceaccount:" + s.Namespace + ":" + s.Name,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + s.Namespace, "system:authenticated"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("creating a SubjectAccessReview: %w", err)
	}
	return decision(review.Status)
}

// Who implements Access.
func (s ServiceAccount) Who(context.Context) (string, bool) {
	return "ServiceAccount " + s.Namespace + "/" + s.Name, false
}

func decision(status authorizationv1.SubjectAccessReviewStatus) (bool, error) {
	if !status.Allowed && status.EvaluationError != "" {
		return false, errors.New("the cluster couldn't decide: " + status.EvaluationError)
	}
	return status.Allowed, nil
}
