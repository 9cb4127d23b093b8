// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
)

// oneTry bounds one request.
const oneTry = 15 * time.Second

// aCase is one backup that may have to be recovered.
type aCase struct {
	uid  types.UID
	name string
	// server is the one that runs the backup, or ran it; recorder is the one that made the record. They are not the same when a backup
	// was put back into the queue and is run again. One that is of no interest is empty.
	server, recorder instance.ID
	// postponed says that it has changed while it was seen to, and must be looked for again.
	postponed bool
	// backup is nil when it is gone; record is nil when there is none.
	backup *velerov1.Backup
	record *freezerecord.Stored
	log    logrus.FieldLogger
}

// inProgress says whether the Backup has still to be given its end.
func (c *aCase) inProgress() bool {
	return c.backup != nil && c.backup.Status.Phase == velerov1.BackupPhaseInProgress
}

// abandoned says whether the Backup was marked Failed while a server had it in hand. The start of Velero's own code does that to what
// it finds in progress, and looks after neither pods nor snapshots.
func (c *aCase) abandoned() bool {
	return c.backup != nil && c.backup.Status.Phase == velerov1.BackupPhaseFailed && ServerOf(c.backup) != ""
}

// unended says whether there is something to be ended.
func (c *aCase) unended() bool { return c.inProgress() || c.abandoned() }

// find returns the backups that are in progress or were when they were marked Failed, and those that have a record, except for those that this process runs.
func (r *Recovery) find(ctx context.Context) ([]*aCase, error) {
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	// Records first: a backup that is begun in between has a record that isn't seen, and not the other way round.
	records, err := r.deps.Records.List(ctx)
	if err != nil {
		return nil, err
	}
	var backups velerov1.BackupList
	if err := r.deps.Backups.List(ctx, &backups, client.InNamespace(r.deps.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the backups in namespace %s: %w", r.deps.Namespace, err)
	}
	var cases []*aCase
	byUID := map[types.UID]*velerov1.Backup{}
	recorded := map[types.UID]bool{}
	for i := range backups.Items {
		byUID[backups.Items[i].UID] = &backups.Items[i]
	}
	for _, record := range records {
		recorded[record.UID] = true
		c := &aCase{uid: record.UID, name: record.Backup, recorder: instance.ID(record.Server), backup: byUID[record.UID], record: record}
		if c.server = c.recorder; c.unended() && ServerOf(c.backup) != "" {
			c.server = ServerOf(c.backup)
		}
		cases = append(cases, c)
	}
	for uid, b := range byUID {
		c := &aCase{uid: uid, name: b.Name, server: ServerOf(b), backup: b}
		if c.unended() && !recorded[uid] {
			cases = append(cases, c)
		}
	}
	return r.others(cases), nil
}

// others leaves out what this process has in hand. Of its own backups only a record is of interest, when they are over.
func (r *Recovery) others(cases []*aCase) []*aCase {
	var found []*aCase
	for _, c := range cases {
		if r.deps.Records.IsOpen(c.uid) || c.server == r.deps.Self && c.unended() {
			continue
		}
		// A record of ours that isn't open is that of a run that is over. It has no living owner but us.
		if c.server == r.deps.Self {
			c.server = ""
		}
		if c.recorder == r.deps.Self {
			c.recorder = ""
		}
		c.log = r.deps.Log.WithField("backup", r.deps.Namespace+"/"+c.name)
		found = append(found, c)
	}
	return found
}

// AnnServer is the annotation of a Backup in progress that names the server that runs it. It goes with the end of the backup.
const AnnServer = freezerecord.AnnServer

// AnnRecoverer is the annotation of a Backup that a server recovers: from there on the end of the backup is that server's to write, and
// what it was complete with is removed. It goes with the end of the backup.
const AnnRecoverer = "velero.io/recovering-server"

// ServerOf returns the ID of the server that runs a backup; empty when that isn't said.
func ServerOf(b *velerov1.Backup) instance.ID { return instance.ID(b.Annotations[AnnServer]) }
