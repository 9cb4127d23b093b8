// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
)

// MaxFreezeAnnotation, on a pod or on a Backup, is the longest time that a pod may be frozen, as a Go duration such as 90s.
// That of the pod comes before that of the Backup, and this before the server's default. "0" is no limit.
const MaxFreezeAnnotation = "velero.io/max-freeze"

// FreezeLimits say how long pods may be frozen.
type FreezeLimits struct {
	// Default is the limit for pods and backups without an annotation of their own; 0 is none.
	Default time.Duration
	// Warning is how long a pod may be frozen without a warning; 0 is for ever.
	Warning time.Duration
	// Tolerance is by how much the clocks of storage and server may differ: a snapshot whose creation time lies further outside
	// its pod's freeze window than that fails. 0: creation times are not checked.
	Tolerance time.Duration
}

// freezeLimitError is why the snapshots of a block are given up at its freeze limit.
type freezeLimitError struct {
	pod   string
	limit time.Duration
	from  string
}

// Error implements error.
func (e *freezeLimitError) Error() string {
	return fmt.Sprintf("pod %s was thawed at its freeze limit of %s (%s); raise the limit, or find out why the storage takes so long", e.pod, e.limit, e.from)
}

// maxFreeze is the freeze limit of a pod and where it comes from; 0 when there is none. A value that can't be read is a warning,
// and the next place is asked: not to freeze would be no better, and to freeze without any limit worse.
func (r *run) maxFreeze(pod collect.Item, log logrus.FieldLogger) (limit time.Duration, from string) {
	if text, set := pod.Object().GetAnnotations()[MaxFreezeAnnotation]; set {
		limit, err := ParseMaxFreeze(text)
		if err == nil {
			return limit, "annotation " + MaxFreezeAnnotation + " of the pod"
		}
		log.WithField("namespace", pod.Namespace).WithField("name", pod.Name).WithError(err).
			Warnf("Annotation %s of pod %s/%s is ignored", MaxFreezeAnnotation, pod.Namespace, pod.Name)
	}
	return r.backupMaxFreeze()
}

func (r *run) backupMaxFreeze() (limit time.Duration, from string) {
	limit, set, err := MaxFreezeOf(r.backup)
	if err == nil && set { // the controller has refused a Backup whose annotation can't be read
		return limit, "annotation " + MaxFreezeAnnotation + " of the Backup"
	}
	return r.deps.FreezeLimits.Default, "the server's default, --default-max-freeze"
}

// MaxFreezeOf returns the freeze limit that a Backup's annotation sets. The error is for whoever made the Backup.
func MaxFreezeOf(backup *velerov1.Backup) (limit time.Duration, set bool, err error) {
	text, set := backup.Annotations[MaxFreezeAnnotation]
	if !set {
		return 0, false, nil
	}
	limit, err = ParseMaxFreeze(text)
	if err != nil {
		return 0, true, fmt.Errorf("annotation %s of Backup %s: %w", MaxFreezeAnnotation, backup.Name, err)
	}
	return limit, true, nil
}

// ParseMaxFreeze reads the value of a MaxFreezeAnnotation.
func ParseMaxFreeze(text string) (time.Duration, error) {
	limit, err := time.ParseDuration(strings.TrimSpace(text))
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no duration; write it as 90s or 5m, or 0 for no limit", text)
	case limit < 0:
		return 0, fmt.Errorf("%q is negative; write it as 90s or 5m, or 0 for no limit", text)
	}
	return limit, nil
}
