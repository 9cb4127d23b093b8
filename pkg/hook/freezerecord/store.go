// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package freezerecord

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options are what a Store is made of.
type Options struct {
	// Client reads and writes ConfigMaps, without a cache. Required.
	Client client.Client
	// Namespace of the installation. Required.
	Namespace string
	// Server is who runs the backups of this process, as other servers know it.
	Server string
	// Clock dates the entries. Default: the real clock.
	Clock clock.PassiveClock
}

// Store is the freeze records of an installation. It is safe for concurrent use.
type Store struct {
	Options
	maxPart int
	hands   hands

	mu   sync.Mutex
	open map[types.UID]bool
}

// NewStore makes a Store.
func NewStore(opts Options) *Store {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return &Store{Options: opts, maxPart: defaultMaxPart, hands: hands{pods: map[string]*hand{}}, open: map[types.UID]bool{}}
}

// Open begins the record of a backup that this process runs. It writes nothing before the first pod is frozen. Close ends it.
func (s *Store) Open(backup *velerov1.Backup) *Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[backup.UID] = true
	return &Record{
		store: s, backup: backup, turn: make(chan struct{}, 1),
		entries: map[string]Entry{}, held: map[string]Entry{}, parts: parts{max: s.maxPart, where: map[string]int{}, sized: map[string]int{}}, doubtful: map[string]int{},
	}
}

// IsOpen says whether this process runs the backup, so that its record is in good hands.
func (s *Store) IsOpen(backup types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[backup]
}

// Hold keeps backups of this process from freezing a pod while a recovery thaws it, until release is called; it waits for another
// recovery that has the pod. It returns nil when a running backup has the pod frozen, which thaws it itself, and when ctx has ended.
func (s *Store) Hold(ctx context.Context, pod Entry) (release func()) { return s.hands.thaw(ctx, pod) }

func (s *Store) end(backup types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, backup)
}

// List reads the records of all backups, also of those that run, ordered by the backups' names.
func (s *Store) List(ctx context.Context) ([]*Stored, error) {
	var list corev1.ConfigMapList
	err := insist(ctx, func(ctx context.Context) error {
		return s.Client.List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingLabels{LabelRecord: "true"})
	})
	if err != nil {
		return nil, fmt.Errorf("listing the records of frozen pods in namespace %s: %w", s.Namespace, err)
	}
	byBackup := map[types.UID]*Stored{}
	for i := range list.Items {
		part := &list.Items[i]
		uid := types.UID(part.Labels[velerov1.BackupUIDLabel])
		record := byBackup[uid]
		if record == nil {
			record = &Stored{store: s, Backup: part.Annotations[annBackup], UID: uid, Server: part.Annotations[AnnServer]}
			byBackup[uid] = record
		}
		record.add(part)
	}
	return slices.SortedFunc(maps.Values(byBackup), func(a, b *Stored) int {
		return strings.Compare(a.Backup+string(a.UID), b.Backup+string(b.UID))
	}), nil
}
