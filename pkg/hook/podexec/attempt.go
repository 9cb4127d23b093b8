// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package podexec

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	streamprotocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/velero-clipper/clipper/pkg/hook"
)

// attempt is one try to run a command.
type attempt struct {
	*Executor
	command        hook.Command
	progress       progress
	stdout, stderr output
}

// run makes the attempt and returns when the command has ended, it turned out that it can't be run, or ctx has ended.
func (a *attempt) run(ctx context.Context) error {
	err := a.overSPDY(ctx)
	if err != nil && a.progress.withoutSPDY() && ctx.Err() == nil {
		a.progress.restart()
		err = a.overWebSocket(ctx)
	}
	if err == nil && a.progress.resultIsMissing() {
		err = errNoResult
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return a.classify(err)
}

var errNoResult = errors.New("the connection ended before the command's result was there")

// classify marks the error of a command that has not run.
func (a *attempt) classify(err error) error {
	if err == nil || a.progress.hasRun() {
		return err
	}
	if refusal := a.progress.refusal(); refusal != nil {
		err = refusal
	}
	if a.progress.mayHaveRun() {
		if !a.command.Insist {
			return err // run or not, it isn't repeated
		}
		err = fmt.Errorf("the connection broke at the moment at which the command was to start: %w", err)
	}
	return &hook.NotRunError{Err: err}
}

// url is where the command is asked for.
func (a *attempt) url() *url.URL {
	return a.client.CoreV1().RESTClient().Post().
		Namespace(a.command.Namespace).Resource("pods").Name(a.command.Pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: a.command.Container, Command: a.command.Argv, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec).URL()
}

func (a *attempt) streams() remotecommand.StreamOptions {
	return remotecommand.StreamOptions{Stdout: &a.stdout, Stderr: &a.stderr}
}

func (a *attempt) overSPDY(ctx context.Context) error {
	dialer := &dialer{with: a.transport.config.Dial}
	defer dialer.close()
	roundTripper, upgrader, err := a.transport.spdy(dialer)
	if err != nil {
		return err
	}
	// Older protocols say nothing when a command has succeeded, so that a lost connection would look like a success.
	executor, err := remotecommand.NewSPDYExecutorForProtocols(roundTripper,
		watchedUpgrader{upgrader, &a.progress, !a.transport.isProxied()}, http.MethodPost, a.url(),
		streamprotocol.StreamProtocolV5Name, streamprotocol.StreamProtocolV4Name)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, a.streams())
}

func (a *attempt) overWebSocket(ctx context.Context) error {
	executor, err := remotecommand.NewWebSocketExecutor(a.transport.webSocket(&a.progress), http.MethodGet, a.url().String())
	if err != nil {
		return err
	}
	err = executor.StreamWithContext(ctx, a.streams())
	// The streams can't be watched here. What is certain is an exit code, and that a command ran for as long as it was waited for.
	if exit := (exec.CodeExitError{}); err == nil || errors.As(err, &exit) || ctx.Err() != nil {
		a.progress.change(func(p *progress) { p.confirmed = p.asked })
	}
	return err
}
