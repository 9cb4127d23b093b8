// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// manyClaims adds claims that no pod uses, and counts how their volumes are read.
func (c *cluster) manyClaims(count int, answer func(verb string) error) (asked map[string]int) {
	asked = map[string]int{}
	for i := range count {
		c.claims(fmt.Sprintf("claim-%02d", i))
	}
	c.dynamic.PrependReactor("*", "persistentvolumes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked[action.GetVerb()]++
		if err := answer(action.GetVerb()); err != nil {
			return true, nil, err
		}
		return false, nil, nil
	})
	return asked
}

func always(string) error { return nil }

func TestVolumesOfManyClaimsAreListedOnce(t *testing.T) {
	refusesToList := func(verb string) error {
		if verb == "list" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, "", errors.New("only by name"))
		}
		return nil
	}
	cases := map[string]struct {
		claims int
		answer func(verb string) error
		asked  map[string]int
	}{
		"few claims":                {claims: 19, answer: always, asked: map[string]int{"get": 19}},
		"many claims":               {claims: 20, answer: always, asked: map[string]int{"list": 1}},
		"many, and no list allowed": {claims: 20, answer: refusesToList, asked: map[string]int{"list": 1, "get": 20}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				asked := c.manyClaims(test.claims, test.answer)
				r := c.take()
				c.Expect(asked).To(Equal(test.asked))
				for i := range test.claims {
					claim := fmt.Sprintf("claim-%02d", i)
					c.Expect(r.files()).To(ContainElements("persistentvolumeclaims app/"+claim, "persistentvolumes "+volumeOf(claim)))
				}
				c.Expect(r.object("persistentvolumes/cluster/" + volumeOf("claim-00")).GetKind()).To(Equal("PersistentVolume"))
				c.Expect(c.taker.requests()).To(HaveLen(test.claims))
				c.Expect(c.errors()).To(BeEmpty())
				c.Expect(c.warnings()).To(BeEmpty())
			})
		})
	}
}

func TestAVolumeThatTheListMissesIsAskedFor(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("late")
		volumes := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
		c.listed[volumes] = nil // as if it was made after the list
		asked := c.manyClaims(19, always)
		c.Expect(c.take().files()).To(ContainElement("persistentvolumes " + volumeOf("late")))
		c.Expect(asked).To(Equal(map[string]int{"list": 1, "get": 1}))
		c.Expect(c.errors()).To(BeEmpty())
		c.Expect(c.warnings()).To(BeEmpty())
	})
}
