// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package freezerecord

import (
	"context"
	"fmt"
	"sync"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/hook"
)

// Record is the record of one running backup. Its methods may be called from many goroutines.
type Record struct {
	store  *Store
	backup *velerov1.Backup
	// turn is held while the record is changed. It is a channel and not a lock so that a wait for it ends with its context.
	turn chan struct{}

	// The rest is changed by who has the turn.
	entries map[string]Entry
	parts   parts
	// held are the pods that this backup has in hand, by key; hook.Runner calls for a pod one after the other.
	held   map[string]Entry
	heldMu sync.Mutex
	// doubtful are keys, with their part, that shouldn't be there: of a freeze whose writing failed, which may have reached the API
	// server all the same, and of a pod that is thawed and whose entry couldn't be removed.
	doubtful map[string]int
}

// Frozen implements hook.Recorder. It returns when the entry is stored. An error that may pass is met by repetition for some 20
// seconds. A pod that a recovery thaws at this moment, after an earlier backup, is waited for as long.
func (r *Record) Frozen(ctx context.Context, pod *unstructured.Unstructured, thaw []hook.Hook) error {
	entry := newEntry(pod, thaw, r.store.Clock.Now())
	if err := r.hold(ctx, entry); err != nil {
		return err
	}
	if err := r.write(ctx, entry); err != nil {
		r.release(keyOf(entry.Namespace, entry.Pod))
		return err
	}
	return nil
}

// hold takes a pod in hand, so that no recovery thaws it in between.
func (r *Record) hold(ctx context.Context, e Entry) error {
	ctx, cancel := context.WithTimeoutCause(ctx, allTries, fmt.Errorf("it was waited for %s", allTries))
	defer cancel()
	if err := r.store.hands.freeze(ctx, e); err != nil {
		return err
	}
	key := keyOf(e.Namespace, e.Pod)
	r.release(key) // of a freeze before that has not ended
	r.heldMu.Lock()
	defer r.heldMu.Unlock()
	r.held[key] = e
	return nil
}

func (r *Record) release(key string) {
	r.heldMu.Lock()
	defer r.heldMu.Unlock()
	if e, found := r.held[key]; found {
		r.store.hands.unfreeze(e)
		delete(r.held, key)
	}
}

func (r *Record) releaseAll() {
	r.heldMu.Lock()
	defer r.heldMu.Unlock()
	for key, e := range r.held {
		r.store.hands.unfreeze(e)
		delete(r.held, key)
	}
}

// Thawed implements hook.Recorder: it removes the pod's entry, or what has been run of it.
func (r *Record) Thawed(ctx context.Context, pod *unstructured.Unstructured, owed []hook.Hook) error {
	defer r.release(keyOf(pod.GetNamespace(), pod.GetName()))
	if err := r.take(ctx); err != nil {
		return err
	}
	defer r.leave()
	key := keyOf(pod.GetNamespace(), pod.GetName())
	entry, found := r.entries[key]
	if !found {
		return nil
	}
	if len(owed) > 0 {
		return r.put(ctx, key, entry.keep(pod, owed))
	}
	part := r.parts.where[key]
	delete(r.entries, key)
	r.parts.drop(key)
	if err := r.erase(ctx, key, part); err != nil {
		r.doubtful[key] = part // Close tries again
		return err
	}
	return nil
}

// erase removes an entry from the cluster. The caller has the turn.
func (r *Record) erase(ctx context.Context, key string, part int) error {
	err := insist(ctx, func(ctx context.Context) error {
		return client.IgnoreNotFound(setEntries(ctx, r.store.Client, r.name(part), map[string]*string{key: nil}))
	})
	if err != nil {
		return fmt.Errorf("removing entry %s from ConfigMap %s: %w", key, r.name(part), err)
	}
	return nil
}

// Close ends the record of a backup that is over: ConfigMaps without entries are removed. Entries that are left are pods that have
// still to be thawed, and are found by List from now on. It heeds ctx but not its end: it has a limit of its own.
func (r *Record) Close(ctx context.Context, log logrus.FieldLogger) {
	defer r.store.end(r.backup.UID)
	defer r.releaseAll()
	ctx = context.WithoutCancel(ctx)
	if err := r.take(ctx); err != nil {
		return
	}
	defer r.leave()
	for key, part := range r.doubtful {
		if err := r.erase(ctx, key, part); err != nil {
			log.WithError(err).Warn("A pod that isn't frozen may still be recorded as frozen; its post hooks would be run again")
		}
	}
	for part := range r.lastPart() + 1 {
		if !r.parts.isEmpty(part) {
			continue
		}
		if err := remove(ctx, r.store.Client, r.name(part), nil); err != nil {
			log.WithError(err).Infof("ConfigMap %s, which records frozen pods and names none any more, couldn't be removed; that is tried again later", r.name(part))
		}
	}
	for _, entry := range r.entries {
		log.WithFields(logrus.Fields{"namespace": entry.Namespace, "pod": entry.Pod}).
			Warn("The pod has still to be thawed; the server goes on trying after the backup")
	}
}

// lastPart is the number of the last ConfigMap that there may be; -1 is none.
func (r *Record) lastPart() int {
	last := len(r.parts.sizes) - 1
	for _, part := range r.doubtful {
		last = max(last, part)
	}
	return last
}

func (r *Record) write(ctx context.Context, e Entry) error {
	if err := r.take(ctx); err != nil {
		return err
	}
	defer r.leave()
	return r.put(ctx, keyOf(e.Namespace, e.Pod), e)
}

// put stores an entry. The caller has the turn.
func (r *Record) put(ctx context.Context, key string, e Entry) error {
	text, err := e.text()
	if err != nil {
		return err
	}
	size := len(key) + len(text)
	part, err := r.parts.place(key, size)
	if err != nil {
		return err
	}
	if at, found := r.parts.where[key]; found && at != part { // it has grown out of its part
		if err := r.erase(ctx, key, at); err != nil {
			return err
		}
		r.parts.drop(key)
	}
	err = insist(ctx, func(ctx context.Context) error { return r.save(ctx, part, key, text) })
	if err != nil {
		if _, known := r.entries[key]; !known { // else what stands in the cluster is of a pod that is frozen
			r.doubtful[key] = part
		}
		return fmt.Errorf("writing the entry of pod %s to ConfigMap %s: %w", e, r.name(part), err)
	}
	delete(r.doubtful, key)
	r.parts.put(key, part, size)
	r.entries[key] = e
	return nil
}

// save adds an entry to its part, which is made when it isn't there: a first time, or after somebody deleted it.
func (r *Record) save(ctx context.Context, part int, key, text string) error {
	if part < len(r.parts.sizes) {
		err := setEntries(ctx, r.store.Client, r.name(part), map[string]*string{key: &text})
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	object := newPart(r.backup, r.store.Server, part)
	object.Data[key] = text
	for other, at := range r.parts.where {
		if at == part && other != key {
			if again, err := r.entries[other].text(); err == nil {
				object.Data[other] = again
			}
		}
	}
	err := r.store.Client.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) { // of a try whose answer was lost, or of a server that this backup was begun by before
		return patch(ctx, r.store.Client, r.name(part), map[string]any{
			"metadata": map[string]any{"annotations": map[string]string{AnnServer: r.store.Server}},
			"data":     map[string]string{key: text},
		})
	}
	return err
}

func (r *Record) name(part int) types.NamespacedName {
	return types.NamespacedName{Namespace: r.backup.Namespace, Name: partName(r.backup.UID, part)}
}

func (r *Record) take(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *Record) leave() { <-r.turn }
