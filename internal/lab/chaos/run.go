// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerobackup "github.com/vmware-tanzu/velero/pkg/backup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

const (
	// settleLimit bounds each wait for rest, quiet is how long rest must last. A snapshot that external-snapshotter has forgotten costs a
	// minute.
	settleLimit = 3 * time.Minute
	quiet       = time.Second
	// snapshotTimeout is the backups' csiSnapshotTimeout.
	snapshotTimeout = 90 * time.Second
)

// Outcome is what came of a point.
type Outcome struct {
	Point string `json:"point"`
	Seed  uint64 `json:"seed,omitempty"`
	// Seconds it took, with the next backup and the clean-up.
	Seconds float64 `json:"seconds"`
	// Phases of the two backups that met the harm, and of the next one.
	Phases []string `json:"phases"`
	// Frozen counts the pods that were frozen when the harm was done.
	Frozen int `json:"frozen"`
	// Failures are what did not hold; none is a pass.
	Failures []string `json:"failures"`
}

// Passed says whether all held.
func (o *Outcome) Passed() bool { return len(o.Failures) == 0 }

// Run runs a point. What doesn't hold is in the outcome; a lab in which something didn't hold must be stopped, the next point begins
// in a new one.
func (l *Lab) Run(ctx context.Context, name string, point Point) *Outcome {
	out := &Outcome{Point: point.Name, Seed: point.Seed, Failures: []string{}}
	begin := time.Now()
	l.say("%s: %s", name, point.Name)
	for _, step := range []func(context.Context, string, Point, *Outcome) error{l.harmed, l.next, l.clean} {
		if err := step(ctx, name, point, out); err != nil {
			out.Failures = append(out.Failures, err.Error())
		}
		if !out.Passed() {
			break // what comes after would only say the same
		}
	}
	out.Seconds = time.Since(begin).Seconds()
	l.say("%s: %.0f s, %s %v", name, out.Seconds, strings.Join(out.Phases, " "), out.Failures)
	return out
}

// harmed takes two backups, does the harm, repairs it and judges.
func (l *Lab) harmed(ctx context.Context, name string, point Point, out *Outcome) error {
	l.begin()
	var backups []string
	for i, namespace := range namespaces {
		backups = append(backups, fmt.Sprintf("%s-%d", name, i))
		if err := l.createBackup(ctx, backups[i], namespace); err != nil {
			return err
		}
	}
	if err := l.awaitMoment(ctx, point.when, point.after); err != nil {
		return fmt.Errorf("the moment of the point: %w", err)
	}
	l.state.view(func(s *seen) { out.Frozen = s.frozen() })
	l.say("%s: doing harm, %d pods are frozen", name, out.Frozen)
	if err := point.harm(ctx, l); err != nil {
		return fmt.Errorf("doing harm: %w", err)
	}
	l.say("%s: repairing", name)
	if err := l.repair(ctx); err != nil {
		return fmt.Errorf("repairing: %w", err)
	}
	l.cluster.Proxy(cluster.UserVelero).Clear()
	l.say("%s: settling", name)
	if err := l.settle(ctx, isAtRest); err != nil {
		return err
	}
	out.Phases = l.phases(backups)
	out.Failures = append(out.Failures, l.check(point.once)...)
	return nil
}

// next takes the next backup of the same namespaces, which must be Completed.
func (l *Lab) next(ctx context.Context, name string, _ Point, out *Outcome) error {
	limited, cancel := context.WithTimeoutCause(ctx, settleLimit, errors.New("the storage location isn't available"))
	defer cancel()
	if err := l.state.await(limited, func(s *seen) bool { return s.available }); err != nil {
		return err
	}
	l.begin()
	backup := name + "-next"
	if err := l.createBackup(ctx, backup, namespaces...); err != nil {
		return err
	}
	if err := l.settle(ctx, isAtRest); err != nil {
		return err
	}
	out.Phases = append(out.Phases, l.phases([]string{backup})...)
	failures := l.check(true)
	if phase := out.Phases[len(out.Phases)-1]; phase != string(velerov1.BackupPhaseCompleted) {
		failures = append(failures, "it is "+phase)
	}
	for _, failure := range failures {
		out.Failures = append(out.Failures, "the next backup: "+failure)
	}
	return nil
}

// clean removes all backups the way Velero's command line does.
func (l *Lab) clean(ctx context.Context, _ string, _ Point, out *Outcome) error {
	var names []string
	l.state.view(func(s *seen) { names = slices.Sorted(maps.Keys(s.backups)) })
	for _, name := range names {
		if err := l.deleteBackup(ctx, name); err != nil {
			return err
		}
	}
	err := l.settle(ctx, func(s *seen) bool { return isAtRest(s) && len(s.backups) == 0 && len(l.driver.Snapshots()) == 0 })
	if err != nil {
		return err
	}
	l.state.view(func(s *seen) {
		for _, name := range slices.Sorted(maps.Keys(s.backups)) {
			out.Failures = append(out.Failures, fmt.Sprintf("backup %s can't be deleted", name))
		}
	})
	if left := len(l.driver.Snapshots()); left > 0 {
		out.Failures = append(out.Failures, fmt.Sprintf("%d physical snapshots are left when all backups are deleted", left))
	}
	return nil
}

// isAtRest says whether all backups have ended and nothing is left or under way.
func isAtRest(s *seen) bool {
	if len(s.snapshots)+len(s.contents)+len(s.records) > 0 || s.busy {
		return false
	}
	for _, backup := range s.backups {
		if !isTerminal(backup.Phase) {
			return false
		}
	}
	for _, runs := range s.hooks() {
		if runs.running || runs.isFrozen() {
			return false
		}
	}
	return true
}

var (
	errQuiet       = errors.New("nothing more happened")
	errSettleLimit = errors.New("the limit of the wait for rest passed")
)

// settle returns when a state has lasted for the quiet time, when the limit has passed, which the check finds out, or when the server
// has ended unasked.
func (l *Lab) settle(ctx context.Context, rest condition) error {
	limited, cancel := context.WithTimeoutCause(ctx, settleLimit, errSettleLimit)
	defer cancel()
	ended := func(s *seen) bool { return len(s.exits) > 0 }
	for {
		err := l.state.await(limited, func(s *seen) bool { return ended(s) || rest(s) })
		if err == nil {
			still, stop := context.WithTimeoutCause(limited, quiet, errQuiet)
			err = l.state.await(still, func(s *seen) bool { return ended(s) || !rest(s) })
			stop()
		}
		var gone bool
		l.state.view(func(s *seen) { gone = ended(s) })
		switch {
		case gone, errors.Is(err, errQuiet), errors.Is(err, errSettleLimit):
			return nil
		case err != nil:
			return err
		}
	}
}

func (l *Lab) phases(backups []string) []string {
	var phases []string
	l.state.view(func(s *seen) {
		for _, name := range backups {
			phases = append(phases, string(s.backups[name].Phase))
		}
	})
	return phases
}

func (l *Lab) createBackup(ctx context.Context, name string, namespaces ...string) error {
	backup := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.VeleroNamespace, Name: name},
		Spec: velerov1.BackupSpec{
			IncludedNamespaces: namespaces, CSISnapshotTimeout: metav1.Duration{Duration: snapshotTimeout},
		},
	}
	// Rest waits for the backup from now on, whenever its watch event comes.
	l.state.update(func(s *seen) { s.backups[name] = velerov1.BackupStatus{} })
	if err := l.cluster.Client().Create(ctx, backup); err != nil {
		return fmt.Errorf("creating backup %s: %w", name, err)
	}
	return nil
}

// deleteBackup asks the server to delete a backup.
func (l *Lab) deleteBackup(ctx context.Context, name string) error {
	backup := new(velerov1.Backup)
	key := client.ObjectKey{Namespace: cluster.VeleroNamespace, Name: name}
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return client.IgnoreNotFound(err) != nil }, func() error {
		return l.cluster.Client().Get(ctx, key, backup)
	})
	if err != nil {
		return fmt.Errorf("reading backup %s to delete it: %w", name, client.IgnoreNotFound(err))
	}
	request := velerobackup.NewDeleteBackupRequest(name, string(backup.UID))
	request.Namespace = cluster.VeleroNamespace
	if err := l.cluster.Client().Create(ctx, request); err != nil {
		return fmt.Errorf("asking for the deletion of backup %s: %w", name, err)
	}
	return nil
}
