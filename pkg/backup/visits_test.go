// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
)

func key(name string) (itemKey, velero.ResourceIdentifier) {
	return itemKey{apiVersion: "v1", kind: "ConfigMap", namespace: "app", name: name},
		resourceID(schema.GroupResource{Resource: "configmaps"}, "app", name)
}

// met is a visit that has begun.
func met(v *visits, name string, block *itemblock.Block) *visit {
	k, id := key(name)
	made, _ := v.enter(k, id, block)
	return made
}

func TestAVisitHasOneResultForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		v, one, two := newVisits(), &itemblock.Block{}, &itemblock.Block{}
		k, id := key("a")
		made, first := v.enter(k, id, one)
		g.Expect(first).To(BeTrue())
		again, first := v.enter(k, id, two)
		g.Expect(first).To(BeFalse())
		g.Expect(again).To(BeIdenticalTo(made))
		g.Expect(v.find(id)).To(BeIdenticalTo(made))

		failure, got := errors.New("broken"), make(chan error, 1)
		go func() { got <- v.await(t.Context(), again, two) }()
		synctest.Wait()
		g.Expect(got).To(BeEmpty())
		v.leave(made, failure)
		g.Expect(<-got).To(MatchError(failure))
		g.Expect(v.await(t.Context(), again, two)).To(MatchError(failure), "later, too")
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	g := NewWithT(t)
	v, cause := newVisits(), errors.New("going down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	g.Expect(v.await(ctx, met(v, "a", &itemblock.Block{}), &itemblock.Block{})).To(MatchError(cause))
	g.Expect(v.waiting).To(BeEmpty())
}

func TestNoBlockWaitsForItself(t *testing.T) {
	g := NewWithT(t)
	v, block := newVisits(), &itemblock.Block{}
	g.Expect(v.await(t.Context(), met(v, "a", block), block)).To(Succeed())
}

func TestAChainOfThreeBlocksIsNoCircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		v := newVisits()
		one, two, three := &itemblock.Block{}, &itemblock.Block{}, &itemblock.Block{}
		first, second, third := met(v, "1", one), met(v, "2", two), met(v, "3", three)
		done := make(chan error, 2)
		go func() { done <- v.await(t.Context(), second, one) }()
		go func() { done <- v.await(t.Context(), third, two) }()
		synctest.Wait()
		g.Expect(done).To(BeEmpty(), "one waits for two, two for three")
		g.Expect(v.await(t.Context(), first, three)).To(Succeed(), "three must not wait for one")
		v.leave(third, nil)
		v.leave(second, nil)
		g.Expect(<-done).To(Succeed())
		g.Expect(<-done).To(Succeed())
	})
}

func TestWhoWaitedForAVisitThatIsOverHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		v := newVisits()
		one, two := &itemblock.Block{}, &itemblock.Block{}
		mine, theirs := met(v, "1", one), met(v, "2", two)
		// One waits for two's item, which is done, but one hasn't woken yet.
		g.Expect(v.mayWait(one, theirs)).To(BeTrue())
		v.leave(theirs, nil)
		failure, got := errors.New("broken"), make(chan error, 1)
		go func() { got <- v.await(t.Context(), mine, two) }()
		synctest.Wait()
		g.Expect(got).To(BeEmpty(), "two waits for one's item and gets its result")
		v.leave(mine, failure)
		g.Expect(<-got).To(MatchError(failure))
	})
}

func TestAForgottenVisitLeavesNoTrace(t *testing.T) {
	g := NewWithT(t)
	v, block := newVisits(), &itemblock.Block{}
	k, id := key("a")
	v.expect(k)
	made := met(v, "a", block)
	v.forget(made)
	finished, known := v.counts()
	g.Expect([]int{finished, known}).To(Equal([]int{0, 0}))
	g.Expect(v.isKnown(k)).To(BeFalse())
	g.Expect(v.find(id)).To(BeNil())
	g.Expect(v.resourceList()).To(BeEmpty())
	g.Expect(v.await(t.Context(), made, &itemblock.Block{})).To(Succeed(), "who waited for it goes on")
	_, first := v.enter(k, id, block)
	g.Expect(first).To(BeTrue())
}
