// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package itemblock

import (
	"context"
	"slices"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/filter"
)

// Action is what Build needs of an ItemBlockAction whose selector has been resolved.
type Action interface {
	// Name of the plugin, for logs.
	Name() string
	// ShouldUse says whether the action wants to be asked about an object.
	ShouldUse(gr schema.GroupResource, namespace string, metadata metav1.Object, log logrus.FieldLogger) bool
	// GetRelatedItems names the objects that must be in the same block as item. It must not change item.
	GetRelatedItems(item runtime.Unstructured, backup *velerov1.Backup) ([]velero.ResourceIdentifier, error)
}

// Filter says whether an object belongs into the backup; filter.Set is one.
type Filter interface {
	Includes(obj metav1.Object, gr schema.GroupResource, mustInclude bool) filter.Decision
}

// Deps is what Build works with. All fields but Excluded are required.
type Deps struct {
	// Log is the backup's log.
	Log logrus.FieldLogger
	// Actions are asked in this order.
	Actions []Action
	// Backup is handed to the actions.
	Backup *velerov1.Backup
	// Fetch gets an object that an action named and that was not collected, in its preferred version; collect.Fetcher
	// has it.
	Fetch func(ctx context.Context, id velero.ResourceIdentifier) (*collect.Item, error)
	// Filter is asked once about each object before it joins a block.
	Filter Filter
	// Excluded, if set, hears of each object that the filter leaves out, once: the engine records skipped volumes (141).
	Excluded func(item collect.Item, decision filter.Decision)
}

// Build puts the collected items into blocks (149 to 158). items must be in backup order.
//
// Errors of actions and of fetching are error lines in the log; the item that they were asked for is backed up all the
// same (153, 156). When ctx ends Build stops asking and returns what it has; the caller has to look at ctx.
func Build(ctx context.Context, items []collect.Item, deps Deps) []*Block {
	b := &builder{
		Deps:    deps,
		known:   make(map[velero.ResourceIdentifier][]collect.Item, len(items)),
		settled: make(map[velero.ResourceIdentifier]bool, len(items)),
	}
	for _, item := range items {
		b.known[item.ID()] = append(b.known[item.ID()], item)
	}
	var blocks []*Block
	for start, end := 0, 0; start < len(items) && ctx.Err() == nil; start = end {
		end = runEnd(items, start)
		block := &Block{}
		for _, item := range items[start:end] {
			b.place(ctx, block, item.ID())
		}
		// Everything in it may have been in an earlier block, or left out (158 is fixed: such a block is not handed out).
		if len(block.Items) > 0 {
			blocks = append(blocks, block)
		}
	}
	return blocks
}

// runEnd returns the end of the run that starts at start: consecutive ordered items of one type share a block, any other
// item starts one of its own (157).
func runEnd(items []collect.Item, start int) int {
	end := start + 1
	for end < len(items) && items[start].Ordered && items[end].Ordered && items[end].GroupResource == items[start].GroupResource {
		end++
	}
	return end
}

// builder is the state of one Build.
type builder struct {
	Deps
	// known has all versions of every collected object.
	known map[velero.ResourceIdentifier][]collect.Item
	// settled has the objects that are in a block or are left out.
	settled map[velero.ResourceIdentifier]bool
}

// place puts a collected object, in all its versions (150), into the block, and then all that is related to it.
func (b *builder) place(ctx context.Context, block *Block, id velero.ResourceIdentifier) {
	if b.settled[id] {
		return
	}
	b.settled[id] = true
	versions := b.known[id]
	object := versions[0].Object()
	decision := b.Filter.Includes(object, id.GroupResource, false)
	if !decision.In {
		b.log(versions[0]).WithField("reason", decision.Reason).Infof("Leaving the item out: %s", decision.Message)
		if b.Excluded != nil {
			b.Excluded(versions[0], decision)
		}
		return
	}
	for _, item := range versions {
		block.add(item)
	}
	// The versions are views of one object, so one of them is enough to ask about (152): the preferred one, if it is there. Discovery
	// has the versions in no order.
	if i := slices.IndexFunc(versions, collect.Item.Preferred); i > 0 {
		b.addRelated(ctx, block, versions[i], versions[i].Object())
		return
	}
	b.addRelated(ctx, block, versions[0], object)
}

// addRelated asks every action that applies what else belongs into the block. Each answer is followed up completely
// before the next one, so that an item stands right before what it brought in.
func (b *builder) addRelated(ctx context.Context, block *Block, item collect.Item, object *unstructured.Unstructured) {
	// Without a field named namespace the lines stand in the results file where stock's do (56).
	log := b.Log.WithFields(logrus.Fields{"resource": item.GroupResource.String(), "name": item.Name})
	for _, action := range b.Actions {
		if ctx.Err() != nil {
			return
		}
		if !action.ShouldUse(item.GroupResource, item.Namespace, object, log) {
			continue
		}
		related, err := action.GetRelatedItems(object, b.Backup)
		if err != nil {
			log.WithError(err).WithField("action", action.Name()).
				Errorf("The item block action failed for %s; items that it would have named may be backed up apart from it", item)
			continue
		}
		for _, id := range related {
			if b.settled[id] || !b.find(ctx, log, id) {
				continue
			}
			b.place(ctx, block, id)
		}
	}
}

// find makes sure that an object is known: it was collected, or it is fetched from the cluster now (153).
func (b *builder) find(ctx context.Context, log logrus.FieldLogger, id velero.ResourceIdentifier) bool {
	if len(b.known[id]) > 0 {
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	item, err := b.Fetch(ctx, id)
	if err == nil {
		b.known[id] = []collect.Item{*item}
		return true
	}
	related := collect.Item{Type: &collect.Type{GroupResource: id.GroupResource}, Namespace: id.Namespace, Name: id.Name}
	switch {
	case apierrors.IsNotFound(err):
		b.log(related).Warn("A related item doesn't exist in the cluster")
	case ctx.Err() == nil:
		log.WithError(err).Errorf("Getting %s from the cluster failed; it may be backed up apart from the item that it is related to, or not at all", related)
	}
	return false
}

func (b *builder) log(item collect.Item) logrus.FieldLogger {
	return b.Log.WithFields(logrus.Fields{
		"resource":  item.GroupResource.String(),
		"namespace": item.Namespace,
		"name":      item.Name,
	})
}
