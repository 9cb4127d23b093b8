// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// NonResource is the resource under which requests such as /healthz and /version are counted.
const NonResource = "nonResource"

// Filter selects requests. The zero value selects all of them.
type Filter struct {
	// User that made the request. Empty: anyone.
	User string
	// From and To bound the time at which the request arrived: From <= t < To. Zero: no bound.
	From, To time.Time
}

// Counts is the outcome.
type Counts struct {
	Total int
	// ByVerb is keyed by the verb: get, list, watch, create, update, patch, delete, deletecollection.
	ByVerb map[string]int
	// ByResource is keyed "pods" or "volumesnapshots.snapshot.storage.k8s.io", with "/status" and the like behind it for
	// subresources, or NonResource.
	ByResource map[string]int
	// Requests is keyed by the verb, a blank and the resource.
	Requests map[string]int
	// Forbidden has those of Requests that were answered with status 403.
	Forbidden map[string]int
	// Throttled counts the answers with status 429.
	Throttled int
}

// event is the part of an audit event that counts.
type event struct {
	AuditID string `json:"auditID"`
	Verb    string `json:"verb"`
	User    struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		APIGroup    string `json:"apiGroup"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
}

// CountFile counts the requests in a log file. A file that is not there counts as empty: no request was made yet.
func CountFile(path string, filter Filter) (Counts, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return newCounts(), nil
	}
	if err != nil {
		return Counts{}, fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close()
	counts, err := Count(file, filter)
	if err != nil {
		return Counts{}, fmt.Errorf("reading the audit log %s: %w", path, err)
	}
	return counts, nil
}

// Count counts the requests in a log. A last line without its end is left out: the API server may be in the middle of
// writing it, or was killed there.
func Count(log io.Reader, filter Filter) (Counts, error) {
	counts := newCounts()
	seen, refused := map[string]bool{}, map[string]bool{}
	lines := bufio.NewReaderSize(log, 64<<10)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return counts, nil
		}
		if err != nil {
			return Counts{}, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return Counts{}, fmt.Errorf("line %d is no audit event: %w", number, err)
		}
		if filter.selects(e) {
			counts.add(e, seen[e.AuditID])
			if e.ResponseStatus.Code == http.StatusForbidden && !refused[e.AuditID] {
				refused[e.AuditID] = true // the stages of one request each carry the code
				counts.Forbidden[e.Verb+" "+e.resource()]++
			}
			seen[e.AuditID] = true
		}
	}
}

func newCounts() Counts {
	return Counts{ByVerb: map[string]int{}, ByResource: map[string]int{}, Requests: map[string]int{}, Forbidden: map[string]int{}}
}

func (f Filter) selects(e event) bool {
	at := e.RequestReceivedTimestamp
	switch {
	case f.User != "" && e.User.Username != f.User:
		return false
	case !f.From.IsZero() && at.Before(f.From):
		return false
	case !f.To.IsZero() && !at.Before(f.To):
		return false
	}
	return true
}

// add counts an event; the status code of a request that was seen before may come only with its later stage.
func (c *Counts) add(e event, seen bool) {
	if e.ResponseStatus.Code == http.StatusTooManyRequests {
		c.Throttled++
	}
	if seen {
		return
	}
	resource := e.resource()
	c.Total++
	c.ByVerb[e.Verb]++
	c.ByResource[resource]++
	c.Requests[e.Verb+" "+resource]++
}

func (e event) resource() string {
	if e.ObjectRef == nil || e.ObjectRef.Resource == "" {
		return NonResource
	}
	name := e.ObjectRef.Resource
	if e.ObjectRef.APIGroup != "" {
		name += "." + e.ObjectRef.APIGroup
	}
	if e.ObjectRef.Subresource != "" {
		name += "/" + e.ObjectRef.Subresource
	}
	return name
}
