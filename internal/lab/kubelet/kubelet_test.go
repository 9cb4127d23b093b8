// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"golang.org/x/net/websocket"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"
)

func TestMain(m *testing.M) {
	// spdystream keeps this goroutine for a second when the other end has closed the connection first.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

// served is a Kubelet that serves, and how a client reaches it.
type served struct {
	*Kubelet
	config *rest.Config
	stop   func() error
}

// serve starts a Kubelet, and stops it when the test ends.
func serve(t *testing.T, run func(context.Context, ExecCall) Result) *served {
	t.Helper()
	g := NewWithT(t)
	k, err := New(Config{Run: run})
	g.Expect(err).NotTo(HaveOccurred())
	host, port, err := k.Listen()
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return k.Serve(ctx) })
	s := &served{Kubelet: k, config: &rest.Config{
		Host:            "https://" + net.JoinHostPort(host, strconv.Itoa(port)),
		TLSClientConfig: rest.TLSClientConfig{CAData: k.CertificatePEM()},
	}}
	s.stop = func() error { cancel(); return group.Wait() }
	t.Cleanup(func() { g.Expect(s.stop()).To(Succeed()) })
	return s
}

// url is what the kube-apiserver asks for.
func (s *served) url(pod string, command ...string) *url.URL {
	query := url.Values{"command": command, "output": {"1"}, "error": {"1"}}
	u, err := url.Parse(s.config.Host + "/exec/app/" + pod + "/main?" + query.Encode())
	if err != nil {
		panic(err)
	}
	return u
}

// exec runs a command over SPDY, as Velero does, and returns its output.
func (s *served) exec(ctx context.Context, pod string, command ...string) (string, error) {
	executor, err := remotecommand.NewSPDYExecutor(s.config, http.MethodPost, s.url(pod, command...))
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
	return stdout.String(), err
}

func (s *served) await(t *testing.T, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	NewWithT(t).Expect(s.Await(ctx, condition)).To(Succeed())
}

func TestACommandSucceedsByDefault(t *testing.T) {
	g := NewWithT(t)
	k := serve(t, nil)
	before := time.Now()
	out, err := k.exec(t.Context(), "a", "/bin/sh", "-c", "sync && freeze /data")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(BeEmpty())
	calls := k.Calls()
	g.Expect(calls).To(HaveLen(1))
	g.Expect(calls[0].Start).To(BeTemporally(">=", before))
	g.Expect(calls[0].End).To(And(BeTemporally(">=", calls[0].Start), BeTemporally("<=", time.Now())))
	calls[0].Start, calls[0].End = time.Time{}, time.Time{}
	g.Expect(calls[0]).To(Equal(ExecCall{
		Namespace: "app", Pod: "a", Container: "main", Command: []string{"/bin/sh", "-c", "sync && freeze /data"},
	}))
}

func TestResults(t *testing.T) {
	k := serve(t, func(_ context.Context, call ExecCall) Result {
		switch call.Command[0] {
		case "fails":
			return Result{ExitCode: 3, Stdout: "before the end"}
		case "breaks":
			return Result{Err: errors.New("container not running")}
		case "takes":
			return Result{Takes: 50 * time.Millisecond, Stdout: "done"}
		default:
			return Result{Stdout: call.Namespace + "/" + call.Pod + "/" + call.Container}
		}
	})
	t.Run("output", func(t *testing.T) {
		g := NewWithT(t)
		out, err := k.exec(t.Context(), "a", "whoami")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(out).To(Equal("app/a/main"))
	})
	t.Run("exit code", func(t *testing.T) {
		g := NewWithT(t)
		out, err := k.exec(t.Context(), "b", "fails")
		var exit clientexec.ExitError
		g.Expect(errors.As(err, &exit)).To(BeTrue(), "%v", err)
		g.Expect(exit.ExitStatus()).To(Equal(3))
		g.Expect(out).To(Equal("before the end"))
		g.Expect(k.Calls()).To(ContainElement(SatisfyAll(HaveField("Pod", "b"), HaveField("ExitCode", 3), HaveField("Err", ""))))
	})
	t.Run("an error that is no exit code", func(t *testing.T) {
		g := NewWithT(t)
		_, err := k.exec(t.Context(), "c", "breaks")
		g.Expect(err).To(MatchError(ContainSubstring("container not running")))
		g.Expect(k.Calls()).To(ContainElement(SatisfyAll(HaveField("Pod", "c"), HaveField("Err", "container not running"))))
	})
	t.Run("duration", func(t *testing.T) {
		g := NewWithT(t)
		out, err := k.exec(t.Context(), "d", "takes")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(out).To(Equal("done"))
		call := k.Calls()[3]
		g.Expect(call.End.Sub(call.Start)).To(BeNumerically(">=", 50*time.Millisecond))
	})
}

// client-go's WebSocket client drops what arrives before it has made its streams, so this test reads the frames itself.
func TestWebSocket(t *testing.T) {
	g := NewWithT(t)
	k := serve(t, func(context.Context, ExecCall) Result { return Result{Stdout: "hello", ExitCode: 4} })
	target := k.url("a", "greet")
	target.Scheme = "wss"
	config, err := websocket.NewConfig(target.String(), k.config.Host)
	g.Expect(err).NotTo(HaveOccurred())
	config.Protocol = []string{"v4.channel.k8s.io"}
	config.TlsConfig, err = rest.TLSConfigFor(k.config)
	g.Expect(err).NotTo(HaveOccurred())
	conn, err := config.DialContext(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = conn.Close() }()

	const stdoutChannel, errorChannel = 1, 3
	got := map[byte]string{}
	for got[errorChannel] == "" {
		var frame []byte
		g.Expect(websocket.Message.Receive(conn, &frame)).To(Succeed())
		got[frame[0]] += string(frame[1:])
	}
	g.Expect(got[stdoutChannel]).To(Equal("hello"))
	var status metav1.Status
	g.Expect(json.Unmarshal([]byte(got[errorChannel]), &status)).To(Succeed())
	g.Expect(status.Details.Causes).To(ConsistOf(HaveField("Message", "4")))
	g.Expect(k.Calls()).To(HaveLen(1))
}

func TestManyCommandsAtOnce(t *testing.T) {
	g := NewWithT(t)
	const commands = 20
	release := make(chan struct{})
	k := serve(t, func(context.Context, ExecCall) Result { <-release; return Result{} })
	var group errgroup.Group
	for i := range commands {
		group.Go(func() error { _, err := k.exec(t.Context(), fmt.Sprint("p", i), "freeze"); return err })
	}
	k.await(t, func() bool { return len(k.Calls()) == commands })
	g.Expect(k.Calls()).To(HaveEach(HaveField("End.IsZero()", true)))
	close(release)
	g.Expect(group.Wait()).To(Succeed())
	g.Expect(k.Calls()).To(HaveEach(HaveField("End.IsZero()", false)))
}

func TestStopEndsCommands(t *testing.T) {
	g := NewWithT(t)
	k := serve(t, func(context.Context, ExecCall) Result { return Result{Takes: time.Hour} })
	var group errgroup.Group
	group.Go(func() error {
		if _, err := k.exec(t.Context(), "a", "freeze"); err == nil {
			return errors.New("the command was to be ended")
		}
		return nil
	})
	k.await(t, func() bool { return len(k.Calls()) == 1 })
	g.Expect(k.stop()).To(Succeed())
	g.Expect(k.Calls()).To(ConsistOf(HaveField("Err", ContainSubstring("the kubelet stops"))), "known when Serve has returned")
	g.Expect(group.Wait()).To(Succeed())
}

func TestBadRequests(t *testing.T) {
	k := serve(t, nil)
	client, err := rest.HTTPClientFor(k.config)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer client.CloseIdleConnections()
	tests := []struct {
		name, path string
		want       int
	}{
		{"no command", "/exec/app/a/main?output=1", http.StatusBadRequest},
		{"no streams", "/exec/app/a/main?command=freeze", http.StatusBadRequest},
		{"no upgrade", "/exec/app/a/main?command=freeze&output=1", http.StatusBadRequest},
		{"something else", "/containerLogs/app/a/main", http.StatusNotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			response, err := client.Post(k.config.Host+tt.path, "", nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.Body.Close()).To(Succeed())
			g.Expect(response.StatusCode).To(Equal(tt.want))
			g.Expect(response.ProtoMajor).To(Equal(1), "SPDY needs HTTP/1.1")
		})
	}
	NewWithT(t).Expect(k.Calls()).To(BeEmpty())
}

func TestAddresses(t *testing.T) {
	g := NewWithT(t)
	_, err := New(Config{Address: "nowhere"})
	g.Expect(err).To(MatchError(ContainSubstring(`kubelet address "nowhere"`)))

	k := serve(t, nil)
	host, port, err := k.Listen()
	g.Expect(err).NotTo(HaveOccurred())
	taken, err := New(Config{Address: net.JoinHostPort(host, strconv.Itoa(port))})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(taken.Serve(t.Context())).To(MatchError(ContainSubstring("address already in use")))
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	g := NewWithT(t)
	k, err := New(Config{})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	g.Expect(k.Await(ctx, func() bool { return false })).To(MatchError("waiting for the kubelet stand-in: enough"))
}
