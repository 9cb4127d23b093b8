// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"fmt"
	"net/http"
	"time"
)

// refusal is S3's answer of a server that is too busy; clients try again.
const refusal = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>ServiceUnavailable</Code><Message>The lab's object store was told to refuse this request.</Message></Error>`

// gate counts and logs every request, and refuses those that Fail names.
func (s *Store) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		if s.admit(r.Method) {
			next.ServeHTTP(recorder, r)
		} else {
			recorder.Header().Set("Content-Type", "application/xml")
			recorder.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprint(recorder, refusal) // the client may be gone
		}
		s.record(r, recorder.status, start)
	})
}

// admit counts the request and says whether it may pass.
func (s *Store) admit(method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[method]++
	write := method != http.MethodGet && method != http.MethodHead
	if s.failure == FailAll || s.failure == FailWrites && write {
		s.refused++
		return false
	}
	return true
}

func (s *Store) record(r *http.Request, status int, start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A log that can't be written must not fail the request.
	_, _ = fmt.Fprintf(s.log, "%s %d %s %s %s\n", start.UTC().Format(time.RFC3339Nano), status, r.Method,
		r.URL.RequestURI(), time.Since(start).Round(time.Microsecond))
}

// statusRecorder keeps the status that a handler answered with.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the writer's other abilities.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
