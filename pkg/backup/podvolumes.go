// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/podvolume"
	"github.com/vmware-tanzu/velero/pkg/util/volumehelper"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/fsbackup"
	"github.com/velero-clipper/clipper/pkg/backup/volume"
)

// errNoFileSystemBackups is the answer when the engine was given nothing to make them with (258).
var errNoFileSystemBackups = errors.New("this server can't make file-system backups of pod volumes")

// podVolumes decides which volumes of pods are backed up by their file systems, and has that done, once for each pod,
// whoever asks for it (168, 174, 245 to 258). It is safe for concurrent use.
type podVolumes struct {
	helper  volumehelper.VolumeHelper
	objects *volume.Objects
	ledger  *volume.Ledger
	// session is nil when there are no file-system backups.
	session *fsbackup.Session
	// tracker knows what was said and done about each claim, through whichever pod (249, 250).
	tracker *podvolume.Tracker

	mu   sync.Mutex
	pods map[types.NamespacedName]*podBackup
	// ready prepares namespaces.
	ready map[string]func() error
}

// podBackup is one pod, and what its volumes want.
type podBackup struct {
	ask sync.Once
	// Set by ask. pod is nil when nothing is wanted.
	pod    *corev1.Pod
	wanted []string
	// others has the volumes of claims that don't want to be backed up by their file systems, and nothing else of the pod.
	others corev1.Pod
	errs   []error

	// unready is why nothing can be made; set before the pod is frozen.
	unready error

	backUp sync.Once
	// Set by backUp.
	backups  []*velerov1.PodVolumeBackup
	failures []error
}

// beginPodVolumes makes the run ready for file-system backups. Their time starts here (104).
func (r *run) beginPodVolumes(ctx context.Context) error {
	r.podVolumes = &podVolumes{
		helper: r.helper, objects: r.objects, ledger: r.volumes, tracker: podvolume.NewTracker(),
		pods: map[types.NamespacedName]*podBackup{}, ready: map[string]func() error{},
	}
	if r.deps.PodVolumes == nil {
		return nil
	}
	var err error
	r.podVolumes.session, err = r.deps.PodVolumes.Begin(ctx, r.backup, r.request.Policies, r.log)
	return err
}

// awaitPodVolumes waits for the file-system backups of all pods (256).
func (r *run) awaitPodVolumes(ctx context.Context) error {
	if r.podVolumes.session == nil {
		return nil
	}
	return r.podVolumes.session.Finish(ctx)
}

// end gives up what goes on. It may be called for a run that has not come to file-system backups.
func (v *podVolumes) end(ctx context.Context) {
	if v != nil && v.session != nil {
		v.session.End(ctx)
	}
}

// latest returns the file-system backups that were made, as they were seen last.
func (v *podVolumes) latest() []*velerov1.PodVolumeBackup {
	if v == nil || v.session == nil {
		return nil
	}
	return v.session.Latest()
}

// of returns a pod with what its volumes want: that is asked before any plugin (168).
func (v *podVolumes) of(ctx context.Context, item collect.Item) *podBackup {
	v.mu.Lock()
	p := v.pods[item.NamespacedName()]
	if p == nil {
		p = &podBackup{}
		v.pods[item.NamespacedName()] = p
	}
	v.mu.Unlock()
	p.ask.Do(func() {
		p.pod = new(corev1.Pod)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object().Object, p.pod); err != nil {
			p.errs = []error{fmt.Errorf("reading pod %s/%s: %w", item.Namespace, item.Name, err)}
			return
		}
		v.decide(ctx, p)
		if len(p.wanted) == 0 {
			p.pod = nil // most pods have nothing to be backed up here, and they would all be held until the end
		}
	})
	return p
}

// decide asks about each volume of a pod (246 to 248). What keeps the answer from being known is an error, but for a claim
// that isn't bound: there is nothing to back up, which the claim's own warning tells.
func (v *podVolumes) decide(ctx context.Context, p *podBackup) {
	for _, volume := range p.pod.Spec.Volumes {
		yes, err := v.helper.ShouldPerformFSBackup(volume, *p.pod)
		if yes && err == nil {
			v.tracker.Track(p.pod, volume.Name)
			p.wanted = append(p.wanted, volume.Name)
			continue
		}
		claim := volume.PersistentVolumeClaim
		if claim != nil {
			p.others.Namespace, p.others.Name = p.pod.Namespace, p.pod.Name
			p.others.Spec.Volumes = append(p.others.Spec.Volumes, volume)
		}
		if err != nil && (claim == nil || !v.objects.IsUnbound(ctx, p.pod.Namespace, claim.ClaimName)) {
			p.errs = append(p.errs, fmt.Errorf("deciding how volume %s of pod %s/%s is backed up: %w", volume.Name, p.pod.Namespace, p.pod.Name, err))
		}
	}
}

// prepare gets the repository ready for a pod that is to be frozen. A repository that doesn't become ready fails the pod
// without freezing it for the time of another try.
func (v *podVolumes) prepare(p *podBackup) {
	if len(p.wanted) == 0 || v.session == nil || p.pod.Status.Phase != corev1.PodRunning {
		return
	}
	v.mu.Lock()
	ready := v.ready[p.pod.Namespace]
	if ready == nil {
		ready = sync.OnceValue(func() error { return v.session.Prepare(p.pod) })
		v.ready[p.pod.Namespace] = ready
	}
	v.mu.Unlock()
	p.unready = ready()
}

// backUp makes the PodVolumeBackups of a pod, unless that was done, and returns what went wrong. A panic is an error of the
// pod (369).
func (v *podVolumes) backUp(p *podBackup, log logrus.FieldLogger) []error {
	p.backUp.Do(func() {
		defer func() {
			if cause := recover(); cause != nil {
				p.failures = append(p.failures, fmt.Errorf("panic while making file-system backups: %v\n%s", cause, debug.Stack()))
			}
		}()
		v.make(p, log)
	})
	return p.failures
}

func (v *podVolumes) make(p *podBackup, log logrus.FieldLogger) {
	var volumes []string
	for _, name := range p.wanted {
		if taken, claim := v.tracker.TakenForPodVolume(p.pod, name); taken { // (250)
			log.Infof("Claim %s has been backed up by its file system through another pod", claim)
			continue
		}
		volumes = append(volumes, name)
	}
	switch {
	case len(volumes) == 0:
		return
	case v.session == nil:
		p.failures = []error{errNoFileSystemBackups}
		return
	case p.unready != nil:
		p.failures = []error{p.unready}
		return
	}
	made := v.session.BackUp(p.pod, volumes, log)
	for _, pvb := range made.Backups {
		v.tracker.Take(p.pod, pvb.Spec.Volume)
	}
	for _, skipped := range made.Skipped {
		v.ledger.Skip(skipped.Claim.Spec.VolumeName, volume.ApproachPodVolume, skipped.Reason)
	}
	for _, claim := range made.Taken {
		v.ledger.Taken(claim.Spec.VolumeName)
	}
	p.backups, p.failures = made.Backups, made.Errs
}

// visit notes which claims a pod keeps from file-system backups. That is known to the items that are visited after it, and as in stock
// not to those before, although it may have been decided long ago (167).
func (v *podVolumes) visit(p *podBackup) {
	for i := range p.others.Spec.Volumes {
		v.tracker.Optout(&p.others, p.others.Spec.Volumes[i].Name)
	}
}

// optedOut returns the pod whose annotation keeps a claim from being backed up by its file system (167).
func (v *podVolumes) optedOut(item collect.Item) (pod string, yes bool) {
	yes, pod = v.tracker.OptedoutByPod(item.Namespace, item.Name)
	return pod, yes
}
