// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Call is one RPC that the driver got.
type Call struct {
	// Method is the RPC's name without its service, as in CreateSnapshot.
	Method string `json:"call"`
	// Volume is the source volume of a CreateSnapshot.
	Volume string `json:"volume,omitempty"`
	// Name is the snapshot's name in a CreateSnapshot.
	Name string `json:"name,omitempty"`
	// SnapshotID is what a CreateSnapshot answered, or what a DeleteSnapshot was asked for.
	SnapshotID string    `json:"snapshotID,omitempty"`
	Start      time.Time `json:"start"`
	// End is zero while the call is under way.
	End time.Time `json:"end,omitzero"`
	// InFlight is how many calls of the same method were under way when this one started, itself included.
	InFlight int `json:"inFlight"`
	// Code is the name of the gRPC code of the answer, as in OK; empty while the call is under way.
	Code string `json:"code,omitempty"`
	// Message is the text of an error.
	Message string `json:"message,omitempty"`
	// Throttled is true for a call that a Throttle refused.
	Throttled bool `json:"throttled,omitempty"`
}

// header is what every line of the log begins with.
type header struct {
	Time   time.Time `json:"time"`
	Driver string    `json:"driver"`
	// Event is start or end of a call, or cut.
	Event string `json:"event"`
}

// callLine is the log's line for the start or the end of a call.
type callLine struct {
	header
	Call
}

// cutLine is the log's line for a cut, which may come long after the call that asked for it.
type cutLine struct {
	header
	Volume string `json:"volume"`
	Name   string `json:"name"`
	ID     string `json:"snapshotID"`
}

// recorder keeps the calls, writes the log and wakes those who wait for a change. It locks itself.
type recorder struct {
	driver string

	mu       sync.Mutex
	log      io.Writer
	logErr   error
	calls    []*Call
	inFlight map[string]int
	peak     int
	changed  chan struct{}
}

func newRecorder(driver string, log io.Writer) *recorder {
	return &recorder{driver: driver, log: log, inFlight: map[string]int{}, changed: make(chan struct{})}
}

// intercept is a unary interceptor that records the call.
func (r *recorder) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	call := r.start(path.Base(info.FullMethod), req)
	response, err := handler(ctx, req)
	r.end(call, response, err)
	return response, err
}

func (r *recorder) start(method string, req any) *Call {
	call := &Call{Method: method, Start: time.Now()}
	switch req := req.(type) {
	case *csi.CreateSnapshotRequest:
		call.Volume, call.Name = req.GetSourceVolumeId(), req.GetName()
	case *csi.DeleteSnapshotRequest:
		call.SnapshotID = req.GetSnapshotId()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight[method]++
	call.InFlight = r.inFlight[method]
	if method == createSnapshot {
		r.peak = max(r.peak, call.InFlight)
	}
	r.calls = append(r.calls, call)
	r.write(callLine{r.header(call.Start, "start"), *call})
	return call
}

func (r *recorder) end(call *Call, response any, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	call.End = time.Now()
	call.Code = status.Code(err).String()
	if err != nil {
		call.Message = status.Convert(err).Message()
		var refused refusal
		call.Throttled = errors.As(err, &refused)
	} else if created, ok := response.(*csi.CreateSnapshotResponse); ok {
		call.SnapshotID = created.GetSnapshot().GetSnapshotId()
	}
	r.inFlight[call.Method]--
	r.write(callLine{r.header(call.End, "end"), *call})
}

func (r *recorder) cut(snapshot Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write(cutLine{r.header(snapshot.Cut, "cut"), snapshot.Volume, snapshot.Name, snapshot.ID})
}

func (r *recorder) header(at time.Time, event string) header {
	return header{Time: at, Driver: r.driver, Event: event}
}

// write logs a line, and wakes the waiters: whatever is worth a line is worth a look. The caller holds the lock, so that
// the lines are in order.
func (r *recorder) write(line any) {
	if r.log != nil && r.logErr == nil {
		if err := json.NewEncoder(r.log).Encode(line); err != nil {
			r.logErr = fmt.Errorf("writing the call log of driver %s: %w", r.driver, err)
		}
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) listFrom(first int) []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := make([]Call, 0, len(r.calls)-first)
	for _, call := range r.calls[first:] {
		calls = append(calls, *call)
	}
	return calls
}

func (r *recorder) peakInFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peak
}

func (r *recorder) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *recorder) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logErr
}
