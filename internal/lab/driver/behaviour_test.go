// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestMatches(t *testing.T) {
	tests := []struct {
		pattern, volume string
		want            bool
	}{
		{"*", "app/data", true},
		{"*", "odd-handle", true},
		{"app/data", "app/data", true},
		{"app/*", "app/data", true},
		{"app/*", "db/data", false},
		{"*/data", "app/data", true},
		{"a*/d?ta", "app/data", true},
		{"app*", "app/data", false},
		{"data", "app/data", true},
		{"data-*", "app/data-1", true},
		{"data-*", "app/log-1", false},
		{"data", "data", true},
	}
	for _, tt := range tests {
		t.Run(tt.pattern+" "+tt.volume, func(t *testing.T) {
			b := Behaviour{Match: tt.pattern}
			NewWithT(t).Expect(b.matches(tt.volume)).To(Equal(tt.want))
		})
	}
}

func TestValidate(t *testing.T) {
	minus := metav1.Duration{Duration: -time.Second}
	tests := []struct {
		name      string
		behaviour Behaviour
		want      string
	}{
		{"no match", Behaviour{}, `match: is required`},
		{"bad pattern", Behaviour{Match: "["}, "match: syntax error in pattern"},
		{"negative cut", Behaviour{Match: "*", Cut: minus}, "cut: -1s is negative"},
		{"negative ready", Behaviour{Match: "*", Ready: minus}, "ready: -1s is negative"},
		{"negative jitter", Behaviour{Match: "*", Jitter: minus}, "jitter: -1s is negative"},
		{"negative hangFor", Behaviour{Match: "*", HangFor: minus}, "hangFor: -1s is negative"},
		{"negative capacity", Behaviour{Match: "*", Capacity: -1}, "capacity: -1 is negative"},
		{"hang and fail", Behaviour{Match: "*", Hang: true, Fail: &Fail{Code: "Internal"}}, "hang: never ends"},
		{"late cut alone", Behaviour{Match: "*", LateCut: true}, "lateCut: is only for"},
		{"unknown code", Behaviour{Match: "*", Fail: &Fail{Code: "Intern"}}, `fail.code: "Intern" is no gRPC error code`},
		{"OK is no error", Behaviour{Match: "*", Fail: &Fail{Code: "OK"}}, `fail.code: "OK"`},
		{"negative times", Behaviour{Match: "*", Fail: &Fail{Code: "Internal", Times: -1}}, "fail.times: -1"},
		{"no rate", Behaviour{Match: "*", Throttle: &Throttle{}}, "throttle.perSecond: 0 isn't above 0"},
		{"bad throttle code", Behaviour{Match: "*", Throttle: &Throttle{PerSecond: 1, Code: "x"}}, "throttle.code:"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			err := Validate([]Behaviour{{Match: "ok"}, tt.behaviour})
			g.Expect(err).To(MatchError(SatisfyAll(HavePrefix("behaviour[1]"), ContainSubstring(tt.want))))
			_, err = New(Config{Name: "d", Socket: "s", Behaviours: []Behaviour{tt.behaviour}})
			g.Expect(err).To(MatchError(ContainSubstring("CSI driver d: behaviour[0]")))
		})
	}
	NewWithT(t).Expect(Validate([]Behaviour{
		{Match: "a", LateCut: true, Hang: true}, {Match: "b", LateCut: true, Fail: &Fail{Code: "INTERNAL", Times: 2}},
	})).To(Succeed())
}

func TestParseCode(t *testing.T) {
	g := NewWithT(t)
	for name, want := range map[string]codes.Code{
		"ResourceExhausted": codes.ResourceExhausted, "RESOURCE_EXHAUSTED": codes.ResourceExhausted,
		"internal": codes.Internal, "CANCELLED": codes.Canceled, "Canceled": codes.Canceled, "Unauthenticated": codes.Unauthenticated,
	} {
		code, err := parseCode(name)
		g.Expect(err).NotTo(HaveOccurred(), name)
		g.Expect(code).To(Equal(want), name)
	}
}

func TestBehaviourAsYAML(t *testing.T) {
	g := NewWithT(t)
	text := `
capacity: 3
cut: 2s
fail:
  code: Internal
  message: odd
  times: 2
match: app/*
ready: 1m0s
`
	var b Behaviour
	g.Expect(yaml.UnmarshalStrict([]byte(text), &b)).To(Succeed())
	g.Expect(b.Cut.Duration).To(Equal(2 * time.Second))
	g.Expect(b.Ready.Duration).To(Equal(time.Minute))
	out, err := yaml.Marshal(b)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(out)).To(MatchYAML(text), "what isn't set isn't written")
}
