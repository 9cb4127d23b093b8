// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// manyConnections is enough for every watch and request of a server: HTTP/1.1 takes a connection for each.
const manyConnections = 2000

// Options of a proxy.
type Options struct {
	// Target is the API server's URL. Required.
	Target string
	// CA verifies the API server. Required.
	CA *x509.CertPool
	// Certificate is what the proxy shows its client. Required.
	Certificate tls.Certificate
}

// Counts is what the proxy did by itself.
type Counts struct {
	// Answered, Slowed, Cut and Expired count the requests that got an error, that had to wait, watches that were cut, and
	// watches that were told to be too old.
	Answered, Slowed, Cut, Expired int
}

// Proxy is a running proxy. Its methods may be called concurrently.
type Proxy struct {
	server    *http.Server
	forward   *httputil.ReverseProxy
	transport *http.Transport
	url       string
	watches   *watches
	served    chan struct{} // closed when the listener's goroutine has ended

	mu     sync.Mutex
	faults []*active
	counts Counts
}

// Start listens on a free loopback port and serves until Stop.
func Start(opts Options) (*Proxy, error) {
	target, err := url.Parse(opts.Target)
	if err != nil {
		return nil, fmt.Errorf("starting the API proxy: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the API proxy: %w", err)
	}
	p := &Proxy{
		url: "https://" + listener.Addr().String(), watches: newWatches(), served: make(chan struct{}),
		transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: opts.CA, MinVersion: tls.VersionTLS12},
			// Not nil, so no HTTP/2: it can't be upgraded.
			TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxIdleConnsPerHost: manyConnections, DisableCompression: true,
		},
	}
	silent := log.New(io.Discard, "", 0) // it complains of every watch that is cut
	p.forward = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: p.transport, FlushInterval: -1, ErrorLog: silent,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = &http.Server{
		Handler: p, ErrorLog: silent, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{opts.Certificate}, MinVersion: tls.VersionTLS12},
	}
	go func() {
		defer close(p.served)
		// It ends by Close, and says so.
		_ = p.server.ServeTLS(listener, "", "")
	}()
	return p, nil
}

// URL is where the client is to be sent.
func (p *Proxy) URL() string { return p.url }

// Stop breaks every connection and returns when nothing is listening any more.
func (p *Proxy) Stop() {
	_ = p.server.Close() // what can fail is the closing of connections that are gone
	<-p.served
	p.transport.CloseIdleConnections()
}

// Add puts a fault into force, beside those that are. The first that matches a request counts.
func (p *Proxy) Add(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, newActive(f, time.Now()))
}

// Clear ends all faults.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
}

// CutWatches ends all open watches and returns how many there were.
func (p *Proxy) CutWatches() int { return p.cut(false) }

// ExpireWatches ends all open watches, and tells the next watch of each path that begins at a resource version that this is
// too old. It returns how many were open.
func (p *Proxy) ExpireWatches() int { return p.cut(true) }

func (p *Proxy) cut(expire bool) int {
	cut := p.watches.cut(expire)
	p.count(func(c *Counts) { c.Cut += cut })
	return cut
}

// Counts returns what was done so far.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

func (p *Proxy) count(add func(*Counts)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add(&p.counts)
}

// ServeHTTP lets a request meet its fault, or passes it on.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	about := read(r)
	fault, met := p.meet(about)
	if met && fault.Slow > 0 {
		p.count(func(c *Counts) { c.Slowed++ })
		if err := pause(r.Context(), fault.Slow); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	switch {
	case met && fault.Answer != 0:
		p.count(func(c *Counts) { c.Answered++ })
		fault.answer(w, about)
	case about.verb == "watch":
		p.watch(w, r)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

func (p *Proxy) watch(w http.ResponseWriter, r *http.Request) {
	if p.watches.refuses(r) {
		p.count(func(c *Counts) { c.Expired++ })
		expired(w)
		return
	}
	ctx, cut := context.WithCancel(r.Context())
	defer cut()
	defer p.watches.add(r.URL.Path, cut)()
	p.forward.ServeHTTP(w, r.WithContext(ctx))
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler) // not the regular end of a watch
	}
}

// meet finds the fault that a request meets, and drops those that have ended.
func (p *Proxy) meet(about request) (Fault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var met *active
	kept := p.faults[:0]
	for _, fault := range p.faults {
		if fault.over(now) {
			continue
		}
		if met == nil && fault.matches(about) {
			met = fault
			if fault.left > 0 {
				fault.left--
			}
		}
		if fault.left != 0 {
			kept = append(kept, fault)
		}
	}
	clear(p.faults[len(kept):])
	p.faults = kept
	if met == nil {
		return Fault{}, false
	}
	return met.Fault, true
}

// pause returns when the time has passed or the context has ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.New("the client has gone away")
	}
}
