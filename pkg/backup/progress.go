// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// progressInterval is how often a running backup's progress is written at most (340).
const progressInterval = time.Second

// progress shows in the Backup object how far its backup is.
type progress struct {
	client client.Client
	clock  clock.WithTicker
	backup *velerov1.Backup
	log    logrus.FieldLogger
	visits *visits
	// changed holds a token when a block was finished since the last patch.
	changed chan struct{}
	// failing is true when the last patch failed.
	failing atomic.Bool
}

func newProgress(deps Deps, request Request, visits *visits) *progress {
	return &progress{
		client: deps.Client, clock: deps.Clock, backup: request.Backup, log: request.Log, visits: visits,
		changed: make(chan struct{}, 1),
	}
}

// blockDone tells that there is something new to show. It never blocks.
func (p *progress) blockDone() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// report patches the Backup, at most once per interval and only when something was finished, until ctx ends.
func (p *progress) report(ctx context.Context) {
	ticker := p.clock.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		select {
		case <-p.changed:
			finished, known := p.visits.counts()
			p.patch(ctx, map[string]any{"progress": velerov1.BackupProgress{TotalItems: known, ItemsBackedUp: finished}})
		default:
		}
	}
}

// collected shows how many items there are.
func (p *progress) collected(ctx context.Context) {
	_, known := p.visits.counts()
	p.patch(ctx, map[string]any{"progress": velerov1.BackupProgress{TotalItems: known}})
}

// final shows the end: everything that was met is done (340), and what hooks were run (342).
func (p *progress) final(ctx context.Context, result *Result) {
	p.patch(ctx, map[string]any{"progress": result.Progress, "hookStatus": result.Hooks})
}

// patch merges into the Backup's status. Not being able to is a warning: the backup itself goes on (341). It is one warning, not
// one in every second that a long backup goes on after its object was deleted.
func (p *progress) patch(ctx context.Context, status map[string]any) {
	body, err := json.Marshal(map[string]any{"status": status})
	if err == nil {
		target := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: p.backup.Namespace, Name: p.backup.Name}}
		err = p.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	}
	if err != nil && ctx.Err() != nil {
		return
	}
	if repeated := p.failing.Swap(err != nil); err != nil && !repeated {
		p.log.WithError(fmt.Errorf("patching Backup %s/%s: %w", p.backup.Namespace, p.backup.Name, err)).Warn("The backup's progress can't be shown")
	}
}
