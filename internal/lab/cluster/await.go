// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Await watches the objects of the list's kind until done returns true or an error. Each
// object that exists at the start is delivered first, as Added; after an
// interruption of the watch they all are again.
func Await(ctx context.Context, c client.WithWatch, list client.ObjectList, done func(watch.Event) (bool, error),
	opts ...client.ListOption,
) error {
	for {
		finished, err := awaitOnce(ctx, c, list, done, opts)
		if err != nil || finished {
			return err
		}
	}
}

// awaitOnce returns false when the server has ended the watch.
func awaitOnce(ctx context.Context, c client.WithWatch, list client.ObjectList, done func(watch.Event) (bool, error),
	opts []client.ListOption,
) (bool, error) {
	// A watch without a resource version begins with what exists.
	watcher, err := c.Watch(ctx, list, opts...)
	if err != nil {
		return false, fmt.Errorf("watching %T: %w", list, err)
	}
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case event, open := <-watcher.ResultChan():
			if !open {
				return false, nil
			}
			if event.Type == watch.Error {
				return false, fmt.Errorf("watching %T: %w", list, apierrors.FromObject(event.Object))
			}
			if finished, err := done(event); err != nil || finished {
				return finished, err
			}
		}
	}
}
