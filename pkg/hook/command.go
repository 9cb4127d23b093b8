// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// DefaultTimeout is how long a hook may take that names no timeout.
const DefaultTimeout = 30 * time.Second

// Command is a hook made ready to be run.
type Command struct {
	// Namespace and Pod name the pod; UID is what tells it from a later one of the same name, and may be empty.
	Namespace, Pod string
	UID            types.UID
	// Container to run it in; never empty.
	Container string
	// Argv is the program and its arguments.
	Argv []string
	// Timeout bounds one attempt to run it, from the request to the command's end. It is never 0.
	Timeout time.Duration
	// Insist has a command that didn't reach its container tried again until it has run. A thaw is such a command. It may then be
	// run twice in the rare case that the connection broke at the moment at which it was to start. Each attempt looks at the pod before:
	// one that isn't that of UID any more gets no command.
	Insist bool
}

// Executor runs commands in containers of pods; podexec.Executor is one. It is used from many goroutines.
type Executor interface {
	// Run runs a command and waits for its end, for its timeout or for that of ctx. It writes the command's output to log.
	Run(ctx context.Context, log logrus.FieldLogger, command Command) error
}

// Pods looks at pods in the cluster; podexec.Executor does. It is used from many goroutines.
type Pods interface {
	// Check returns an error when a command must not be run, because its pod isn't there any more, or was replaced by another of its
	// name, and, after some patience, when the API server doesn't say. Without the right to look there is no error.
	Check(ctx context.Context, command Command) error
}

// NotRunError says that a command has not run, because it didn't reach its container.
type NotRunError struct {
	// Err is why.
	Err error
	// PodGone is true when the pod that was meant isn't there any more: it is deleted, was replaced by another of its name, or all
	// its containers have ended. No thaw is owed to it.
	PodGone bool
}

func (e *NotRunError) Error() string { return e.Err.Error() }

func (e *NotRunError) Unwrap() error { return e.Err }

// Owed reports whether an error of a post hook means that the hook has still to be run.
func Owed(err error) bool {
	var notRun *NotRunError
	return errors.As(err, &notRun) && !notRun.PodGone
}

// CommandOf returns the command of a pod's hook, with what the hook leaves open filled in: the pod's first container and
// DefaultTimeout.
func CommandOf(pod *unstructured.Unstructured, phase Phase, h Hook) Command {
	c := Command{
		Namespace: pod.GetNamespace(), Pod: pod.GetName(), UID: pod.GetUID(),
		Container: h.Exec.Container, Argv: h.Exec.Command, Timeout: h.Exec.Timeout.Duration, Insist: phase == PhasePost,
	}
	if names := containers(pod); c.Container == "" && len(names) > 0 {
		c.Container = names[0]
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	return c
}
