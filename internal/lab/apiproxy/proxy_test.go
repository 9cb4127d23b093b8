// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const snapshots = "/apis/snapshot.storage.k8s.io/v1/namespaces/app/volumesnapshots"

func TestRead(t *testing.T) {
	for _, c := range []struct {
		method, url string
		want        request
	}{
		{"GET", "/api/v1/pods", request{"list", "pods"}},
		{"GET", "/api/v1/namespaces/app/pods?limit=5", request{"list", "pods"}},
		{"GET", "/api/v1/namespaces/app/pods/a", request{"get", "pods"}},
		{"GET", "/api/v1/namespaces/app", request{"get", "namespaces"}},
		{"GET", "/api/v1/namespaces", request{"list", "namespaces"}},
		{"POST", "/api/v1/namespaces/app/pods/a/exec?command=x", request{"create", "pods/exec"}},
		{"POST", snapshots, request{"create", "volumesnapshots"}},
		{"PATCH", snapshots + "/s/status", request{"patch", "volumesnapshots/status"}},
		{"PUT", snapshots + "/s/status", request{"update", "volumesnapshots/status"}},
		{"DELETE", snapshots + "/s", request{"delete", "volumesnapshots"}},
		{"DELETE", snapshots, request{"deletecollection", "volumesnapshots"}},
		{"GET", "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents?watch=true", request{"watch", "volumesnapshotcontents"}},
		{"GET", "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents?watch=1", request{"watch", "volumesnapshotcontents"}},
		{"GET", "/readyz", request{}},
		{"GET", "/apis/snapshot.storage.k8s.io/v1", request{}},
		{"GET", "/api/v1", request{}},
	} {
		t.Run(c.method+" "+c.url, func(t *testing.T) {
			NewWithT(t).Expect(read(httptest.NewRequest(c.method, c.url, nil))).To(Equal(c.want))
		})
	}
}

// backend is an API server that says who asked, and that streams a line at once to a watch, which it then keeps open.
func backend() *httptest.Server {
	return httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.Header.Get("Authorization"))
		if r.URL.Query().Get("watch") == "true" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
}

// start starts a proxy before a backend, and a client of it that speaks HTTP/2.
func start(t *testing.T, target *httptest.Server) (*Proxy, *http.Client) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(target.Certificate())
	p, err := Start(Options{Target: target.URL, CA: pool, Certificate: target.TLS.Certificates[0]})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	transport := target.Client().Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = true
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		p.Stop()
		target.CloseClientConnections()
		target.Close()
	})
	return p, &http.Client{Transport: transport}
}

func send(g Gomega, client *http.Client, method, url string) *http.Response {
	request, err := http.NewRequest(method, url, nil)
	g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer token")
	response, err := client.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	return response
}

func body(g Gomega, response *http.Response) string {
	content, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	return string(content)
}

func TestAnswersAndPassesOn(t *testing.T) {
	g := NewWithT(t)
	p, client := start(t, backend())
	p.Add(Fault{Verbs: []string{"create", "delete"}, Resources: []string{"volumesnapshots"}, Answer: 429, Times: 2})
	p.Add(Fault{Resources: []string{"volumesnapshots/status"}, Answer: 409, RetryAfter: 3 * time.Second})

	for range 2 {
		response := send(g, client, "POST", p.URL()+snapshots)
		g.Expect(response.StatusCode).To(Equal(429))
		g.Expect(response.Proto).To(Equal("HTTP/2.0"))
		g.Expect(response.Header.Get("Retry-After")).To(Equal("1"))
		var answer metav1.Status
		g.Expect(json.Unmarshal([]byte(body(g, response)), &answer)).To(Succeed())
		g.Expect(answer.Reason).To(Equal(metav1.StatusReasonTooManyRequests))
	}
	response := send(g, client, "POST", p.URL()+snapshots)
	g.Expect(response.StatusCode).To(Equal(200), "the fault was for two requests")
	g.Expect(body(g, response)).To(Equal("Bearer token\n"))

	response = send(g, client, "PUT", p.URL()+snapshots+"/s/status")
	g.Expect(response.StatusCode).To(Equal(409))
	g.Expect(response.Header.Get("Retry-After")).To(Equal("3"))
	body(g, response)
	response = send(g, client, "GET", p.URL()+"/readyz")
	g.Expect(response.StatusCode).To(Equal(200), "no fault is for what is no resource")
	body(g, response)

	p.Clear()
	response = send(g, client, "PUT", p.URL()+snapshots+"/s/status")
	g.Expect(response.StatusCode).To(Equal(200))
	body(g, response)
	g.Expect(p.Counts()).To(Equal(Counts{Answered: 3}))
}

func TestFaultEnds(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		fault Fault
		after time.Duration
		want  bool
	}{
		"before its time":   {Fault{For: time.Second}, 999 * time.Millisecond, false},
		"at its time":       {Fault{For: time.Second}, time.Second, true},
		"without any bound": {Fault{}, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(newActive(c.fault, now).over(now.Add(c.after))).To(Equal(c.want))
		})
	}
}

func TestSlow(t *testing.T) {
	g := NewWithT(t)
	p, client := start(t, backend())
	p.Add(Fault{Slow: 50 * time.Millisecond, Times: 1})
	begin := time.Now()
	response := send(g, client, "GET", p.URL()+snapshots)
	g.Expect(time.Since(begin)).To(BeNumerically(">=", 50*time.Millisecond))
	g.Expect(response.StatusCode).To(Equal(200), "it is passed on then")
	body(g, response)
	g.Expect(p.Counts().Slowed).To(Equal(1))
}

func TestWatchesAreStreamedCutAndExpired(t *testing.T) {
	g := NewWithT(t)
	p, client := start(t, backend())
	watch := p.URL() + snapshots + "?watch=true&resourceVersion=5"
	open := func() *bufio.Reader {
		response := send(g, client, "GET", watch)
		g.Expect(response.StatusCode).To(Equal(200))
		t.Cleanup(func() { _ = response.Body.Close() })
		return bufio.NewReader(response.Body)
	}

	stream := open()
	line, err := stream.ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(line).To(Equal("Bearer token\n"), "what the backend wrote is there although the watch goes on")
	g.Expect(p.CutWatches()).To(Equal(1))
	_, err = stream.ReadString('\n')
	g.Expect(err).To(HaveOccurred())

	stream = open()
	g.Expect(stream.ReadString('\n')).To(Equal("Bearer token\n"), "a watch that was only cut is taken up again")
	g.Expect(p.ExpireWatches()).To(Equal(1))
	_, err = stream.ReadString('\n')
	g.Expect(err).To(HaveOccurred())

	g.Expect(open().ReadString('\n')).To(And(ContainSubstring(`"ERROR"`), ContainSubstring(`"Expired"`), ContainSubstring("410")))
	g.Expect(open().ReadString('\n')).To(Equal("Bearer token\n"), "only the first one is refused")
	g.Expect(p.Counts()).To(Equal(Counts{Cut: 2, Expired: 1}))
}

func TestAPIServerThatIsAwayIsABrokenConnection(t *testing.T) {
	g := NewWithT(t)
	target := backend()
	p, client := start(t, target)
	target.Close()
	response, err := client.Get(p.URL() + snapshots)
	if err == nil {
		body(g, response)
	}
	g.Expect(err).To(HaveOccurred())
}
