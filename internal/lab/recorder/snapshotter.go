// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// volumePrefix makes a volume ID of a PV's name.
const volumePrefix = "vol-"

// native is the VolumeSnapshotter. Volume and snapshot IDs follow from the PV's name, so that two backups of one volume are
// told the same.
type native struct {
	recorder *recorder
	config   map[string]string
}

func (n *native) behaviour() (Native, error) {
	all, err := loadBehaviour(n.recorder.dir)
	return all.Snapshotter, err
}

// record writes a call and returns the failure that it was told to have.
func (n *native) record(method, item string, input any, failure string) error {
	return n.recordLong(method, item, input, failure, 0)
}

// recordLong is record for a call that takes some time.
func (n *native) recordLong(method, item string, input any, failure string, takes Duration) error {
	inFlight := n.recorder.inFlight.Add(1)
	defer n.recorder.inFlight.Add(-1)
	if err := n.recorder.write(Call{Plugin: Snapshotter, Method: method, Item: item, Input: input, Error: failure, InFlight: int(inFlight)}); err != nil {
		return err
	}
	if takes > 0 {
		<-time.After(time.Duration(takes))
	}
	if failure != "" {
		return errors.New(failure)
	}
	return nil
}

func (n *native) Init(config map[string]string) error {
	behaviour, err := n.behaviour()
	if err != nil {
		return err
	}
	n.config = config
	return n.record("Init", "", config, behaviour.InitError)
}

func (n *native) GetVolumeID(pv runtime.Unstructured) (string, error) {
	behaviour, err := n.behaviour()
	if err != nil {
		return "", err
	}
	item := &unstructured.Unstructured{Object: pv.UnstructuredContent()}
	volume := behaviour.volume(item.GetName())
	if err := n.record("GetVolumeID", item.GetName(), pv.UnstructuredContent(), volume.IDError); err != nil || volume.Foreign {
		return "", err
	}
	return volumePrefix + item.GetName(), nil
}

func (n *native) GetVolumeInfo(volumeID, zone string) (string, *int64, error) {
	behaviour, err := n.behaviour()
	if err != nil {
		return "", nil, err
	}
	volume := behaviour.volume(strings.TrimPrefix(volumeID, volumePrefix))
	return volume.Type, volume.IOPS, n.record("GetVolumeInfo", volumeID, map[string]string{"zone": zone}, volume.InfoError)
}

func (n *native) CreateSnapshot(volumeID, zone string, tags map[string]string) (string, error) {
	behaviour, err := n.behaviour()
	if err != nil {
		return "", err
	}
	volume := behaviour.volume(strings.TrimPrefix(volumeID, volumePrefix))
	pairs := make([]string, 0, len(tags))
	for key, value := range tags {
		pairs = append(pairs, key+"="+value)
	}
	sort.Strings(pairs)
	input := map[string]any{"zone": zone, "tags": pairs}
	if err := n.recordLong("CreateSnapshot", volumeID, input, volume.SnapshotError, volume.Hang); err != nil {
		return "", err
	}
	return "snap-" + strings.TrimPrefix(volumeID, volumePrefix), nil
}

func (n *native) DeleteSnapshot(snapshotID string) error {
	return n.record("DeleteSnapshot", snapshotID, nil, "")
}

func (n *native) CreateVolumeFromSnapshot(snapshotID, volumeType, zone string, _ *int64) (string, error) {
	input := map[string]string{"type": volumeType, "zone": zone}
	return "restored-" + snapshotID, n.record("CreateVolumeFromSnapshot", snapshotID, input, "")
}

func (n *native) SetVolumeID(pv runtime.Unstructured, volumeID string) (runtime.Unstructured, error) {
	item := &unstructured.Unstructured{Object: pv.UnstructuredContent()}
	if err := unstructured.SetNestedField(item.Object, volumeID, "spec", "hostPath", "path"); err != nil {
		return nil, fmt.Errorf("PV %s: %w", item.GetName(), err)
	}
	return item, n.record("SetVolumeID", item.GetName(), volumeID, "")
}
