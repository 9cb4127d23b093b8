// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/hook"
)

// record notes in the events what it is asked for. err is its answer to a freeze.
type record struct {
	events *events
	err    error
}

func (r *record) Frozen(_ context.Context, pod *unstructured.Unstructured, _ []hook.Hook) error {
	r.events.add("record app/" + pod.GetName())
	return r.err
}

func (r *record) Thawed(_ context.Context, pod *unstructured.Unstructured, _ []hook.Hook) error {
	r.events.add("clear app/" + pod.GetName())
	return nil
}

func (r *record) Close(context.Context, logrus.FieldLogger) { r.events.add("close record") }

func (c *cluster) withRecord(err error) {
	before := c.change
	c.change = func(deps *backup.Deps) {
		if before != nil {
			before(deps)
		}
		deps.OpenRecord = func(*velerov1.Backup) backup.FreezeRecord { return &record{events: c.events, err: err} }
	}
}

func TestFrozenPodsAreRecorded(t *testing.T) {
	ends := map[string]struct {
		prepare, act func(*cluster)
	}{
		"all well": {},
		"the freeze hook fails": {
			prepare: func(c *cluster) {
				c.executor.answer = onCommand("freeze", func() error { return errors.New("exit code 1") })
			},
		},
		"the taker panics": {prepare: func(c *cluster) { c.taker.panics = true }},
		"the backup is cancelled": {
			prepare: func(c *cluster) { c.taker.hold = holdAll },
			act:     func(c *cluster) { c.cancel(errors.New("the server is going down")) },
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.claims("data")
				c.add(hooked("db", "data"))
				c.withRecord(nil)
				if end.prepare != nil {
					end.prepare(c)
				}
				r := c.start()
				if end.act != nil {
					end.act(c)
				}
				r.wait()
				seen := c.events.all("record", "freeze", "thaw", "clear", "close")
				c.Expect(seen).To(Equal([]string{"record app/db", "freeze app/db", "thaw app/db", "clear app/db", "close record"}))
			})
		})
	}
}

func TestAPodWhoseFreezeCannotBeRecordedIsNotFrozen(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data")
		c.add(hooked("db", "data"))
		c.withRecord(errors.New("etcd is read-only"))
		r := c.start()
		r.wait()
		c.Expect(c.events.all("freeze")).To(BeEmpty())
		c.Expect(c.errors()).To(ContainElement(ContainSubstring("etcd is read-only")))
		c.Expect(r.files()).NotTo(ContainElement("pods app/db"), "its pre hook is one that fails the pod")
	})
}
