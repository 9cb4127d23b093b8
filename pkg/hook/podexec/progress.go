// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package podexec

import (
	"errors"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/transport/spdy"
)

// streamsOfACommand are those for the result, the output and the errors. With the last of them the command starts.
const streamsOfACommand = 3

// arrivalTime is how long what a connection brought before its end takes to be handed on.
const arrivalTime = time.Second

// progress is how far an attempt came. It locks itself: the streams are read by goroutines of client-go.
type progress struct {
	mu sync.Mutex
	// asked and confirmed count streams.
	asked, confirmed int
	// result is true when anything of the command's result has arrived.
	result bool
	// resultUnseen is true for a connection whose streams can't be looked at.
	resultUnseen bool
	// refused is the API server's answer, and noSPDY that there was one which wasn't the API server's.
	refused error
	noSPDY  bool
}

// restart is for a second connection of the same attempt; nothing was begun on the first.
func (p *progress) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.confirmed, p.result, p.refused, p.noSPDY = 0, 0, false, nil, false
}

func (p *progress) change(do func(*progress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(p)
}

func (p *progress) is(what func(*progress) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return what(p)
}

// mayHaveRun: the last stream was asked for.
func (p *progress) mayHaveRun() bool {
	return p.is(func(p *progress) bool { return p.asked >= streamsOfACommand })
}

// hasRun: the command was started, whatever became of it.
func (p *progress) hasRun() bool {
	return p.is(func(p *progress) bool { return p.confirmed >= streamsOfACommand || p.result })
}

// resultIsMissing: a connection that broke looks like a success, except that there was no word of it.
func (p *progress) resultIsMissing() bool {
	return p.is(func(p *progress) bool { return !p.result && !p.resultUnseen })
}

// withoutSPDY: something answered that doesn't know how to carry SPDY.
func (p *progress) withoutSPDY() bool { return p.is(func(p *progress) bool { return p.noSPDY }) }

// refusal is the API server's answer, if it gave one.
func (p *progress) refusal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// watchedUpgrader tells a progress of the connections it makes.
type watchedUpgrader struct {
	spdy.Upgrader
	progress *progress
	// bound connections are closed by the dialer that made them.
	bound bool
}

// NewConnection implements spdy.Upgrader.
func (u watchedUpgrader) NewConnection(response *http.Response) (httpstream.Connection, error) {
	connection, err := u.Upgrader.NewConnection(response)
	if err != nil {
		var status apierrors.APIStatus
		u.progress.change(func(p *progress) {
			p.refused = err
			// The API server says why in a Status; a server error of a load balancer in front of it says nothing of SPDY.
			p.noSPDY = !errors.As(err, &status) && response.StatusCode < http.StatusInternalServerError
		})
		return nil, err
	}
	return watchedConnection{connection, u.progress, u.bound}, nil
}

// watchedConnection counts the streams that are made.
type watchedConnection struct {
	httpstream.Connection
	progress *progress
	bound    bool
}

// made is the end of the making of a stream.
type made struct {
	stream httpstream.Stream
	err    error
}

// CreateStream implements httpstream.Connection. It doesn't wait for the confirmation of a connection that is gone; the one that
// does so below it gives up by itself half a minute later.
func (c watchedConnection) CreateStream(headers http.Header) (httpstream.Stream, error) {
	if c.isLost() {
		return nil, errLost
	}
	c.progress.change(func(p *progress) { p.asked++ })
	headers = headers.Clone() // the caller uses it again for the next stream
	answer := make(chan made, 1)
	go func() {
		stream, err := c.Connection.CreateStream(headers)
		answer <- made{stream, err}
	}()
	m := c.await(answer)
	if m.err != nil {
		return nil, m.err
	}
	c.progress.change(func(p *progress) { p.confirmed++ })
	if headers.Get(corev1.StreamType) == corev1.StreamTypeError {
		return watchedStream{m.stream, c.progress}, nil
	}
	return m.stream, nil
}

// await returns the confirmation of a stream, or an error soon after the connection was lost: a command may be over so soon that
// its confirmation, its result and the end of the connection arrive together.
func (c watchedConnection) await(answer <-chan made) made {
	select {
	case m := <-answer:
		return m
	case <-c.Connection.CloseChan():
	}
	timer := time.NewTimer(arrivalTime)
	defer timer.Stop()
	select {
	case m := <-answer:
		return m
	case <-timer.C:
		return made{err: errLost}
	}
}

var errLost = errors.New("the connection was lost")

func (c watchedConnection) isLost() bool {
	select {
	case <-c.Connection.CloseChan():
		return true
	default:
		return false
	}
}

// Close implements httpstream.Connection. One that was lost isn't closed in the orderly way: spdystream would wait without end for
// streams that were made after the loss.
func (c watchedConnection) Close() error {
	if c.bound && c.isLost() {
		return nil
	}
	return c.Connection.Close()
}

// watchedStream is the stream of the command's result.
type watchedStream struct {
	httpstream.Stream
	progress *progress
}

// Read implements io.Reader.
func (s watchedStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if n > 0 {
		s.progress.change(func(p *progress) { p.result = true })
	}
	return n, err
}
