// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

// The annotations of Velero's documented API. A key is prefixed with the phase and a dot; for the pre phase the keys
// without a prefix, from before there were phases, are still honoured.
const (
	annotationCommand   = "hook.backup.velero.io/command"
	annotationContainer = "hook.backup.velero.io/container"
	annotationOnError   = "hook.backup.velero.io/on-error"
	annotationTimeout   = "hook.backup.velero.io/timeout"
)

// annotationPrefix returns the prefix of the keys that hold the hook of a phase, and whether there is such a hook. A
// command decides which keys are read, and then all are read with the same prefix: an unprefixed container does not
// complete a prefixed command.
func annotationPrefix(annotations map[string]string, phase Phase) (string, bool) {
	prefixes := []string{string(phase) + "."}
	if phase == PhasePre {
		prefixes = append(prefixes, "")
	}
	for _, prefix := range prefixes {
		if annotations[prefix+annotationCommand] != "" {
			return prefix, true
		}
	}
	return "", false
}

// fromAnnotations returns the hook that the annotations ask for in a phase, and whether there is one.
func fromAnnotations(annotations map[string]string, phase Phase, log logrus.FieldLogger) (Hook, bool) {
	prefix, ok := annotationPrefix(annotations, phase)
	if !ok {
		return Hook{}, false
	}
	onError := velerov1.HookErrorMode(annotations[prefix+annotationOnError])
	if onError != velerov1.HookErrorModeContinue && onError != velerov1.HookErrorModeFail {
		onError = ""
	}
	key := prefix + annotationTimeout
	return Hook{
		Source: SourceAnnotation,
		Exec: velerov1.ExecHook{
			Container: annotations[prefix+annotationContainer],
			Command:   parseCommand(annotations[prefix+annotationCommand]),
			OnError:   onError,
			Timeout:   metav1.Duration{Duration: parseTimeout(key, annotations[key], log)},
		},
	}, true
}

// parseCommand splits the value of a command annotation: a JSON list of strings is a command with its arguments, and
// anything else is one word.
func parseCommand(value string) []string {
	if strings.HasPrefix(value, "[") {
		var command []string
		if err := json.Unmarshal([]byte(value), &command); err == nil {
			return command
		}
	}
	return []string{value}
}

// parseTimeout reads the timeout annotation. What can't be used gives a warning and 0, which means the default.
func parseTimeout(key, value string, log logrus.FieldLogger) time.Duration {
	if value == "" {
		return 0
	}
	timeout, err := time.ParseDuration(value)
	if err != nil {
		log.WithError(err).Warnf("Annotation %s: %q is no duration such as 30s or 2m; the default timeout is used", key, value)
		return 0
	}
	return boundedTimeout(timeout, "Annotation "+key, log)
}

// boundedTimeout replaces a negative timeout by the default. Velero's executor would wait without end for such a hook,
// and a pod must not stay frozen without end.
func boundedTimeout(timeout time.Duration, where string, log logrus.FieldLogger) time.Duration {
	if timeout < 0 {
		log.Warnf("%s: a hook can't have the negative timeout %s; the default timeout is used", where, timeout)
		return 0
	}
	return timeout
}
