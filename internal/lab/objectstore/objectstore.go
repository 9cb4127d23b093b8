// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// DefaultBucket is made when Options names none.
const DefaultBucket = "velero"

// Options of a store. The zero value is fine.
type Options struct {
	// Bucket is created at start. Default: DefaultBucket.
	Bucket string
	// Address to listen on. Default: a free port of 127.0.0.1.
	Address string
	// Log gets one line for each request. Default: none is kept.
	Log io.Writer
}

// Failure says what the store refuses.
type Failure int

// The ways to fail. A refused request gets status 503, which S3 clients try again.
const (
	// FailNothing is normal operation.
	FailNothing Failure = iota
	// FailWrites refuses PUT, POST and DELETE.
	FailWrites
	// FailAll refuses every request.
	FailAll
)

// Store is a running S3 server. Its methods may be called concurrently.
type Store struct {
	bucket  string
	address string
	backend *s3mem.Backend
	server  *http.Server
	served  chan error

	mu       sync.Mutex
	log      io.Writer
	failure  Failure
	requests map[string]int
	refused  int
}

// Start starts a store; the caller ends it with Stop.
func Start(ctx context.Context, opts Options) (*Store, error) {
	if opts.Bucket == "" {
		opts.Bucket = DefaultBucket
	}
	if opts.Address == "" {
		opts.Address = "127.0.0.1:0"
	}
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	backend := s3mem.New()
	if err := backend.CreateBucket(opts.Bucket); err != nil {
		return nil, fmt.Errorf("creating bucket %s: %w", opts.Bucket, err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", opts.Address)
	if err != nil {
		return nil, fmt.Errorf("starting the object store: %w", err)
	}
	s := &Store{
		bucket: opts.Bucket, address: listener.Addr().String(), backend: backend,
		served: make(chan error, 1), log: opts.Log, requests: map[string]int{},
	}
	handler := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	s.server = &http.Server{Handler: s.gate(handler), ReadHeaderTimeout: time.Minute}
	go func() { s.served <- s.server.Serve(listener) }()
	return s, nil
}

// Stop closes the store after the requests under way, or at once when the
// context ends. What was stored is gone.
func (s *Store) Stop(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stopping the object store: %w", err)
	}
	return nil
}

// URL is what a client is given, "http://127.0.0.1:port".
func (s *Store) URL() string { return "http://" + s.address }

// Bucket is the bucket's name.
func (s *Store) Bucket() string { return s.bucket }

// Fail sets what is refused from now on.
func (s *Store) Fail(failure Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = failure
}

// Requests returns the number of requests by HTTP method, refused ones included.
func (s *Store) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]int, len(s.requests))
	for method, count := range s.requests {
		counts[method] = count
	}
	return counts
}

// Refused returns how many requests were refused because of Fail.
func (s *Store) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// Keys lists the objects whose key starts with prefix, sorted.
func (s *Store) Keys(prefix string) ([]string, error) {
	match := gofakes3.NewPrefix(&prefix, nil)
	list, err := s.backend.ListBucket(s.bucket, &match, gofakes3.ListBucketPage{})
	if err != nil {
		return nil, fmt.Errorf("listing %s/%s: %w", s.bucket, prefix, err)
	}
	keys := make([]string, 0, len(list.Contents))
	for _, object := range list.Contents {
		keys = append(keys, object.Key)
	}
	slices.Sort(keys)
	return keys, nil
}

// Get returns the content of an object.
func (s *Store) Get(key string) ([]byte, error) {
	object, err := s.backend.GetObject(s.bucket, key, nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s/%s: %w", s.bucket, key, err)
	}
	content, err := io.ReadAll(object.Contents)
	if err = errors.Join(err, object.Contents.Close()); err != nil {
		return nil, fmt.Errorf("reading %s/%s: %w", s.bucket, key, err)
	}
	return content, nil
}
