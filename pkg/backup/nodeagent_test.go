// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"maps"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/repository"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/backup/fsbackup"
)

const agentTimeout = 4 * time.Hour

// nodeAgent ends PodVolumeBackups at once, or when the test says so. It is also the informer that tells of them: with
// Velero's own backupper behind it, everything but the data is as on a cluster.
type nodeAgent struct {
	cache.Informer
	c *cluster
	// hold says which volumes' backups wait for finish. Nil: none.
	hold func(volume string) bool
	// deaf: nothing becomes of a cancelled backup.
	deaf bool
	// uploader of the server.
	uploader string

	mu       sync.Mutex
	handlers map[*handler]bool
	open     map[string]*velerov1.PodVolumeBackup
}

type handler struct {
	toolscache.ResourceEventHandler
}

func (*handler) HasSynced() bool { return true }

// withNodeAgent adds an agent on the node, and the repository of the namespace app.
func (c *cluster) withNodeAgent() {
	c.agent = &nodeAgent{c: c, uploader: "kopia", handlers: map[*handler]bool{}, open: map[string]*velerov1.PodVolumeBackup{}}
	c.backup.Spec.StorageLocation = "default"
	repo := repository.NewBackupRepository("velero", repository.BackupRepositoryKey{
		VolumeNamespace: "app", BackupLocation: "default", RepositoryType: velerov1.BackupRepositoryTypeKopia,
	})
	repo.Status.Phase = velerov1.BackupRepositoryPhaseReady
	c.objects = append(c.objects, repo, builder.ForPod("velero", "node-agent-1").ObjectMeta(builder.WithLabels("role", "node-agent")).
		Phase(corev1.PodRunning).NodeName("node").Result())
}

func (a *nodeAgent) service(c client.Client) *fsbackup.Service {
	log := logrus.New()
	log.SetLevel(logrus.PanicLevel)
	return &fsbackup.Service{
		Locker: repository.NewRepoLocker(), Ensurer: repository.NewEnsurer(c, log, 10*time.Minute), Client: c, Informer: a,
		UploaderType: a.uploader, Timeout: agentTimeout,
	}
}

// AddEventHandler, RemoveEventHandler and HasSynced implement cache.Informer.
func (a *nodeAgent) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	made := &handler{h}
	a.handlers[made] = true
	return made, nil
}

func (a *nodeAgent) RemoveEventHandler(h toolscache.ResourceEventHandlerRegistration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.handlers, h.(*handler))
	return nil
}

func (*nodeAgent) HasSynced() bool { return true }

func (a *nodeAgent) created(pvb *velerov1.PodVolumeBackup) {
	a.c.events.add("pvb " + pvb.Spec.Volume)
	a.mu.Lock()
	a.open[pvb.Spec.Volume] = pvb
	a.mu.Unlock()
	if a.hold == nil || !a.hold(pvb.Spec.Volume) {
		a.finish(pvb.Spec.Volume, velerov1.PodVolumeBackupPhaseCompleted, "")
	}
}

func (a *nodeAgent) cancelled(pvb *velerov1.PodVolumeBackup) {
	a.c.events.add("cancel " + pvb.Spec.Volume)
	if !a.deaf {
		a.finish(pvb.Spec.Volume, velerov1.PodVolumeBackupPhaseCanceled, pvb.Status.Message)
	}
}

// finish ends the backup of a volume.
func (a *nodeAgent) finish(volume string, phase velerov1.PodVolumeBackupPhase, message string) {
	a.c.events.add("end " + volume)
	a.mu.Lock()
	begun := a.open[volume]
	a.mu.Unlock()
	pvb := begun.DeepCopy()
	pvb.Status.Phase, pvb.Status.Message = phase, message
	for _, h := range a.listeners() {
		h.OnUpdate(begun, pvb)
	}
}

func (a *nodeAgent) listeners() []*handler {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.handlers))
}

// mounted is a pod whose container mounts its volumes.
func mounted(p *corev1.Pod) *corev1.Pod {
	for _, v := range p.Spec.Volumes {
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return p
}

// wanting is a pod that asks by annotation for file-system backups of volumes, a list with commas.
func wanting(volumes string, p *corev1.Pod) *corev1.Pod {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[velerov1.VolumesToBackupAnnotation] = volumes
	return mounted(p)
}

// fileSystemBackups returns the phases of a result's PodVolumeBackups by volume.
func (r *run) fileSystemBackups() map[string]velerov1.PodVolumeBackupPhase {
	found := map[string]velerov1.PodVolumeBackupPhase{}
	for _, pvb := range r.result.PodVolumeBackups {
		r.c.Expect(pvb.Name).To(HavePrefix("nightly-"))
		found[pvb.Spec.Volume] = pvb.Status.Phase
	}
	return found
}
