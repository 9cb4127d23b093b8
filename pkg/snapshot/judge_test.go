// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"strings"
	"sync/atomic"
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

func TestOneKindOfErrorIsToldOnce(t *testing.T) {
	inBubble(t, TakerOptions{}, nil, func(h *harness) {
		s := h.taker.Take(h.ctx, request(1))[0]
		h.pass(time.Second)
		for i := range 20 {
			h.api.report(keyOf(request(1)), ptr.To(fmt.Sprintf("not authorized, RequestID 3f2504e0-4f89-11d3-9a0c-0305e82c%04d", i)))
			synctest.Wait()
		}
		h.Expect(h.seen(EventError)).To(HaveLen(1))
		h.Expect(s.Outcome().Message).To(ContainSubstring("0305e82c0019"), "the newest text is the one that is shown")
		h.api.report(keyOf(request(1)), ptr.To("no space left"))
		synctest.Wait()
		h.Expect(h.seen(EventError)).To(HaveLen(2))
		h.Expect(series(h.WithT, h.taker.Metrics())).To(HaveKeyWithValue("velero_csi_snapshot_verdicts_total/driver/retryable", 21.0))
	})
}

func TestKindOf(t *testing.T) {
	g := NewWithT(t)
	for _, pair := range [][2]string{
		{"request id: 7f3a9c1e-0b1d-4f6e-8a53-0a1b2c3d4e5f failed", "request id: 11111111-2222-3333-4444-555555555555 failed"},
		{"RequestID: 0a1b2c3d4e5f6a7b", "RequestID: ffeeddccbbaa9988aa"},
		{"at 1701345600: busy", "at 1701349999: busy"},
	} {
		g.Expect(kindOf(pair[0])).To(Equal(kindOf(pair[1])))
	}
	g.Expect(kindOf("reaches the maximum (3)")).NotTo(Equal(kindOf("reaches the maximum (4)")))
	g.Expect(kindOf("feedback is needed")).To(Equal("feedback is needed"), "a word isn't an id")
}

func TestErrorsAfterTheCut(t *testing.T) {
	judge := JudgeFunc(func(o Observation) Judgement {
		if o.Phase == PhaseReadying && strings.Contains(o.Message, "FAILED") {
			return Judgement{Verdict: Terminal, Reason: "the snapshot is broken"}
		}
		return Judgement{}
	})
	inBubble(t, TakerOptions{Judge: judge}, nil, func(h *harness) {
		var settled atomic.Int32
		h.tracker.settled = func(types.UID) { settled.Add(1) }
		r := request(1)
		key := keyOf(r)
		s := h.taker.Take(h.ctx, r)[0]
		h.pass(time.Second)
		h.api.report(key, ptr.To("status is FAILED in the words of an earlier try"))
		h.pass(time.Second)
		h.api.cut(key)
		h.pass(time.Minute)
		h.Expect(s.Outcome().Phase).To(Equal(Cut))
		h.Expect(h.seen(EventReady)).To(BeEmpty())
		before, _ := h.tracker.Readiness(key.Namespace, key.Name)
		h.Expect(before.Fault.Stale).To(BeTrue(), "it stood there before the handle")
		h.Expect(settled.Load()).To(BeZero())

		h.api.report(key, ptr.To("try again later"))
		h.pass(10 * time.Second)
		waiting, _ := h.tracker.Readiness(key.Namespace, key.Name)
		h.Expect(waiting.Fault).To(Equal(Fault{Text: "try again later", Since: time.Now().Add(-10 * time.Second), Attempts: 1}))
		h.Expect(waiting.Observation(key.Namespace, time.Now())).To(Equal(Observation{
			Driver: "driver", Message: "try again later", Age: 10 * time.Second, Attempts: 1, Phase: PhaseReadying, Namespace: "app", PVC: "data-1",
		}))
		h.api.report(key, ptr.To("status is FAILED"))
		h.pass(time.Second)
		h.Expect(s.Outcome().Phase).To(Equal(Cut), "what is cut stays cut")
		h.Expect(series(h.WithT, h.taker.Metrics())).To(HaveKeyWithValue("velero_csi_snapshot_ready_seconds/driver/failed", 1.0))
		h.Expect(settled.Load()).To(BeNumerically(">=", 2), "once for each new error")
	})
}
