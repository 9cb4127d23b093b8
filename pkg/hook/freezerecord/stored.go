// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package freezerecord

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Stored is the record of a backup as it was found. It is not safe for concurrent use, except for Settle.
type Stored struct {
	// Backup and UID name the backup; Server is who ran it. They may be empty in a record that somebody changed.
	Backup string
	UID    types.UID
	Server string
	// Pods are the frozen ones, and those that a recovery has thawed already, in the order of their names.
	Pods []*Pod
	// Unreadable has an error for each entry that can't be understood. Somebody has to look at it.
	Unreadable []error

	store *Store
	parts []types.NamespacedName
}

// Pod is an entry of a Stored.
type Pod struct {
	Entry

	key  string
	part types.NamespacedName
}

func (s *Stored) add(part *corev1.ConfigMap) {
	name := client.ObjectKeyFromObject(part)
	s.parts = append(s.parts, name)
	for _, key := range slices.Sorted(maps.Keys(part.Data)) {
		entry, err := parseEntry(part.Data[key])
		if err != nil {
			s.Unreadable = append(s.Unreadable, fmt.Errorf("key %s of ConfigMap %s: %w", key, name, err))
			continue
		}
		s.Pods = append(s.Pods, &Pod{Entry: entry, key: key, part: name})
	}
}

// Settle notes that a pod is thawed, or needs no thaw, so that nobody does it again. outcome is what there is to say about it. It may
// be called for different pods at once.
func (s *Stored) Settle(ctx context.Context, pod *Pod, now time.Time, outcome string) error {
	settled := pod.Entry
	at := metav1.NewTime(now)
	settled.ThawedAt, settled.Outcome = &at, outcome
	return s.replace(ctx, pod, settled)
}

// Reduce notes that only some commands of a pod's thaw, by their places in it, have still to run.
func (s *Stored) Reduce(ctx context.Context, pod *Pod, owed []int) error {
	if len(owed) == len(pod.Thaw) {
		return nil
	}
	rest := pod.Entry
	rest.Thaw = nil
	for _, i := range owed {
		rest.Thaw = append(rest.Thaw, pod.Thaw[i])
	}
	return s.replace(ctx, pod, rest)
}

func (s *Stored) replace(ctx context.Context, pod *Pod, entry Entry) error {
	text, err := entry.text()
	if err != nil {
		return err
	}
	err = insist(ctx, func(ctx context.Context) error {
		return client.IgnoreNotFound(setEntries(ctx, s.store.Client, pod.part, map[string]*string{pod.key: &text}))
	})
	if err != nil {
		return fmt.Errorf("noting in ConfigMap %s that pod %s is thawed: %w", pod.part, entry, err)
	}
	pod.Entry = entry
	return nil
}

// IsSettled says whether nothing is left to be thawed.
func (s *Stored) IsSettled() bool {
	return len(s.Unreadable) == 0 && !slices.ContainsFunc(s.Pods, func(p *Pod) bool { return p.ThawedAt == nil })
}

// Delete removes the record with all its entries. When there are others by now it stays: the backup is run again, and has frozen a pod.
func (s *Stored) Delete(ctx context.Context) error {
	var errs []error
	for _, part := range s.parts {
		if err := remove(ctx, s.store.Client, part, s.refuseUnknown); err != nil {
			errs = append(errs, fmt.Errorf("removing ConfigMap %s: %w", part, err))
		}
	}
	return errors.Join(errs...)
}

// refuseUnknown keeps a ConfigMap with an entry that isn't settled, or that came after the record was read.
func (s *Stored) refuseUnknown(part *corev1.ConfigMap) error {
	for key, text := range part.Data {
		if entry, err := parseEntry(text); err == nil && entry.ThawedAt == nil {
			return fmt.Errorf("key %s is of pod %s, which has still to be thawed", key, entry)
		}
	}
	return nil
}
