// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package podexec

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/velero-clipper/clipper/internal/apiretry"
	"github.com/velero-clipper/clipper/pkg/hook"
)

const (
	// DefaultInsistFor is long enough for a restart of the API server or of a kubelet. A backup that waits longer for one pod
	// keeps others waiting; who recovers frozen pods goes on after it.
	DefaultInsistFor = 2 * time.Minute
	// lookTimeout bounds one look at a pod.
	lookTimeout = 10 * time.Second
	// checkFor bounds a Check with its repetitions. It is as long as freezerecord insists on the record that comes after it: an outage
	// that the one survives mustn't end the other.
	checkFor = 20 * time.Second
	// checkPause is the longest pause between two of those repetitions, so that an answer in the last seconds isn't missed.
	checkPause = 2 * time.Second
)

// pauses between the attempts of a command that insists: half a second first, a quarter of a minute at most.
var pauses = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 20, Cap: 15 * time.Second}

// Options are what an Executor is made of.
type Options struct {
	// Config reaches the API server. Required.
	Config *rest.Config
	// Limit ends when the process has to come to its end; nothing is begun after that, and what runs is cut off. Default: never.
	Limit context.Context //nolint:containedctx // it is the life of the process, not that of a call
	// InsistFor is how long a command that insists is tried again. Default: DefaultInsistFor.
	InsistFor time.Duration
}

// Executor runs commands in pods. It is safe for concurrent use.
type Executor struct {
	opts      Options
	client    kubernetes.Interface
	transport *transport
	pauses    wait.Backoff
}

// New makes an Executor.
func New(opts Options) (*Executor, error) {
	if opts.Limit == nil {
		opts.Limit = context.Background()
	}
	if opts.InsistFor == 0 {
		opts.InsistFor = DefaultInsistFor
	}
	client, err := kubernetes.NewForConfig(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client for commands in pods: %w", err)
	}
	transport, err := newTransport(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("making connections for commands in pods: %w", err)
	}
	return &Executor{opts: opts, client: client, transport: transport, pauses: pauses}, nil
}

// Run implements hook.Executor. The error of a command that ended with another exit code than 0 is client-go's CodeExitError,
// and that of one that has not run is a hook.NotRunError.
func (e *Executor) Run(ctx context.Context, log logrus.FieldLogger, c hook.Command) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.opts.Limit, func() { cancel(context.Cause(e.opts.Limit)) })()
	log = log.WithFields(logrus.Fields{
		"hookContainer": c.Container, "hookCommand": c.Argv, "hookTimeout": c.Timeout.String(),
	})
	log.Info("Running a hook in a container")
	err := e.try(ctx, log, c)
	if !c.Insist || !hook.Owed(err) {
		return err
	}
	return e.insist(ctx, log, c, err)
}

// insist tries a command again that has not run.
func (e *Executor) insist(ctx context.Context, log logrus.FieldLogger, c hook.Command, err error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.opts.InsistFor, fmt.Errorf("it was tried for %s", e.opts.InsistFor))
	defer cancel()
	pause := e.pauses
	for warned := false; hook.Owed(err); {
		if isFinal(err) { // where the pod went in this moment, that is why
			looked := e.look(ctx, c)
			if isGone(looked) {
				return errors.Join(looked, err)
			}
			if looked == nil || apierrors.IsForbidden(looked) {
				return err
			}
		}
		if !warned {
			log.WithError(err).Warn("The hook didn't reach its container; it is tried again until it has run")
			warned = true
		}
		if !sleep(ctx, pause.Step()) {
			return ended(ctx, err)
		}
		log.WithError(err).Debug("Trying the hook again")
		next := e.try(ctx, log, c)
		if ctx.Err() != nil && hook.Owed(next) {
			return ended(ctx, err)
		}
		err = next
	}
	return err
}

// ended is the error of a command that isn't tried again because ctx has ended: why it has not run, and why that is the end.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if errors.Is(err, cause) {
		return &hook.NotRunError{Err: err}
	}
	return &hook.NotRunError{Err: fmt.Errorf("%w (%w)", err, cause)}
}

// Check implements hook.Pods. The error of a pod that isn't there any more is a hook.NotRunError that says so. A look that fails for a
// reason that may pass is repeated for checkFor. Where pods may not be read nothing is known of this one, and it passes.
func (e *Executor) Check(ctx context.Context, c hook.Command) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkFor, fmt.Errorf("it was tried for %s", checkFor))
	defer cancel()
	pause := e.pauses
	pause.Cap = min(pause.Cap, checkPause)
	for {
		err := e.look(ctx, c)
		if apierrors.IsForbidden(err) {
			return nil
		}
		if !apiretry.MayPass(err) {
			return err
		}
		if !sleep(ctx, pause.Step()) {
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}

// look is one look at the pod of a command, with the errors of Check and the API server's.
func (e *Executor) look(ctx context.Context, c hook.Command) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	pod, err := e.client.CoreV1().Pods(c.Namespace).Get(ctx, c.Pod, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("pod %s/%s isn't there any more", c.Namespace, c.Pod)
	case err != nil:
		return fmt.Errorf("looking at pod %s/%s: %w", c.Namespace, c.Pod, err)
	case c.UID != "" && pod.UID != c.UID:
		err = fmt.Errorf("pod %s/%s was replaced by another of its name: its UID was %s and is %s now; nothing is run in the new one",
			c.Namespace, c.Pod, c.UID, pod.UID)
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		err = fmt.Errorf("all containers of pod %s/%s have ended; it is %s", c.Namespace, c.Pod, pod.Status.Phase)
	default:
		return nil
	}
	return &hook.NotRunError{Err: err, PodGone: true}
}

// checkAttempt looks at the pod of a thaw before an attempt. Where pods may not be read nothing is known of it, and a thaw comes first.
func (e *Executor) checkAttempt(ctx context.Context, c hook.Command) error {
	if !c.Insist {
		return nil
	}
	err := e.look(ctx, c)
	if err == nil || isGone(err) {
		return err
	}
	if apierrors.IsForbidden(err) {
		return nil
	}
	return &hook.NotRunError{Err: err}
}

func isGone(err error) bool {
	var notRun *hook.NotRunError
	return errors.As(err, &notRun) && notRun.PodGone
}

// try makes one attempt and writes what the command put out.
func (e *Executor) try(ctx context.Context, log logrus.FieldLogger, c hook.Command) error {
	if ctx.Err() != nil {
		return &hook.NotRunError{Err: context.Cause(ctx)}
	}
	if err := e.checkAttempt(ctx, c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, errTimeout) // the look is ours, the timeout the command's
	defer cancel()
	a := &attempt{Executor: e, command: c}
	err := a.run(ctx)
	if a.progress.mayHaveRun() {
		log.Infof("stdout: %s", a.stdout.String())
		log.Infof("stderr: %s", a.stderr.String())
	}
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		err = a.classify(fmt.Errorf("the command didn't end within its timeout of %s", c.Timeout))
	}
	return err
}

var errTimeout = errors.New("the hook's timeout is over")

// sleep returns true when the time has passed, and false when ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
