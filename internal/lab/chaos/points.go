// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/velero-clipper/clipper/internal/lab/apiproxy"
	"github.com/velero-clipper/clipper/internal/lab/objectstore"
)

// Point is one experiment: when something is done, and what.
type Point struct {
	// Name says both.
	Name string
	// Seed of a random point.
	Seed uint64
	// Short says that continuous integration runs it.
	Short bool

	when  condition
	after time.Duration
	harm  harm
	// once says that the harm leaves no doubt whether a thaw has run: it must be there once.
	once bool
}

const (
	metadataFile = "velero-backup.json"
	contentsFile = ".tar.gz"
	resultsFile  = "-results.gz"
	logFile      = "-logs.gz"
)

// Points are the points of a run in a lab of that size: those of the table, and random ones. Each random point has a seed of its own,
// counted from seed.
func Points(size Size, seed uint64, random int) []Point {
	var points []Point
	for _, group := range [][]Point{
		serverPoints(size), recoveryPoints(size), termPoints(size), clusterPoints(size), apiPoints(size), storePoints(size),
	} {
		points = append(points, group...)
	}
	for i := range random {
		point := RandomPoint(size, seed+uint64(i))
		point.Short = i < 2
		points = append(points, point)
	}
	return points
}

// serverPoints kill the server by event.
func serverPoints(size Size) []Point {
	return []Point{
		{Name: "kill: backups created", when: begun, harm: killServer},
		{Name: "kill: one in progress", when: reached(1, velerov1.BackupPhaseInProgress), harm: killServer, Short: true},
		{Name: "kill: both in progress", when: reached(2, velerov1.BackupPhaseInProgress), harm: killServer},
		{Name: "kill: freeze recorded", when: recorded, harm: killServer, Short: true},
		{Name: "kill: first pre hook runs", when: running(freezeCommand), harm: killServer, Short: true},
		{Name: "kill: first pre hook ran", when: ran(1, freezeCommand), harm: killServer},
		{Name: "kill: two pods frozen", when: frozenPods(2), harm: killServer},
		{Name: "kill: VolumeSnapshot of a frozen pod", when: whileFrozen(created(1)), harm: killServer, Short: true},
		{Name: "kill: driver called for a frozen pod", when: whileFrozen(called(1)), harm: killServer},
		{Name: "kill: first cut", when: cut(1), harm: killServer, Short: true},
		{Name: "kill: first post hook runs", when: running(thawCommand), harm: killServer},
		{Name: "kill: first pod thawed", when: ran(1, thawCommand), harm: killServer, Short: true},
		{Name: "kill: half of the pods thawed", when: ran(size.hooked()/2, thawCommand), harm: killServer},
		{Name: "kill: all pods thawed", when: ran(size.hooked(), thawCommand), harm: killServer},
		{Name: "kill: no record any more", when: unrecorded, harm: killServer},
		{Name: "kill: first plain VolumeSnapshot", when: created(size.hooked() + 1), harm: killServer},
		{Name: "kill: half of all VolumeSnapshots", when: created(size.all() / 2), harm: killServer, Short: true},
		{Name: "kill: half of all cuts", when: cut(size.all() / 2), harm: killServer},
		{Name: "kill: all cut", when: cut(size.all()), harm: killServer},
		{Name: "kill: log uploaded", when: uploaded(logFile), harm: killServer},
		{Name: "kill: metadata uploaded", when: uploaded(metadataFile), harm: killServer, Short: true},
		{Name: "kill: contents uploaded", when: uploaded(contentsFile), harm: killServer},
		{Name: "kill: results uploaded", when: uploaded(resultsFile), harm: killServer},
		{Name: "kill: waiting for operations", when: reached(1, velerov1.BackupPhaseWaitingForPluginOperations), harm: killServer},
		{Name: "kill: finalizing", when: reached(1, velerov1.BackupPhaseFinalizing), harm: killServer, Short: true},
		{Name: "kill: 200 ms into finalizing", when: reached(1, velerov1.BackupPhaseFinalizing), after: 200 * time.Millisecond, harm: killServer},
		{Name: "kill: one completed", when: reached(1, velerov1.BackupPhaseCompleted), harm: killServer},
	}
}

// recoveryPoints kill the server while pods are frozen, and the next one at start or while it recovers.
func recoveryPoints(size Size) []Point {
	frozen := frozenPods(2)
	return []Point{
		{Name: "kill: frozen, again 200 ms after start", when: frozen, harm: killTwice(started, 200*time.Millisecond)},
		{Name: "kill: frozen, again 500 ms after start", when: frozen, harm: killTwice(started, 500*time.Millisecond), Short: true},
		{Name: "kill: frozen, again 1.5 s after start", when: frozen, harm: killTwice(started, 1500*time.Millisecond)},
		{Name: "kill: frozen, again while it thaws", when: frozen, harm: killTwice(running(thawCommand), 0), Short: true},
		{Name: "kill: frozen, again when one is thawed", when: frozen, harm: killTwice(ran(1, thawCommand), 0)},
		{Name: "kill: half cut, again while it removes", when: cut(size.all() / 2), harm: killTwice(removing(1), 0), Short: true},
		{Name: "kill: half cut, again when half is removed", when: cut(size.all() / 2), harm: killTwice(removing(size.all()/4), 0)},
		{Name: "kill: frozen, again when one is marked", when: frozen, harm: killTwice(reached(1, velerov1.BackupPhaseFailed), 0)},
	}
}

// termPoints end the server by SIGTERM.
func termPoints(size Size) []Point {
	return []Point{
		{Name: "term: frozen", when: frozenPods(1), harm: termServer, once: true, Short: true},
		{Name: "term: half cut", when: cut(size.all() / 2), harm: termServer, once: true},
		{Name: "term: metadata uploaded", when: uploaded(metadataFile), harm: termServer, once: true},
		{Name: "term: finalizing", when: reached(1, velerov1.BackupPhaseFinalizing), harm: termServer, once: true},
		{Name: "term: frozen, twice", when: frozenPods(1), harm: termTwice(100 * time.Millisecond)},
		{Name: "term: frozen, kill after 100 ms", when: frozenPods(2), harm: termKill(100 * time.Millisecond)},
		{Name: "term: half cut, kill after 500 ms", when: cut(size.all() / 2), harm: termKill(500 * time.Millisecond)},
		{Name: "term: of the server that recovers", when: frozenPods(2), harm: killThenTerm(running(thawCommand))},
	}
}

// clusterPoints kill the cluster's own processes; they are away for some seconds.
func clusterPoints(size Size) []Point {
	return []Point{
		{Name: "apiserver: frozen", when: frozenPods(2), harm: killAPIServer, Short: true},
		{Name: "apiserver: half cut", when: cut(size.all() / 2), harm: killAPIServer},
		{Name: "apiserver: finalizing", when: reached(1, velerov1.BackupPhaseFinalizing), harm: killAPIServer},
		{Name: "etcd: frozen", when: frozenPods(2), harm: killEtcd},
		{Name: "etcd: half cut", when: cut(size.all() / 2), harm: killEtcd, Short: true},
		{Name: "csi-snapshotter: frozen", when: whileFrozen(called(1)), harm: killSidecar, once: true},
		{Name: "csi-snapshotter: half cut", when: cut(size.all() / 2), harm: killSidecar, once: true},
		{Name: "snapshot-controller: frozen", when: whileFrozen(created(1)), harm: killSnapshotController, once: true},
		{Name: "snapshot-controller: half cut", when: cut(size.all() / 2), harm: killSnapshotController, once: true},
	}
}

// apiPoints have the API misbehave for the server.
func apiPoints(size Size) []Point {
	for6s := func(answer int) apiproxy.Fault { return apiproxy.Fault{Answer: answer, For: 6 * time.Second} }
	half := created(size.all() / 2)
	return []Point{
		{Name: "API 429: frozen", when: frozenPods(1), harm: api(for6s(429))},
		{Name: "API 429: batch", when: half, harm: api(for6s(429))},
		{Name: "API 500: frozen", when: frozenPods(1), harm: api(for6s(500))},
		{Name: "API 500: batch", when: half, harm: api(for6s(500))},
		{Name: "API 503: frozen", when: frozenPods(1), harm: api(for6s(503)), Short: true},
		{Name: "API 503: batch", when: half, harm: api(for6s(503))},
		{Name: "API 500: exec, frozen", when: frozenPods(1), harm: api(
			apiproxy.Fault{Answer: 500, For: 6 * time.Second, Resources: []string{"pods/exec"}})},
		{Name: "API 500: ConfigMaps, in progress", when: reached(1, velerov1.BackupPhaseInProgress), harm: api(
			apiproxy.Fault{Answer: 500, For: 6 * time.Second, Resources: []string{"configmaps"}})},
		{Name: "API 503: status at the end", when: uploaded(resultsFile), harm: api(for6s(503))},
		{Name: "API slow: in progress", when: reached(1, velerov1.BackupPhaseInProgress), harm: api(
			apiproxy.Fault{Slow: 500 * time.Millisecond, For: 10 * time.Second})},
		{Name: "watches cut: frozen and on", when: frozenPods(1), harm: cutWatches(6, time.Second, false), once: true},
		{Name: "watches expired: batch and on", when: half, harm: cutWatches(3, 2*time.Second, true), once: true},
		{Name: "API 503 and kill: frozen", when: frozenPods(2), harm: both(api(for6s(503)), killServer)},
	}
}

// both does one thing after the other.
func both(first, second harm) harm {
	return func(ctx context.Context, l *Lab) error {
		if err := first(ctx, l); err != nil {
			return err
		}
		return second(ctx, l)
	}
}

// storePoints take the object store away.
func storePoints(size Size) []Point {
	finalizing := reached(1, velerov1.BackupPhaseFinalizing)
	return []Point{
		{Name: "store: refuses writes at upload", when: cut(size.all() - 1), harm: storeAway(objectstore.FailWrites, 15*time.Second), once: true, Short: true},
		{Name: "store: refuses all after the metadata", when: uploaded(metadataFile), harm: storeAway(objectstore.FailAll, 10*time.Second), once: true},
		{Name: "store: refuses writes at finalizing", when: finalizing, harm: storeAway(objectstore.FailWrites, 15*time.Second), once: true, Short: true},
		{Name: "store: refuses all at finalizing", when: finalizing, harm: storeAway(objectstore.FailAll, 10*time.Second), once: true},
		{Name: "store: refuses at finalizing, kill", when: finalizing, harm: storeAwayAndKill(objectstore.FailWrites, 3*time.Second)},
	}
}

// RandomPoint kills the server at a time that comes from the seed; some of them are killed again when they start, some are
// given SIGTERM.
func RandomPoint(size Size, seed uint64) Point {
	random := rand.New(rand.NewPCG(seed, 0))
	at := time.Duration(random.Int64N(int64(size.backups))).Round(time.Millisecond)
	point := Point{Seed: seed, when: begun, after: at}
	switch kind := random.IntN(10); {
	case kind < 6:
		point.Name, point.harm = fmt.Sprintf("random kill at %s", at), killServer
	case kind < 9:
		again := time.Duration(random.Int64N(int64(5 * time.Second))).Round(time.Millisecond)
		point.Name, point.harm = fmt.Sprintf("random kill at %s, again %s after the start", at, again), killTwice(started, again)
	default:
		point.Name, point.harm = fmt.Sprintf("random term at %s", at), termServer
	}
	return point
}
