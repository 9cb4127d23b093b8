// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package podexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	streamprotocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clientcommand "k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/velero-clipper/clipper/pkg/hook"
)

func TestMain(m *testing.M) {
	code := m.Run()
	// The wait for the confirmation of a stream goes on for half a minute after its connection was lost, and spdystream's end of a
	// connection for a second, which is more than goleak waits for.
	expected := goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Stream).WaitTimeout")
	leaks := goleak.Find(expected)
	for range 10 {
		if leaks == nil {
			break
		}
		leaks = goleak.Find(expected)
	}
	if leaks != nil {
		fmt.Fprintln(os.Stderr, leaks)
		code = 1
	}
	os.Exit(code)
}

// answer meets one exec request instead of a container; nil runs the command.
type answer func(w http.ResponseWriter, r *http.Request)

// status answers as the API server does.
func status(code int, reason metav1.StatusReason) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: reason, Message: fmt.Sprintf("the answer is %d", code),
		})
	}
}

// page answers as something between the API server and us may.
func page(code int) answer {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>a proxy</html>", code) }
}

// hangUp ends the connection without an answer.
func hangUp(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }

// upgradeAndHangUp ends it after the upgrade, before there are streams.
func upgradeAndHangUp(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "SPDY/3.1")
	w.Header().Set("X-Stream-Protocol-Version", "v5.channel.k8s.io")
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// cluster is an API server with one pod, app/a, whose containers run commands.
type cluster struct {
	server *httptest.Server
	run    func(ctx context.Context, command []string, stdout io.Writer, conn net.Conn) error

	mu      sync.Mutex
	answers []answer // for the next exec requests
	pod     *corev1.Pod
	look    answer // to those who look at the pod
	asked   int
	ran     []string
}

type connKey struct{}

func newCluster(t *testing.T) *cluster {
	c := &cluster{pod: &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "a", UID: "uid-a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/namespaces/app/pods/a", c.getPod)
	mux.HandleFunc("/api/v1/namespaces/app/pods/a/exec", c.exec)
	c.server = httptest.NewUnstartedServer(mux)
	c.server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
	c.server.StartTLS()
	t.Cleanup(func() {
		c.server.CloseClientConnections()
		c.server.Close()
	})
	return c
}

func (c *cluster) getPod(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	pod, look := c.pod, c.look
	c.mu.Unlock()
	if look != nil {
		look(w, nil)
		return
	}
	if pod == nil {
		status(http.StatusNotFound, metav1.StatusReasonNotFound)(w, nil)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(pod)
}

func (c *cluster) exec(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.asked++
	var next answer
	if len(c.answers) > 0 {
		next, c.answers = c.answers[0], c.answers[1:]
	}
	c.mu.Unlock()
	if next != nil {
		next(w, r)
		return
	}
	query := r.URL.Query()
	options, err := remotecommand.NewOptions(r)
	if err != nil || query.Get("stdout") == "" {
		options = &remotecommand.Options{Stdout: true, Stderr: true}
	}
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	remotecommand.ServeExec(w, r, container{c, conn}, "a", "", query.Get("container"), query["command"],
		options, time.Minute, 5*time.Second, streamprotocol.SupportedStreamingProtocols)
}

// set changes the cluster while it runs.
func (c *cluster) set(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

func (c *cluster) seen() (asked int, ran []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked, slices.Clone(c.ran)
}

type container struct {
	cluster *cluster
	conn    net.Conn
}

func (c container) ExecInContainer(ctx context.Context, _ string, _ types.UID, name string, command []string,
	_ io.Reader, stdout, _ io.WriteCloser, _ bool, _ <-chan clientcommand.TerminalSize, _ time.Duration) error {
	c.cluster.mu.Lock()
	c.cluster.ran = append(c.cluster.ran, name+": "+strings.Join(command, " "))
	run := c.cluster.run
	c.cluster.mu.Unlock()
	if run == nil {
		_, err := io.WriteString(stdout, "done\n")
		return err
	}
	return run(ctx, command, stdout, c.conn)
}

func exits(code int) error {
	return utilexec.CodeExitError{Err: errors.New("exit"), Code: code}
}

// executor makes one that doesn't pause for long.
func (c *cluster) executor(t *testing.T, opts Options) *Executor {
	t.Helper()
	opts.Config = &rest.Config{
		Host: c.server.URL,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: pemOf(c.server),
		},
	}
	if opts.InsistFor == 0 {
		opts.InsistFor = 20 * time.Second
	}
	e, err := New(opts)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	e.pauses = wait.Backoff{Duration: time.Millisecond, Factor: 1.5, Steps: 100, Cap: 50 * time.Millisecond}
	return e
}

func thaw() hook.Command {
	return hook.Command{
		Namespace: "app", Pod: "a", UID: "uid-a", Container: "main", Argv: []string{"thaw", "now"}, Timeout: 10 * time.Second, Insist: true,
	}
}

func freeze() hook.Command {
	c := thaw()
	c.Argv, c.Insist = []string{"freeze"}, false
	return c
}

func newLog() (logrus.FieldLogger, *logrustest.Hook) {
	logger, written := logrustest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	return logger, written
}

func messages(written *logrustest.Hook, level logrus.Level) []string {
	out := []string{}
	for _, entry := range written.AllEntries() {
		if entry.Level == level {
			out = append(out, entry.Message)
		}
	}
	return out
}
