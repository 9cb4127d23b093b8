// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	streamprotocol "k8s.io/apimachinery/pkg/util/remotecommand"
	clientcommand "k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	defaultAddress = "127.0.0.1:0"
	// idleTimeout is how long a stream may be silent: longer than any hook's timeout.
	idleTimeout = 4 * time.Hour
	// streamTimeout is how long a client may take to open its streams.
	streamTimeout = 10 * time.Second
	headerTimeout = 30 * time.Second
	// stopTimeout is how long a request may take that is under way, but has no streams yet, when the Kubelet stops.
	stopTimeout = 15 * time.Second
)

// Result says how a command goes.
type Result struct {
	// Takes is how long the command runs after Run has returned.
	Takes time.Duration
	// ExitCode is what it ends with.
	ExitCode int
	// Stdout is what it writes, at its end.
	Stdout string
	// Err makes the command fail without an exit code, as when the container doesn't run.
	Err error
}

// Config is what a Kubelet is made of.
type Config struct {
	// Address is the host and port to listen on. Default: a free port of 127.0.0.1.
	Address string
	// Run decides how a command goes; it is called when the command starts, and may itself block until ctx ends, which
	// is when the Kubelet stops. Default: every command succeeds at once.
	Run func(ctx context.Context, call ExecCall) Result
	// ErrorLog gets what goes wrong with connections. Default: nothing is written.
	ErrorLog io.Writer
}

// Kubelet serves exec requests. All methods may be called at any time, from many goroutines.
type Kubelet struct {
	config      Config
	certificate tls.Certificate
	calls       calls

	mu       sync.Mutex
	listener net.Listener
	// execs counts the requests under way; their connections are hijacked, so that the HTTP server doesn't know them.
	execs sync.WaitGroup
}

// New makes a Kubelet with a certificate of its own.
func New(config Config) (*Kubelet, error) {
	if config.Address == "" {
		config.Address = defaultAddress
	}
	if config.Run == nil {
		config.Run = func(context.Context, ExecCall) Result { return Result{} }
	}
	if config.ErrorLog == nil {
		config.ErrorLog = io.Discard
	}
	address, err := net.ResolveTCPAddr("tcp", config.Address)
	if err != nil {
		return nil, fmt.Errorf("kubelet address %q: %w", config.Address, err)
	}
	certificate, err := selfSigned(address.IP)
	if err != nil {
		return nil, err
	}
	return &Kubelet{config: config, certificate: certificate, calls: calls{changed: make(chan struct{})}}, nil
}

// Listen opens the port and returns where, for the Node's status. Connections are accepted from now on and answered once
// Serve runs. Called again it returns the same.
func (k *Kubelet) Listen() (host string, port int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.listener == nil {
		if k.listener, err = net.Listen("tcp", k.config.Address); err != nil {
			return "", 0, fmt.Errorf("kubelet: %w", err)
		}
	}
	address := k.listener.Addr().(*net.TCPAddr)
	return address.IP.String(), address.Port, nil
}

// CertificatePEM returns the certificate, for clients that want to verify it. The kube-apiserver doesn't unless it is
// given --kubelet-certificate-authority.
func (k *Kubelet) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.certificate.Certificate[0]})
}

// Serve answers requests until ctx ends, and returns when all have been answered. Commands that run are ended then. It
// can be called once.
func (k *Kubelet) Serve(ctx context.Context) error {
	if _, _, err := k.Listen(); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout,
		BaseContext:       func(net.Listener) context.Context { return groupCtx },
		ErrorLog:          log.New(k.config.ErrorLog, "kubelet: ", log.LstdFlags),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{k.certificate}, MinVersion: tls.VersionTLS12},
		// An upgrade to SPDY or WebSocket needs HTTP/1.1.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	group.Go(func() error {
		if err := server.ServeTLS(k.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("kubelet: serving: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-groupCtx.Done()
		// When Shutdown has returned, every request has been answered or has been counted in execs.
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(groupCtx), stopTimeout)
		defer cancel()
		if err := server.Shutdown(stopCtx); err != nil {
			return errors.Join(fmt.Errorf("kubelet: stopping: %w", err), server.Close())
		}
		return nil
	})
	err := group.Wait()
	k.execs.Wait()
	return err
}

// exec handles one request of the API server.
func (k *Kubelet) exec(w http.ResponseWriter, req *http.Request) {
	k.execs.Add(1)
	defer k.execs.Done()
	command := req.URL.Query()["command"]
	if len(command) == 0 {
		http.Error(w, "the request has no command", http.StatusBadRequest)
		return
	}
	options, err := remotecommand.NewOptions(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	running := container{kubelet: k, call: ExecCall{
		Namespace: req.PathValue("namespace"), Pod: req.PathValue("pod"), Container: req.PathValue("container"),
	}}
	remotecommand.ServeExec(w, req, running, running.call.Pod, "", running.call.Container, command,
		options, idleTimeout, streamTimeout, streamprotocol.SupportedStreamingProtocols)
}

// container is what the streaming code runs a command in.
type container struct {
	kubelet *Kubelet
	call    ExecCall
}

// ExecInContainer runs a command, once the client's streams are there.
func (c container) ExecInContainer(ctx context.Context, _ string, _ types.UID, _ string, command []string,
	_ io.Reader, stdout, _ io.WriteCloser, _ bool, _ <-chan clientcommand.TerminalSize, _ time.Duration) error {
	c.call.Command = command
	call := c.kubelet.calls.start(c.call)
	result := c.kubelet.run(ctx, *call)
	if result.Err == nil && stdout != nil && result.Stdout != "" {
		if _, err := io.WriteString(stdout, result.Stdout); err != nil {
			result.Err = fmt.Errorf("writing the command's output: %w", err)
		}
	}
	c.kubelet.calls.end(call, result)
	switch {
	case result.Err != nil:
		return result.Err
	case result.ExitCode != 0:
		return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", result.ExitCode), Code: result.ExitCode}
	}
	return nil
}

// run lets a command take its time. When the Kubelet stops, the command is ended.
func (k *Kubelet) run(ctx context.Context, call ExecCall) Result {
	result := k.config.Run(ctx, call)
	timer := time.NewTimer(result.Takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return Result{Err: fmt.Errorf("the kubelet stops: %w", context.Cause(ctx))}
	}
	return result
}
