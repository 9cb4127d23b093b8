// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package freezerecord

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/velero-clipper/clipper/pkg/hook"
)

// Entry is one frozen pod.
type Entry struct {
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	UID       types.UID `json:"uid"`
	// FrozenSince is when the pod was about to be frozen.
	FrozenSince metav1.Time `json:"frozenSince"`
	// Thaw are the commands that thaw it, in order.
	Thaw []Command `json:"thaw"`
	// ThawedAt is when a recovery has thawed it; the entry stays until the whole recovery is over.
	ThawedAt *metav1.Time `json:"thawedAt,omitempty"`
	// Outcome is what the recovery has to say about the thaw, such as a command that ran and failed.
	Outcome string `json:"outcome,omitempty"`
}

// Command is a post hook of a pod.
type Command struct {
	// Hook says where it comes from, for people.
	Hook      string                 `json:"hook"`
	Container string                 `json:"container"`
	Command   []string               `json:"command"`
	Timeout   metav1.Duration        `json:"timeout"`
	OnError   velerov1.HookErrorMode `json:"onError,omitempty"`
}

// Commands returns what is to be run to thaw the pod.
func (e Entry) Commands() []hook.Command {
	commands := make([]hook.Command, 0, len(e.Thaw))
	for _, c := range e.Thaw {
		timeout := c.Timeout.Duration
		if timeout <= 0 {
			timeout = hook.DefaultTimeout
		}
		commands = append(commands, hook.Command{
			Namespace: e.Namespace, Pod: e.Pod, UID: e.UID,
			Container: c.Container, Argv: c.Command, Timeout: timeout, Insist: true,
		})
	}
	return commands
}

// String names the pod.
func (e Entry) String() string { return e.Namespace + "/" + e.Pod }

// newEntry is the entry of a pod that is about to be frozen.
func newEntry(pod *unstructured.Unstructured, thaw []hook.Hook, now time.Time) Entry {
	e := Entry{Namespace: pod.GetNamespace(), Pod: pod.GetName(), UID: pod.GetUID(), FrozenSince: metav1.NewTime(now)}
	for _, h := range thaw {
		c := hook.CommandOf(pod, hook.PhasePost, h)
		e.Thaw = append(e.Thaw, Command{
			Hook: h.String(), Container: c.Container, Command: c.Argv, Timeout: metav1.Duration{Duration: c.Timeout}, OnError: h.Exec.OnError,
		})
	}
	return e
}

// keep returns the entry with those commands only that are still owed.
func (e Entry) keep(pod *unstructured.Unstructured, owed []hook.Hook) Entry {
	return newEntry(pod, owed, e.FrozenSince.Time)
}

func (e Entry) text() (string, error) {
	text, err := yaml.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("writing down how to thaw pod %s: %w", e, err)
	}
	return string(text), nil
}

func parseEntry(text string) (Entry, error) {
	var e Entry
	if err := yaml.UnmarshalStrict([]byte(text), &e); err != nil {
		return Entry{}, err
	}
	if e.Namespace == "" || e.Pod == "" {
		return Entry{}, errors.New("it names no pod")
	}
	return e, nil
}

// maxKey is the longest key that a ConfigMap may have.
const maxKey = 253

// keyOf is the key of a pod's entry. No name has an underscore, so that no two pods have the same.
func keyOf(namespace, pod string) string {
	key := namespace + "_" + pod
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	hash := hex.EncodeToString(sum[:8])
	return key[:maxKey-len(hash)-1] + "_" + hash
}
