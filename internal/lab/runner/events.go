// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// doEvents lets the scenario's events happen, one after the other.
func (r *run) doEvents(ctx context.Context, background *errgroup.Group) error {
	for _, event := range r.scenario.Events {
		if event.When != nil {
			if err := r.awaitCondition(ctx, *event.When, "an event"); err != nil {
				return err
			}
		}
		if event.After > 0 {
			if err := pause(ctx, event.After.Duration()); err != nil {
				return unfinished(err, "the time of an event (after %s)", event.After)
			}
		}
		if err := r.act(ctx, background, event.Do); err != nil {
			return err
		}
	}
	return nil
}

// awaitCondition waits for a condition; purpose says what for.
func (r *run) awaitCondition(ctx context.Context, condition scenario.Condition, purpose string) error {
	var missing []string
	err := r.board.wait(ctx, func(rec *recording) bool {
		missing = condition.Missing(r.progress(rec))
		return len(missing) == 0
	})
	return unfinished(err, "the condition %s of %s: %s", condition, purpose, strings.Join(missing, ", "))
}

// pause returns when the time has passed or the context has ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// act does one thing to the lab.
func (r *run) act(ctx context.Context, background *errgroup.Group, a scenario.Action) error {
	switch {
	case a.Kill != "":
		r.note(result.KindScenario, a.Kill, "kill -9")
		r.server.kill()
		return r.server.awaitExit(ctx)
	case a.Term != "":
		r.note(result.KindScenario, a.Term, "SIGTERM")
		r.server.term(ctx)
		return r.server.awaitExit(ctx)
	case a.Stop != "":
		r.note(result.KindScenario, a.Stop, "stop")
		return r.stopComponent(a.Stop)
	case a.Start != "":
		r.note(result.KindScenario, a.Start, "start")
		return r.startComponent(ctx, background, a.Start)
	case a.Restart == scenario.TargetServer:
		r.note(result.KindScenario, a.Restart, "restart")
		r.server.term(ctx)
		if err := r.server.awaitExit(ctx); err != nil {
			return err
		}
		return r.startAgain(ctx, background)
	case a.Restart == scenario.TargetAPIServer:
		r.note(result.KindScenario, a.Restart, "restart")
		return r.lab.cluster.RestartAPIServer(ctx)
	case a.Behaviour != nil:
		r.note(result.KindScenario, a.Behaviour.Driver, "behaviour changed")
		return r.lab.drivers[a.Behaviour.Driver].SetBehaviours(driverBehaviours(a.Behaviour.Rules))
	case a.Delete != nil:
		return r.deleteObject(ctx, *a.Delete)
	case a.API != nil:
		r.misbehave(*a.API)
		return nil
	case a.NextServer != nil:
		r.server.respecify(*a.NextServer)
		return nil
	case a.Create != nil:
		return r.createManifest(ctx, a.Create)
	case a.Patch != nil:
		return r.patchObject(ctx, *a.Patch)
	}
	return errors.New("the action is empty")
}

// startAgain starts the server once more. A server that does not come up is an outcome of the experiment: it is noted
// like any other unexpected end.
func (r *run) startAgain(ctx context.Context, background *errgroup.Group) error {
	err := r.server.start(ctx, background)
	var refused *refusedError
	if !errors.As(err, &refused) {
		return unfinished(err, "the server to start again")
	}
	now := time.Now()
	r.startError = refused.Error()
	r.board.update(func(rec *recording) {
		rec.exits = append(rec.exits, serverExit{at: now, status: "did not become ready"})
	})
	r.note(result.KindServer, "server", "did not become ready again")
	return nil
}

func (r *run) deleteObject(ctx context.Context, d scenario.Delete) error {
	if d.Of != "" {
		var err error
		if d, err = r.resolve(d); err != nil {
			return err
		}
	}
	object, err := objectOfKind(d.Kind)
	if err != nil {
		return err
	}
	object.SetNamespace(d.Namespace)
	object.SetName(d.Name)
	r.note(result.KindScenario, strings.TrimPrefix(d.Namespace+"/"+d.Name, "/"), "%s deleted", d.Kind)
	err = r.lab.cluster.Client().Delete(ctx, object)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s %s/%s: %w", d.Kind, d.Namespace, d.Name, err)
	}
	return nil
}

// resolve finds the newest VolumeSnapshot of a claim, or its content.
func (r *run) resolve(d scenario.Delete) (scenario.Delete, error) {
	found := d
	var newest time.Time
	r.board.view(func(rec *recording) {
		for _, s := range rec.snapshots {
			if s.namespace+"/"+s.pvc != d.Of || !s.deleted.IsZero() || rec.floorUIDs[s.uid] || s.created.Before(newest) {
				continue
			}
			content := rec.contentOf(s.uid)
			switch {
			case d.Kind == "VolumeSnapshot":
				newest, found.Namespace, found.Name = s.created, s.namespace, s.name
			case content != nil:
				newest, found.Name = s.created, content.name
			}
		}
	})
	if found.Name == "" {
		return d, fmt.Errorf("there is no %s of claim %s to delete; give the event a condition such as when: {created: 1}", d.Kind, d.Of)
	}
	return found, nil
}

// objectOfKind makes an empty object of a kind, in whatever version the lab knows it.
func objectOfKind(kind string) (client.Object, error) {
	scheme := cluster.Scheme()
	for gvk := range scheme.AllKnownTypes() {
		if gvk.Kind != kind || gvk.Version == "__internal" {
			continue
		}
		object, err := scheme.New(gvk)
		if err != nil {
			return nil, err
		}
		if object, ok := object.(client.Object); ok && scheme.IsVersionRegistered(gvk.GroupVersion()) {
			return object, nil
		}
	}
	return nil, fmt.Errorf("the lab knows no kind %q", kind)
}
