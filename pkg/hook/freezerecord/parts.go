// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package freezerecord

import (
	"fmt"
	"strings"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// LabelRecord marks the ConfigMaps that are freeze records.
	LabelRecord = "velero.io/freeze-record"
	// AnnServer is the annotation that names the server that runs the backup.
	AnnServer = "velero.io/server"
	// Finalizer keeps a record from being collected as garbage with its Backup.
	Finalizer = "velero.io/frozen-pods"

	annBackup   = "velero.io/backup"
	annNote     = "velero.io/description"
	description = "Pods that a running backup has frozen, and how to thaw them. It is removed when they are thawed."

	// defaultMaxPart is how many bytes of entries go into one ConfigMap: half of what the API server takes.
	defaultMaxPart = 512 << 10
	// maxNumber of ConfigMaps of a record.
	maxNumber = 1000
)

// parts divides the entries of a record. It is used under the record's turn.
type parts struct {
	max   int            // bytes of entries in a part
	sizes []int          // by part, what its entries take
	where map[string]int // by key
	sized map[string]int // by key
}

// place finds the part for an entry: where it is, or the first that has room.
func (p *parts) place(key string, size int) (int, error) {
	if size > p.max {
		return 0, fmt.Errorf("the commands that thaw it take %d bytes; no more than %d can be recorded", size, p.max)
	}
	if part, found := p.where[key]; found && p.sizes[part]-p.sized[key]+size <= p.max {
		return part, nil
	}
	for part, used := range p.sizes {
		if used+size <= p.max {
			return part, nil
		}
	}
	if len(p.sizes) == maxNumber {
		return 0, fmt.Errorf("the record of this backup is full with %d ConfigMaps", maxNumber)
	}
	return len(p.sizes), nil
}

// put notes that an entry is there.
func (p *parts) put(key string, part, size int) {
	p.drop(key)
	for len(p.sizes) <= part {
		p.sizes = append(p.sizes, 0)
	}
	p.sizes[part] += size
	p.where[key], p.sized[key] = part, size
}

// drop notes that it isn't.
func (p *parts) drop(key string) {
	if part, found := p.where[key]; found {
		p.sizes[part] -= p.sized[key]
		delete(p.where, key)
		delete(p.sized, key)
	}
}

// isEmpty says whether a part has no entries.
func (p *parts) isEmpty(part int) bool {
	for _, at := range p.where {
		if at == part {
			return false
		}
	}
	return true
}

// partName is the name of a part's ConfigMap.
func partName(backup types.UID, part int) string {
	name := "velero-frozen-" + strings.ToLower(string(backup))
	if part > 0 {
		name = fmt.Sprintf("%s-%d", name, part+1)
	}
	return name
}

// newPart is a part's ConfigMap without entries.
func newPart(backup *velerov1.Backup, server string, part int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: backup.Namespace,
			Name:      partName(backup.UID, part),
			Labels: map[string]string{
				LabelRecord:                     "true",
				velerov1.BackupNameLabel:        label.GetValidName(backup.Name),
				velerov1.BackupUIDLabel:         string(backup.UID),
				velerov1.ExcludeFromBackupLabel: "true",
			},
			Annotations: map[string]string{annBackup: backup.Name, AnnServer: server, annNote: description},
			Finalizers:  []string{Finalizer},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: velerov1.SchemeGroupVersion.String(), Kind: "Backup", Name: backup.Name, UID: backup.UID,
			}},
		},
		Data: map[string]string{},
	}
}
