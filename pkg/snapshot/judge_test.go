// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestDriverError(t *testing.T) {
	tests := []struct{ name, message, code, words string }{
		{"no gRPC status", "the PVC x is not yet bound to a PV", "", "the PVC x is not yet bound to a PV"},
		{"empty", "", "", ""},
		{"first failure",
			`Failed to create snapshot: failed to take snapshot of the volume vol-1: "rpc error: code = ResourceExhausted desc = too many"`,
			"ResourceExhausted", "too many"},
		{"later failure",
			`Failed to check and update snapshot content: failed to take snapshot of the volume vol-1: "rpc error: code = Internal desc = boom"`,
			"Internal", "boom"},
		{"quotes and newlines inside",
			fmt.Sprintf("failed to take snapshot of the volume, vol-1: %q", "rpc error: code = Aborted desc = volume \"v\" is busy\nwait"),
			"Aborted", "volume \"v\" is busy\nwait"},
		{"not quoted", "rpc error: code = Unavailable desc = socket closed", "Unavailable", "socket closed"},
		{"wrapped: the outer one counts", `"rpc error: code = Internal desc = failed: rpc error: code = NotFound desc = gone"`,
			"Internal", "failed: rpc error: code = NotFound desc = gone"},
		{"no words", `"rpc error: code = Unknown desc = "`, "Unknown", ""},
		{"cut off", `"rpc error: code = Internal desc = a long te`, "Internal", "a long te"},
		{"cut off in an escape", `"rpc error: code = Internal desc = a\`, "Internal", `a\`},
		{"a cause that isn't one", "failed to take snapshot of the volume vol-1: %!q(<nil>)", "", "failed to take snapshot of the volume vol-1: %!q(<nil>)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, words := DriverError(test.message)
			g := NewWithT(t)
			g.Expect(code).To(Equal(test.code))
			g.Expect(words).To(Equal(test.words))
		})
	}
}

func TestVerdictNames(t *testing.T) {
	g := NewWithT(t)
	g.Expect([]string{Retryable.String(), Throttled.String(), Terminal.String()}).To(Equal([]string{"retryable", "throttled", "terminal"}))
	g.Expect(PatientJudge.Judge(Observation{Code: "Unimplemented"}).Verdict).To(Equal(Retryable))
}

func TestTerminalVerdictFailsAtOnceInTheDriversWords(t *testing.T) {
	var asked Observation
	judge := JudgeFunc(func(o Observation) Judgement {
		asked = o
		return Judgement{Verdict: Terminal, Reason: "the quota is used up", Rule: "quota"}
	})
	inBubble(t, TakerOptions{Judge: judge}, nil, func(h *harness) {
		r := request(1, func(r *Request) { r.StorageClass = "fast" })
		s := h.taker.Take(h.ctx, r)[0]
		h.pass(time.Second)
		message := `failed to take snapshot: "rpc error: code = FailedPrecondition desc = reaches the maximum (3)"`
		h.api.report(keyOf(r), &message)
		synctest.Wait()
		h.Expect(asked).To(Equal(Observation{
			Driver: "driver", Code: "FailedPrecondition", Message: message, Attempts: 1, Phase: PhaseCutting,
			StorageClass: "fast", Namespace: "app", PVC: "data-1",
		}))
		h.Expect(s.Outcome().Reason).To(Equal(ReasonTerminalError))
		h.Expect(s.Outcome().Message).To(And(ContainSubstring("the quota is used up"), ContainSubstring("rule quota"),
			ContainSubstring("FailedPrecondition: reaches the maximum (3)")))
		h.Expect(s.Outcome().Decided.Sub(s.Outcome().Created)).To(Equal(time.Second))
		h.Expect(h.api.count(snapshotsResource) + h.api.count(contentsResource)).To(BeZero())
	})
}

func TestAgeIsJudgedThoughTheErrorStandsStill(t *testing.T) {
	judge := JudgeFunc(func(o Observation) Judgement {
		if o.Age >= time.Minute {
			return Judgement{Verdict: Terminal}
		}
		return Judgement{}
	})
	inBubble(t, TakerOptions{Judge: judge}, nil, func(h *harness) {
		s := h.taker.Take(h.ctx, request(1))[0]
		h.pass(time.Second)
		for _, text := range []string{"request 1 failed", "request 2 failed"} {
			h.api.report(keyOf(request(1)), ptr.To(text))
			synctest.Wait()
		}
		h.Expect(s.Outcome().Phase).To(Equal(Cutting))
		h.Expect(s.Outcome().Message).To(Equal("request 2 failed"))
		h.pass(59 * time.Second)
		h.Expect(h.decided(s)).To(BeFalse())
		h.pass(rejudgeInterval)
		h.Expect(s.Outcome().Reason).To(Equal(ReasonTerminalError))
		h.Expect(h.seen(EventError)).To(HaveLen(2))
	})
}

func TestThrottlingSlowsDownAndRecovers(t *testing.T) {
	judge := JudgeFunc(func(o Observation) Judgement {
		if strings.Contains(o.Message, "rate") {
			return Judgement{Verdict: Throttled}
		}
		return Judgement{}
	})
	opts := parallelism("8")
	opts.Judge = judge
	inBubble(t, opts, func(a *api) {
		a.onCreate = func(key types.NamespacedName) {
			if key != keyOf(request(0)) {
				time.AfterFunc(10*time.Second, func() { a.cut(key) })
			}
		}
	}, func(h *harness) {
		snaps := h.taker.Take(h.ctx, requests(100)...)
		h.pass(time.Second)
		h.api.report(keyOf(request(0)), ptr.To("rate exceeded"))
		h.pass(10 * time.Second)
		h.Expect(reasons(snaps)).To(Equal(map[string]int{"Cut": 7, "Cutting": 5, "Queued": 88}), "4, and one for the cuts already")
		h.pass(40 * time.Second)
		h.Expect(reasons(snaps)["Cutting"]).To(Equal(8), "back where it was")
	})
}

func TestPace(t *testing.T) {
	g := NewWithT(t)
	var p pace
	start := time.Now()
	g.Expect(p.current()).To(BeZero())
	g.Expect(p.cut()).To(BeFalse(), "no limit to raise")
	g.Expect(p.throttled(20, start)).To(BeTrue())
	g.Expect(p.current()).To(Equal(10))
	g.Expect(p.throttled(10, start.Add(time.Second))).To(BeFalse(), "one wave of errors counts once")
	g.Expect(p.throttled(10, start.Add(paceHold))).To(BeTrue())
	g.Expect(p.current()).To(Equal(5))
	for range 5 {
		p.cut()
	}
	g.Expect(p.current()).To(BeNumerically("~", 5, 1))
	for range 400 {
		p.cut()
	}
	g.Expect(p.current()).To(BeZero(), "lifted when back at the top")
	g.Expect(p.throttled(1, start.Add(time.Hour))).To(BeTrue())
	g.Expect(p.current()).To(Equal(1), "never below one")
}
