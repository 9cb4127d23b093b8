// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client speaks plain S3 over HTTP; the real plugin is tried in the lab's own tests.
type client struct {
	t     *testing.T
	store *Store
}

func newClient(t *testing.T, opts Options) client {
	t.Helper()
	store, err := Start(t.Context(), opts)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		NewWithT(t).Expect(store.Stop(context.Background())).To(Succeed())
	})
	return client{t: t, store: store}
}

func (c client) do(method, key, body string) (int, string) {
	c.t.Helper()
	g := NewWithT(c.t)
	url := c.store.URL() + "/" + c.store.Bucket() + "/" + key
	request, err := http.NewRequestWithContext(c.t.Context(), method, url, strings.NewReader(body))
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(content)
}

func (c client) status(method, key, body string) int {
	status, _ := c.do(method, key, body)
	return status
}

func TestStore(t *testing.T) {
	g := NewWithT(t)
	var log bytes.Buffer
	c := newClient(t, Options{Log: &log})
	g.Expect(c.store.URL()).To(HavePrefix("http://127.0.0.1:"))
	g.Expect(c.store.Bucket()).To(Equal(DefaultBucket))

	g.Expect(c.status(http.MethodPut, "backups/b/tarball", "content")).To(Equal(200))
	g.Expect(c.status(http.MethodPut, "backups/a", "x")).To(Equal(200))
	g.Expect(c.status(http.MethodPut, "other", "x")).To(Equal(200))
	status, content := c.do(http.MethodGet, "backups/b/tarball", "")
	g.Expect(status).To(Equal(200))
	g.Expect(content).To(Equal("content"))

	g.Expect(c.store.Keys("backups/")).To(Equal([]string{"backups/a", "backups/b/tarball"}))
	g.Expect(c.store.Keys("none/")).To(BeEmpty())
	g.Expect(c.store.Get("backups/b/tarball")).To(BeEquivalentTo("content"))
	_, err := c.store.Get("none")
	g.Expect(err).To(MatchError(HavePrefix("reading velero/none:")))
	g.Expect(c.store.Requests()).To(Equal(map[string]int{"PUT": 3, "GET": 1}))

	c.store.mu.Lock() // of the log
	defer c.store.mu.Unlock()
	g.Expect(strings.Split(log.String(), "\n")).To(HaveLen(5))
	g.Expect(log.String()).To(ContainSubstring(" 200 PUT /velero/backups/b/tarball "))
}

func TestFail(t *testing.T) {
	cases := map[string]struct {
		failure  Failure
		put, get int
		refused  int
	}{
		"nothing": {failure: FailNothing, put: 200, get: 200},
		"writes":  {failure: FailWrites, put: 503, get: 200, refused: 1},
		"all":     {failure: FailAll, put: 503, get: 503, refused: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(t, Options{Bucket: "other"})
			g.Expect(c.status(http.MethodPut, "old", "x")).To(Equal(200))
			c.store.Fail(tc.failure)
			g.Expect(c.status(http.MethodPut, "new", "x")).To(Equal(tc.put))
			g.Expect(c.status(http.MethodGet, "old", "")).To(Equal(tc.get))
			g.Expect(c.store.Refused()).To(Equal(tc.refused))
			c.store.Fail(FailNothing)
			g.Expect(c.status(http.MethodPut, "new", "x")).To(Equal(200), "the store heals")
		})
	}
}

func TestStartNamesAnAddressInUse(t *testing.T) {
	g := NewWithT(t)
	c := newClient(t, Options{})
	_, err := Start(t.Context(), Options{Address: strings.TrimPrefix(c.store.URL(), "http://")})
	g.Expect(err).To(MatchError(And(HavePrefix("starting the object store:"), ContainSubstring("in use"))))
}
