// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"math"
	"path"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Behaviour says how the storage treats the volumes that it matches. In a list the first match counts; a volume that
// none matches is cut, and is ready, at once.
type Behaviour struct {
	// Match is a pattern of path.Match for "namespace/pvc". Without a slash it is for the PVC's name in any namespace,
	// and "*" matches every volume. Required.
	Match string `json:"match" yaml:"match"`

	// Cut is how long it takes from the request, or from a free place (Capacity), to the snapshot's point in time.
	Cut metav1.Duration `json:"cut,omitzero" yaml:"cut,omitempty"`
	// Ready is the time from the cut until the snapshot is ready to use.
	Ready metav1.Duration `json:"ready,omitzero" yaml:"ready,omitempty"`
	// Jitter lengthens Cut by a uniformly random time between 0 and itself.
	Jitter metav1.Duration `json:"jitter,omitzero" yaml:"jitter,omitempty"`
	// Capacity is how many of these volumes can be cut at the same time; the others wait in order. 0 is no limit.
	Capacity int `json:"capacity,omitempty" yaml:"capacity,omitempty"`

	// Hang keeps CreateSnapshot without an answer until the caller gives up or the behaviour changes.
	Hang bool `json:"hang,omitempty" yaml:"hang,omitempty"`
	// HangFor is a Hang that ends, for each volume, when this much time has passed since its first call.
	HangFor metav1.Duration `json:"hangFor,omitzero" yaml:"hangFor,omitempty"`
	// Fail makes CreateSnapshot fail, until the snapshot is ready.
	Fail *Fail `json:"fail,omitempty" yaml:"fail,omitempty"`
	// LateCut is for Hang, HangFor and Fail: the snapshot is cut all the same, Cut after the first call.
	LateCut bool `json:"lateCut,omitempty" yaml:"lateCut,omitempty"`
	// Throttle refuses requests for new snapshots that come too fast.
	Throttle *Throttle `json:"throttle,omitempty" yaml:"throttle,omitempty"`
	// AppendRequestID ends the message of every error with another random request ID, as cloud APIs do.
	AppendRequestID bool `json:"appendRequestID,omitempty" yaml:"appendRequestID,omitempty"`
}

// Fail is an error that CreateSnapshot answers.
type Fail struct {
	// Code is the name of a gRPC code, as in ResourceExhausted or RESOURCE_EXHAUSTED. Required.
	Code string `json:"code" yaml:"code"`
	// Message is the error's text.
	Message string `json:"message,omitempty" yaml:"message,omitempty"`
	// Times is how often each volume gets the error, counted since the behaviours were set. 0 is for ever.
	Times int `json:"times,omitempty" yaml:"times,omitempty"`
}

// Throttle is a limit on the rate of requests for new snapshots, over all the volumes that the behaviour matches. It
// lets a second's worth of requests through at once.
type Throttle struct {
	// PerSecond is the rate. Required, above 0.
	PerSecond float64 `json:"perSecond" yaml:"perSecond"`
	// Code is the name of the gRPC code of a refusal. Default: ResourceExhausted.
	Code string `json:"code,omitempty" yaml:"code,omitempty"`
	// Message is the refusal's text. Default: "snapshot request rate exceeded".
	Message string `json:"message,omitempty" yaml:"message,omitempty"`
}

// Validate reports everything that is wrong with a list of behaviours, each with its place and field.
func Validate(behaviours []Behaviour) error {
	var errs []error
	for i := range behaviours {
		for _, err := range behaviours[i].problems() {
			errs = append(errs, fmt.Errorf("behaviour[%d] (match %q): %w", i, behaviours[i].Match, err))
		}
	}
	return errors.Join(errs...)
}

func (b *Behaviour) problems() []error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	_, badPattern := path.Match(b.Match, "")
	refuse(b.Match == "", `match: is required; "*" matches every volume`)
	refuse(badPattern != nil, "match: %v", badPattern)
	refuse(b.Cut.Duration < 0, "cut: %s is negative", b.Cut.Duration)
	refuse(b.Ready.Duration < 0, "ready: %s is negative", b.Ready.Duration)
	refuse(b.Jitter.Duration < 0, "jitter: %s is negative", b.Jitter.Duration)
	refuse(b.HangFor.Duration < 0, "hangFor: %s is negative", b.HangFor.Duration)
	refuse(b.Capacity < 0, "capacity: %d is negative", b.Capacity)
	refuse(b.Hang && (b.Fail != nil || b.HangFor.Duration > 0), "hang: never ends, so fail and hangFor have no meaning beside it")
	refuse(b.LateCut && !b.Hang && b.HangFor.Duration == 0 && b.Fail == nil, "lateCut: is only for hang, hangFor and fail")
	if b.Fail != nil {
		_, err := parseCode(b.Fail.Code)
		refuse(err != nil, "fail.code: %v", err)
		refuse(b.Fail.Times < 0, "fail.times: %d is negative", b.Fail.Times)
	}
	if b.Throttle != nil {
		_, err := parseCode(b.Throttle.code())
		refuse(err != nil, "throttle.code: %v", err)
		refuse(!(b.Throttle.PerSecond > 0) || math.IsInf(b.Throttle.PerSecond, 1), "throttle.perSecond: %v isn't above 0", b.Throttle.PerSecond)
	}
	return errs
}

// matches reports whether the behaviour is for a volume.
func (b *Behaviour) matches(volume string) bool {
	if b.Match == "*" {
		return true
	}
	if !strings.Contains(b.Match, "/") {
		volume = path.Base(volume)
	}
	ok, err := path.Match(b.Match, volume)
	return err == nil && ok
}

// err makes the error that a call gets.
func (b *Behaviour) err(codeName, message string) error {
	code, _ := parseCode(codeName)
	if b.AppendRequestID {
		message += ", RequestID: " + string(uuid.NewUUID())
	}
	return status.Error(code, message)
}

func (t *Throttle) code() string {
	if t.Code == "" {
		return codes.ResourceExhausted.String()
	}
	return t.Code
}

func (t *Throttle) message() string {
	if t.Message == "" {
		return "snapshot request rate exceeded"
	}
	return t.Message
}

// refusal is the error of a call that came too fast.
type refusal struct{ error }

// GRPCStatus makes it go out as what it wraps.
func (r refusal) GRPCStatus() *status.Status { return status.Convert(r.error) }

// parseCode finds a gRPC code by name, in Go's or in the specification's spelling. OK is no error and is refused.
func parseCode(name string) (codes.Code, error) {
	plain := strings.ReplaceAll(name, "_", "")
	if strings.EqualFold(plain, "Cancelled") {
		return codes.Canceled, nil
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if strings.EqualFold(plain, code.String()) {
			return code, nil
		}
	}
	return codes.Unknown, fmt.Errorf("%q is no gRPC error code such as ResourceExhausted", name)
}
