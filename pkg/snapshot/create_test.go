// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestName(t *testing.T) {
	g := NewWithT(t)
	name := Name("owner", "claim")
	g.Expect(name).To(Equal(Name("owner", "claim")))
	g.Expect(name).NotTo(Equal(Name("owner", "other")))
	g.Expect(name).NotTo(Equal(Name("other", "claim")))
	g.Expect(validation.IsDNS1123Label(name)).To(BeEmpty())
	g.Expect(validation.IsValidLabelValue(name)).To(BeEmpty())
}

func TestLongNamesGiveValidLabels(t *testing.T) {
	g := NewWithT(t)
	vs := desired(request(1, func(r *Request) {
		r.Owner.Name, r.PVC = strings.Repeat("b", 80), strings.Repeat("p", 200)
	}))
	for key, value := range vs.Labels {
		g.Expect(validation.IsValidLabelValue(value)).To(BeEmpty(), key)
	}
}

func TestIsTransient(t *testing.T) {
	vs := schema.GroupResource{Group: snapshotGroup, Resource: snapshotsResource}
	tests := []struct {
		name string
		err  error
		want bool
	}{
		{"none", nil, false},
		{"429", apierrors.NewTooManyRequestsError("busy"), true},
		{"500", apierrors.NewInternalError(errors.New("etcd")), true},
		{"503", apierrors.NewServiceUnavailable("restarting"), true},
		{"504", apierrors.NewTimeoutError("slow", 1), true},
		{"conflict", apierrors.NewConflict(vs, "x", errors.New("changed")), true},
		{"connection refused", errors.New("dial tcp: connection refused"), true},
		{"the client's limiter", errors.New("client rate limiter Wait returned an error"), true},
		{"deadline of one call", context.DeadlineExceeded, true},
		{"forbidden", apierrors.NewForbidden(vs, "x", errors.New("no")), false},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{}, "x", nil), false},
		{"missing", apierrors.NewNotFound(vs, "x"), false},
		{"bad request", apierrors.NewBadRequest("no"), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			NewWithT(t).Expect(isTransient(test.err)).To(Equal(test.want))
		})
	}
}

func TestRetryDelay(t *testing.T) {
	g := NewWithT(t)
	plain := errors.New("lost")
	g.Expect(retryDelay(1, plain)).To(Equal(500 * time.Millisecond))
	g.Expect(retryDelay(3, plain)).To(Equal(2 * time.Second))
	g.Expect(retryDelay(100, plain)).To(Equal(15 * time.Second))
	g.Expect(retryDelay(1, apierrors.NewTooManyRequests("busy", 7))).To(Equal(7 * time.Second))
}

func TestTransientErrorsAreRetriedWithinTheDeadline(t *testing.T) {
	begin := time.Now()
	inBubble(t, TakerOptions{}, func(a *api) {
		a.cutAfter(time.Second)
		begin = time.Now()
		a.setAnswer(func(verb, _, _ string) error {
			if verb == "create" && time.Since(begin) < time.Minute {
				return apierrors.NewServiceUnavailable("restarting")
			}
			return nil
		})
	}, func(h *harness) {
		snaps := h.taker.Take(h.ctx, requests(30)...)
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 30}))
		h.Expect(time.Since(begin)).To(BeNumerically("<", 90*time.Second))
		h.Expect(h.api.asked("create volumesnapshots")).To(BeNumerically("<", 30*12), "it backs off")
	})
}

func TestAnAPIThatStaysDownCostsOneTimeout(t *testing.T) {
	inBubble(t, parallelism("5"), func(a *api) {
		a.setAnswer(func(verb, _, _ string) error {
			if verb == "create" || verb == "delete" {
				return errors.New("dial tcp: connection refused")
			}
			return nil
		})
	}, func(h *harness) {
		begin := time.Now()
		snaps := h.taker.Take(h.ctx, requests(30)...)
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(time.Since(begin)).To(Equal(testTimeout))
		h.Expect(snaps[0].Outcome().Message).To(And(ContainSubstring("could not be created within 600 s"), ContainSubstring("connection refused")))
	})
}

func TestRefusedCreations(t *testing.T) {
	tests := []struct {
		name string
		err  error
		text string
	}{
		{"forbidden", forbidden(snapshotsResource), "may not create"},
		{"missing CRD", missingResource(snapshotsResource), "CRD volumesnapshots.snapshot.storage.k8s.io"},
		{"missing namespace", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "app"), `namespaces "app" not found`},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "VolumeSnapshot"}, "x", nil), "is invalid"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, TakerOptions{}, func(a *api) {
				a.setAnswer(func(verb, _, _ string) error {
					if verb == "create" {
						return test.err
					}
					return nil
				})
			}, func(h *harness) {
				s := h.taker.Take(h.ctx, request(1))[0]
				synctest.Wait()
				h.Expect(s.Outcome().Reason).To(Equal(ReasonCreateRefused))
				h.Expect(s.Outcome().Message).To(And(ContainSubstring("app/data-1"), ContainSubstring(test.text)))
				h.Expect(s.Outcome().VolumeSnapshot.Name).To(Equal(keyOf(request(1)).Name))
				h.Expect(h.api.asked("create volumesnapshots")).To(Equal(1))
				h.Expect(h.api.asked("delete volumesnapshots")).To(BeZero())
			})
		})
	}
}

func TestALostAnswerIsAdopted(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) {
		a.lost = func(string) error { return errors.New("connection reset by peer") }
	}, func(h *harness) {
		r := request(1)
		s := h.taker.Take(h.ctx, r)[0]
		h.pass(time.Second)
		h.api.cut(keyOf(r))
		synctest.Wait()
		h.Expect(s.Outcome().Phase).To(Equal(Cut))
		h.Expect(h.api.asked("create volumesnapshots")).To(Equal(2))
		h.Expect(h.api.asked("get volumesnapshots")).To(Equal(1))
	})
}

func TestAnExistingSnapshot(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Request)
		mine   bool
	}{
		{"of the same backup and claim", func(*Request) {}, true},
		{"of another backup", func(r *Request) { r.Owner.UID = "else" }, false},
		{"of another claim", func(r *Request) { r.PVCUID = "else" }, false},
		{"of a claim of another name", func(r *Request) { r.PVC = "else" }, false},
		{"of another class", func(r *Request) { r.Class = "else" }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := request(1)
			inBubble(t, TakerOptions{}, func(a *api) {
				existing := desired(request(1, test.change))
				existing.Name = keyOf(r).Name
				if _, err := a.create(snapshotsResource, existing); err != nil {
					t.Fatal(err)
				}
				a.cut(keyOf(r))
			}, func(h *harness) {
				s := h.taker.Take(h.ctx, r)[0]
				synctest.Wait()
				if test.mine {
					h.Expect(s.Outcome().Phase).To(Equal(Cut))
					return
				}
				h.Expect(s.Outcome().Reason).To(Equal(ReasonCreateRefused))
				h.Expect(s.Outcome().Message).To(ContainSubstring("exists already"))
				h.Expect(h.api.count(snapshotsResource)).To(Equal(1), "it isn't ours to delete")
			})
		})
	}
}

func TestAbandonedWhileTheCreationIsUnderWay(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) {
		a.setAnswer(func(verb, _, _ string) error {
			if verb == "create" {
				<-time.After(5 * time.Second)
			}
			return nil
		})
	}, func(h *harness) {
		ctx, cancel := context.WithCancel(h.ctx)
		s := h.taker.Take(ctx, request(1))[0]
		h.pass(time.Second)
		cancel()
		synctest.Wait()
		h.Expect(s.Outcome().Reason).To(Equal(ReasonAbandoned))
		left := h.taker.Settle(h.ctx, Ref{Namespace: "app", Name: keyOf(request(1)).Name})
		h.Expect(left).To(BeEmpty())
		h.Expect(time.Since(s.Outcome().Decided)).To(Equal(4*time.Second), "the rest of the creation")
		h.Expect(h.api.asked("create volumesnapshots")).To(Equal(1))
		h.Expect(h.api.asked("delete volumesnapshots")).To(Equal(1), "Settle waited for the creation and its removal")
		h.Expect(h.api.count(snapshotsResource)).To(BeZero())
	})
}

func TestTheDeadlineCountsFromTheCreation(t *testing.T) {
	inBubble(t, TakerOptions{}, func(a *api) {
		a.setAnswer(func(verb, _, _ string) error {
			if verb == "create" {
				<-time.After(20 * time.Second)
			}
			return nil
		})
	}, func(h *harness) {
		begin := time.Now()
		snaps := h.taker.Take(h.ctx, requests(3)...)
		h.Expect(Wait(h.ctx, snaps...)).To(Succeed())
		h.Expect(time.Since(begin)).To(Equal(20*time.Second + testTimeout))
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"TimedOut": 3}))
		h.Expect(snaps[0].Outcome().Created).To(Equal(begin.Add(20 * time.Second)))
	})
}

func TestAStrangerFoundAtTheSecondTryIsLeftAlone(t *testing.T) {
	r := request(1)
	inBubble(t, TakerOptions{}, func(a *api) {
		stranger := desired(request(1, ofOwner("somebody")))
		stranger.Name = keyOf(r).Name
		_, _ = a.create(snapshotsResource, stranger)
		tries := 0
		a.setAnswer(func(verb, _, _ string) error {
			if verb == "create" {
				tries++
			}
			if verb == "create" && tries == 1 {
				return apierrors.NewServiceUnavailable("busy")
			}
			return nil
		})
	}, func(h *harness) {
		s := h.taker.Take(h.ctx, r)[0]
		h.pass(time.Minute)
		h.Expect(s.Outcome().Reason).To(Equal(ReasonCreateRefused))
		h.Expect(h.api.count(snapshotsResource)).To(Equal(1))
		h.Expect(h.api.asked("delete volumesnapshots")).To(BeZero())
	})
}

func TestAnUnclearCreationIsRemovedByName(t *testing.T) {
	first := true
	inBubble(t, TakerOptions{}, func(a *api) {
		a.lost = func(string) error { return errors.New("connection reset by peer") }
		a.setAnswer(func(verb, _, _ string) error {
			if verb == "create" && !first {
				return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}}
			}
			if verb == "create" {
				first = false
			}
			return nil
		})
	}, func(h *harness) {
		s := h.taker.Take(h.ctx, request(1))[0]
		h.pass(time.Second)
		h.Expect(s.Outcome().Reason).To(Equal(ReasonCreateRefused))
		h.Expect(h.api.count(snapshotsResource)).To(BeZero())
	})
}

func TestStrangerKnowsADeletion(t *testing.T) {
	g := NewWithT(t)
	want, got := desired(request(1)), desired(request(1))
	g.Expect(stranger(got, want)).To(BeEmpty())
	now := metav1.Now()
	got.DeletionTimestamp = &now
	g.Expect(stranger(got, want)).To(ContainSubstring("being deleted"))
	delete(got.Labels, velerov1.PVCUIDLabel)
	g.Expect(stranger(got, want)).To(ContainSubstring("pvc-uid"))
}
