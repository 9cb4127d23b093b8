// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// call is one hook about to run in one pod.
type call struct {
	pod   *unstructured.Unstructured
	phase Phase
	hook  Hook
	log   logrus.FieldLogger
}

func (c call) key() hookKey {
	return hookKey{
		pod:       keyOf(c.pod),
		phase:     c.phase,
		source:    c.hook.Source,
		name:      c.hook.Name,
		container: c.hook.Exec.Container,
		index:     c.hook.Index,
	}
}

// check finds out, before anything is sent to the pod, that a hook can't run. A hook that fails here has not started,
// and so has frozen nothing.
func (c call) check() error {
	if len(c.hook.Exec.Command) == 0 {
		return errors.New("its command is empty; give the program to run and its arguments")
	}
	names := containers(c.pod)
	if len(names) == 0 {
		return errors.New("the pod has no containers")
	}
	if want := c.hook.Exec.Container; want != "" && !slices.Contains(names, want) {
		return fmt.Errorf("the pod has no container %q; name one of: %s", want, strings.Join(names, ", "))
	}
	return nil
}

// wrap says which hook of which pod an error belongs to.
func (c call) wrap(err error) error {
	return fmt.Errorf("%s hook %s of pod %s/%s: %w", c.phase, c.hook, c.pod.GetNamespace(), c.pod.GetName(), err)
}

// logger is the log with the fields that identify the hook. A field named namespace would put the line into another group of the
// results file than stock has it in.
func (c call) logger() logrus.FieldLogger {
	return c.log.WithFields(logrus.Fields{
		"pod":        c.pod.GetNamespace() + "/" + c.pod.GetName(),
		"hookPhase":  c.phase,
		"hookSource": c.hook.Source,
		"hookName":   c.hook.Name,
		"hookIndex":  c.hook.Index,
	})
}

// execute runs the command. A panic below it becomes an error: what began as one hook must not take the thaw of every
// frozen pod in the server with it. The end of ctx doesn't reach the command: a hook that is running is never abandoned.
func execute(ctx context.Context, executor Executor, c call) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.logger().WithField("stack", string(debug.Stack())).Debug("Stack of the panic in a hook")
			err = fmt.Errorf("running its command panicked: %v", r)
		}
	}()
	return executor.Run(context.WithoutCancel(ctx), c.logger(), CommandOf(c.pod, c.phase, c.hook))
}
