// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault is something that goes wrong with requests to the API.
type Fault struct {
	// Verbs and Resources select the requests. Empty is any; a resource is written like "volumesnapshots", or
	// "volumesnapshots/status" for a subresource.
	Verbs, Resources []string
	// Answer is the HTTP status that requests get instead of being passed on; 0 passes them on.
	Answer int
	// RetryAfter is the header of that answer, in whole seconds. Default: 1 s for 429, none for others.
	RetryAfter time.Duration
	// Slow is how long a request waits before it is answered or passed on.
	Slow time.Duration
	// For and Times end the fault: by time since it was added, by the number of requests that it met. Zero is no end.
	For   time.Duration
	Times int
}

// active is a fault in force.
type active struct {
	Fault
	until time.Time // zero: no end
	left  int       // requests that it still meets; -1: no end
}

func newActive(f Fault, now time.Time) *active {
	a := &active{Fault: f, left: -1}
	if f.For > 0 {
		a.until = now.Add(f.For)
	}
	if f.Times > 0 {
		a.left = f.Times
	}
	return a
}

// over says whether the fault has ended.
func (a *active) over(now time.Time) bool {
	return a.left == 0 || !a.until.IsZero() && !now.Before(a.until)
}

func (a *active) matches(r request) bool {
	return r.verb != "" &&
		(len(a.Verbs) == 0 || slices.Contains(a.Verbs, r.verb)) &&
		(len(a.Resources) == 0 || slices.Contains(a.Resources, r.resource))
}

// reasons are the API's words for the statuses; others have none.
var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden:           metav1.StatusReasonForbidden,
	http.StatusNotFound:            metav1.StatusReasonNotFound,
	http.StatusConflict:            metav1.StatusReasonConflict,
	http.StatusGone:                metav1.StatusReasonExpired,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
}

func status(code int, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: message,
	}
}

// answer writes the error as the API server would.
func (f Fault) answer(w http.ResponseWriter, r request) {
	after := f.RetryAfter
	if after == 0 && f.Answer == http.StatusTooManyRequests {
		after = time.Second
	}
	if after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())))
	}
	writeJSON(w, f.Answer, status(f.Answer, fmt.Sprintf("the lab answers %d to %s %s", f.Answer, r.verb, r.resource)))
}

// expired writes a watch that ends at once because its resource version is too old: a stream with one error event.
func expired(w http.ResponseWriter) {
	event := struct {
		Type   string        `json:"type"`
		Object metav1.Status `json:"object"`
	}{Type: "ERROR", Object: status(http.StatusGone, "too old resource version")}
	writeJSON(w, http.StatusOK, event)
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// A client that has gone away needs no answer.
	_ = json.NewEncoder(w).Encode(value)
}
