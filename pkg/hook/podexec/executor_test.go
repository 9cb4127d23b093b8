// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package podexec

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientexec "k8s.io/client-go/util/exec"

	"github.com/velero-clipper/clipper/pkg/hook"
)

func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func TestOutputAndExitCode(t *testing.T) {
	c := newCluster(t)
	c.run = func(_ context.Context, command []string, stdout io.Writer, _ net.Conn) error {
		_, _ = io.WriteString(stdout, "hello")
		if command[0] == "thaw" {
			return exits(3)
		}
		return nil
	}
	e := c.executor(t, Options{})
	t.Run("success", func(t *testing.T) {
		g := NewWithT(t)
		log, written := newLog()
		g.Expect(e.Run(t.Context(), log, freeze())).To(Succeed())
		g.Expect(messages(written, logrus.InfoLevel)).To(Equal([]string{"Running a hook in a container", "stdout: hello", "stderr: "}))
	})
	t.Run("an exit code is never repeated", func(t *testing.T) {
		g := NewWithT(t)
		log, written := newLog()
		err := e.Run(t.Context(), log, thaw())
		g.Expect(err).To(MatchError("command terminated with exit code 3"))
		var exit clientexec.CodeExitError
		g.Expect(errors.As(err, &exit)).To(BeTrue())
		g.Expect(hook.Owed(err)).To(BeFalse())
		g.Expect(messages(written, logrus.InfoLevel)).To(ContainElement("stdout: hello"))
		g.Expect(messages(written, logrus.WarnLevel)).To(BeEmpty())
	})
	_, ran := c.seen()
	NewWithT(t).Expect(ran).To(Equal([]string{"main: freeze", "main: thaw now"}))
}

func TestOutputIsBounded(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.run = func(_ context.Context, _ []string, stdout io.Writer, _ net.Conn) error {
		for range 20 {
			if _, err := io.WriteString(stdout, strings.Repeat("x", 10<<10)); err != nil {
				return err
			}
		}
		return nil
	}
	log, written := newLog()
	g.Expect(c.executor(t, Options{}).Run(t.Context(), log, freeze())).To(Succeed())
	g.Expect(messages(written, logrus.InfoLevel)[1]).To(HaveSuffix("... (139264 more bytes)"))
}

func TestWhatDidNotReachTheContainerIsTriedAgain(t *testing.T) {
	tests := map[string]answer{
		"the API server has no time":               status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
		"too many requests":                        status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests),
		"the kubelet can't be dialled":             status(http.StatusInternalServerError, metav1.StatusReasonInternalError),
		"a load balancer has no API server":        page(http.StatusBadGateway),
		"the connection is lost before the answer": hangUp,
		"it is lost after the upgrade":             upgradeAndHangUp,
		"credentials are being renewed":            status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized),
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			e := c.executor(t, Options{})
			log, written := newLog()
			c.answers = []answer{fault}
			err := e.Run(t.Context(), log, freeze())
			g.Expect(hook.Owed(err)).To(BeTrue(), "it hasn't run: %v", err)
			_, ran := c.seen()
			g.Expect(ran).To(BeEmpty(), "and isn't tried again, being no thaw")
			g.Expect(messages(written, logrus.WarnLevel)).To(BeEmpty())

			c.answers = []answer{fault, fault, fault}
			g.Expect(e.Run(t.Context(), log, thaw())).To(Succeed())
			asked, ran := c.seen()
			g.Expect(ran).To(Equal([]string{"main: thaw now"}))
			g.Expect(asked).To(Equal(5))
			g.Expect(messages(written, logrus.WarnLevel)).To(HaveLen(1), "said once")
		})
	}
}

func TestWhatIsNotTriedAgain(t *testing.T) {
	forbidden := status(http.StatusForbidden, metav1.StatusReasonForbidden)
	notFound := status(http.StatusNotFound, metav1.StatusReasonNotFound)
	tests := map[string]struct {
		fault answer
		pod   func(*corev1.Pod) *corev1.Pod
		goes  bool
		gone  bool
		text  string
	}{
		"a refusal that asking again doesn't change": {fault: forbidden, text: "the answer is 403"},
		"a pod that is gone": {
			pod: func(*corev1.Pod) *corev1.Pod { return nil }, gone: true, text: "isn't there any more",
		},
		"a pod that goes at that moment": {fault: notFound, goes: true, gone: true, text: "the answer is 404"},
		"another pod of that name": {
			pod: func(p *corev1.Pod) *corev1.Pod { p.UID = "another"; return p }, gone: true,
			text: "its UID was uid-a and is another now",
		},
		"a pod that has ended": {
			pod: func(p *corev1.Pod) *corev1.Pod { p.Status.Phase = corev1.PodSucceeded; return p }, gone: true, text: "have ended",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			log, _ := newLog()
			if tt.fault != nil {
				c.answers = []answer{func(w http.ResponseWriter, r *http.Request) {
					c.set(func() {
						if tt.goes {
							c.pod = nil
						}
					})
					tt.fault(w, r)
				}}
			}
			if tt.pod != nil {
				c.pod = tt.pod(c.pod)
			}
			err := c.executor(t, Options{}).Run(t.Context(), log, thaw())
			var notRun *hook.NotRunError
			g.Expect(errors.As(err, &notRun)).To(BeTrue(), "%v", err)
			g.Expect(notRun.PodGone).To(Equal(tt.gone))
			g.Expect(err).To(MatchError(ContainSubstring(tt.text)))
			asked, ran := c.seen()
			g.Expect(asked == 1).To(Equal(tt.fault != nil), "a pod that isn't the one that is meant isn't asked")
			g.Expect(ran).To(BeEmpty())
		})
	}
}

func TestAPodThatIsReplacedBetweenTwoAttempts(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.answers = []answer{func(w http.ResponseWriter, r *http.Request) {
		c.set(func() { c.pod = c.pod.DeepCopy(); c.pod.UID = "another" })
		status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)(w, r)
	}}
	log, _ := newLog()
	err := c.executor(t, Options{}).Run(t.Context(), log, thaw())
	g.Expect(err).To(MatchError(ContainSubstring("its UID was uid-a and is another now")))
	g.Expect(hook.Owed(err)).To(BeFalse())
	_, ran := c.seen()
	g.Expect(ran).To(BeEmpty())
}

func TestAThawWherePodsMayNotBeRead(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.look = status(http.StatusForbidden, metav1.StatusReasonForbidden)
	log, _ := newLog()
	e := c.executor(t, Options{})
	g.Expect(e.Run(t.Context(), log, thaw())).To(Succeed(), "a pod must not stay frozen for that")
	g.Expect(e.Check(t.Context(), freeze())).To(Succeed(), "nor be backed up without being frozen")
}

func TestALookThatFailsIsRepeatedForAThaw(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.look = func(w http.ResponseWriter, r *http.Request) {
		c.set(func() { c.look = nil })
		status(http.StatusInternalServerError, metav1.StatusReasonInternalError)(w, r)
	}
	log, _ := newLog()
	g.Expect(c.executor(t, Options{}).Run(t.Context(), log, thaw())).To(Succeed())
}

func TestAPodThatGoesEndsTheInsisting(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	down := status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	c.answers = []answer{down, down, func(w http.ResponseWriter, r *http.Request) {
		c.set(func() { c.pod = nil })
		down(w, r)
	}}
	log, _ := newLog()
	err := c.executor(t, Options{}).Run(t.Context(), log, thaw())
	g.Expect(err).To(HaveOccurred())
	g.Expect(hook.Owed(err)).To(BeFalse())
	asked, _ := c.seen()
	g.Expect(asked).To(Equal(3))
}

func TestInsistingEnds(t *testing.T) {
	down := func(c *cluster) {
		for range 10000 {
			c.answers = append(c.answers, status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable))
		}
	}
	t.Run("after its time", func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t)
		down(c)
		log, _ := newLog()
		err := c.executor(t, Options{InsistFor: patience}).Run(t.Context(), log, thaw())
		g.Expect(hook.Owed(err)).To(BeTrue())
		g.Expect(err).To(MatchError(ContainSubstring("it was tried for 2s")))
		asked, ran := c.seen()
		g.Expect(asked).To(BeNumerically(">", 1))
		g.Expect(ran).To(BeEmpty())
	})
	t.Run("with the context", func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t)
		down(c)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("enough"))
		defer cancel()
		log, _ := newLog()
		g.Expect(c.executor(t, Options{}).Run(ctx, log, thaw())).To(MatchError(ContainSubstring("enough")))
	})
	t.Run("with the life of the process, in which nothing is begun any more", func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t)
		limit, end := context.WithCancelCause(t.Context())
		end(errors.New("the server must stop now"))
		log, _ := newLog()
		err := c.executor(t, Options{Limit: limit}).Run(t.Context(), log, thaw())
		g.Expect(err).To(MatchError(ContainSubstring("the server must stop now")))
		g.Expect(hook.Owed(err)).To(BeTrue())
		asked, _ := c.seen()
		g.Expect(asked).To(BeZero())
	})
}

// runsUntilTheEnd is a command that ends with the test.
func runsUntilTheEnd(t *testing.T, started func()) func(context.Context, []string, io.Writer, net.Conn) error {
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	return func(context.Context, []string, io.Writer, net.Conn) error {
		started()
		<-end
		return nil
	}
}

// patience is longer than it takes a busy machine to start a command.
const patience = 2 * time.Second

func TestACommandThatRuns(t *testing.T) {
	t.Run("is cut off by its timeout, and not repeated", func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t)
		started := make(chan struct{}, 1)
		c.run = runsUntilTheEnd(t, func() { started <- struct{}{} })
		command := thaw()
		command.Timeout = patience
		log, _ := newLog()
		err := c.executor(t, Options{}).Run(t.Context(), log, command)
		g.Expect(err).To(MatchError("the command didn't end within its timeout of 2s"))
		g.Expect(hook.Owed(err)).To(BeFalse(), "it has been started")
		g.Expect(started).To(Receive())
		asked, _ := c.seen()
		g.Expect(asked).To(Equal(1))
	})
	t.Run("is cut off by the end of the process", func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t)
		limit, end := context.WithCancelCause(t.Context())
		c.run = runsUntilTheEnd(t, func() { end(errors.New("the server must stop now")) })
		log, _ := newLog()
		err := c.executor(t, Options{Limit: limit}).Run(t.Context(), log, thaw())
		g.Expect(err).To(MatchError(ContainSubstring("the server must stop now")))
	})
	t.Run("and whose connection is lost has no success, and is not repeated", func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(t)
		c.run = func(_ context.Context, _ []string, _ io.Writer, conn net.Conn) error { return conn.Close() }
		log, _ := newLog()
		err := c.executor(t, Options{}).Run(t.Context(), log, thaw())
		g.Expect(err).To(MatchError(errNoResult))
		g.Expect(hook.Owed(err)).To(BeFalse())
		asked, _ := c.seen()
		g.Expect(asked).To(Equal(1))
	})
}

func TestAServerThatNeverAnswers(t *testing.T) {
	for name, command := range map[string]hook.Command{"freeze": freeze(), "thaw": thaw()} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCluster(t)
			silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
			c.answers = []answer{silent}
			command.Timeout = patience
			log, _ := newLog()
			err := c.executor(t, Options{}).Run(t.Context(), log, command)
			if command.Insist {
				g.Expect(err).NotTo(HaveOccurred(), "the second time it was heard")
				return
			}
			g.Expect(err).To(MatchError("the command didn't end within its timeout of 2s"))
			g.Expect(hook.Owed(err)).To(BeTrue())
		})
	}
}

func TestNobodyThere(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	e := c.executor(t, Options{})
	c.server.Close()
	log, _ := newLog()
	err := e.Run(t.Context(), log, freeze())
	g.Expect(err).To(MatchError(ContainSubstring("connection refused")))
	g.Expect(hook.Owed(err)).To(BeTrue())
}

// overWebSocket ends a command with an exit code, as the API server does.
func overWebSocket(t *testing.T, code int) answer {
	serve := func(conn *websocket.Conn) {
		conn.PayloadType = websocket.BinaryFrame
		// client-go loses what comes before it has made its streams, and there is nothing to see that by.
		sleep(conn.Request().Context(), 200*time.Millisecond)
		result, _ := json.Marshal(metav1.Status{
			Status: metav1.StatusFailure, Reason: "NonZeroExitCode",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(code)}}},
		})
		if _, err := conn.Write(append([]byte{3}, result...)); err != nil {
			t.Errorf("writing the result: %v", err)
		}
		_ = conn.WriteClose(1000)
	}
	server := websocket.Server{Handler: serve, Handshake: func(config *websocket.Config, _ *http.Request) error {
		config.Protocol = []string{"v5.channel.k8s.io"}
		return nil
	}}
	return server.ServeHTTP
}

func TestWebSocketsWhereSPDYDoesNotPass(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.answers = []answer{page(http.StatusBadRequest), overWebSocket(t, 7)}
	log, _ := newLog()
	err := c.executor(t, Options{}).Run(t.Context(), log, thaw())
	g.Expect(err).To(MatchError("command terminated with exit code 7"))
	g.Expect(hook.Owed(err)).To(BeFalse())
	asked, _ := c.seen()
	g.Expect(asked).To(Equal(2))
}
