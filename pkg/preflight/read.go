// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize bounds one answer of the API server.
const pageSize = 500

// Cluster reads objects of Kubernetes, Velero and the snapshot API; controller-runtime's clients can. They must read from the
// API and not from a cache, which would begin to watch everything that is asked for.
type Cluster interface {
	Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error
	List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error
}

// Discovery says what the API server serves; client-go's discovery client can.
type Discovery interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// Sources are what a State is read from.
type Sources struct {
	Cluster   Cluster
	Discovery Discovery
	// Access answers for somebody's rights. Default: rights aren't looked at.
	Access Access
	// Namespace that Velero is in.
	Namespace string
	// Server has the server's settings, when it is the server that asks. Default: they are read from its Deployment.
	Server *Server
}

// Read reads the cluster. The error says that it can't be reached at all; what can't be read of it is in the State.
func Read(ctx context.Context, sources Sources) (*State, error) {
	r := &reading{Sources: sources, state: &State{Namespace: sources.Namespace}}
	if err := r.api(ctx); err != nil {
		return nil, fmt.Errorf("asking the cluster for its snapshot API: %w", err)
	}
	var group errgroup.Group // every part writes to its own part of the state
	for _, part := range []func(context.Context){r.volumes, r.classes, r.drivers, r.workloads, r.rights, r.nodeAgent} {
		group.Go(func() error {
			part(ctx)
			return nil
		})
	}
	_ = group.Wait() // no part returns an error
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading the cluster: %w", context.Cause(ctx))
	}
	return r.state, nil
}

// reading is one Read.
type reading struct {
	Sources
	state *State
}

// snapshotResources are the resources without which there are no CSI snapshots.
var snapshotResources = []string{"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"}

// api finds out what there is of the snapshot API. Anybody who is logged in may ask for it.
func (r *reading) api(ctx context.Context) error {
	v1, err := r.served("v1")
	if err != nil && !isAnswer(err) {
		return err
	}
	beta, betaErr := r.served("v1beta1")
	r.state.API = map[string]Resource{}
	for _, name := range snapshotResources {
		r.state.API[name] = Resource{
			V1: slices.Contains(v1, name), Beta: slices.Contains(beta, name),
			Err: errors.Join(err, betaErr), Definition: r.definition(ctx, name),
		}
	}
	return nil
}

// served lists the resources of a version of the snapshot API; none when it isn't served.
func (r *reading) served(version string) ([]string, error) {
	list, err := r.Discovery.ServerResourcesForGroupVersion(snapshotv1.GroupName + "/" + version)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, resource := range list.APIResources {
		names = append(names, resource.Name)
	}
	return names, nil
}

// isAnswer tells an answer of an API server from having none.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

func (r *reading) definition(ctx context.Context, resource string) Answer[Definition] {
	crd := new(apiextensionsv1.CustomResourceDefinition)
	if err := r.Cluster.Get(ctx, client.ObjectKey{Name: resource + "." + snapshotv1.GroupName}, crd); err != nil {
		return Answer[Definition]{Err: err}
	}
	out := Definition{Stored: crd.Status.StoredVersions}
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			out.Storage = version.Name
		}
	}
	return Answer[Definition]{Value: out}
}

func (r *reading) volumes(ctx context.Context) {
	out := Volumes{CSI: map[string]int{}}
	list := new(corev1.PersistentVolumeList)
	err := r.pages(ctx, list, func() {
		for _, pv := range list.Items {
			switch {
			case pv.Spec.ClaimRef == nil || pv.Status.Phase != corev1.VolumeBound:
			case pv.Spec.CSI != nil:
				out.CSI[pv.Spec.CSI.Driver]++
			default:
				out.Other++
			}
		}
	})
	r.state.Volumes = Answer[Volumes]{Value: out, Err: err}
}

func (r *reading) classes(ctx context.Context) {
	list := new(snapshotv1.VolumeSnapshotClassList)
	err := r.pages(ctx, list, func() { r.state.Classes.Value = append(r.state.Classes.Value, list.Items...) })
	if err != nil && !r.state.API["volumesnapshotclasses"].V1 {
		err = nil // the check of the CRDs says it
	}
	r.state.Classes.Err = err
}

func (r *reading) drivers(ctx context.Context) {
	list := new(storagev1.CSIDriverList)
	r.state.Drivers.Err = r.pages(ctx, list, func() {
		for _, driver := range list.Items {
			r.state.Drivers.Value = append(r.state.Drivers.Value, driver.Name)
		}
	})
}

func (r *reading) rights(ctx context.Context) {
	if r.Access == nil {
		return
	}
	r.state.Rights = review(ctx, r.Access, Permissions(r.Namespace))
}

// nodeAgent looks for data movement, and for the node agent that it needs. Completed backups count: the next of that kind will
// move data too.
func (r *reading) nodeAgent(ctx context.Context) {
	agent := &r.state.NodeAgent
	schedules, backups := new(velerov1.ScheduleList), new(velerov1.BackupList)
	here := client.InNamespace(r.Namespace)
	errSchedules := r.pages(ctx, schedules, func() {
		for _, schedule := range schedules.Items {
			if agent.UsedBy == "" && ptr.Deref(schedule.Spec.Template.SnapshotMoveData, false) {
				agent.UsedBy = "Schedule " + schedule.Name
			}
		}
	}, here)
	errBackups := r.pages(ctx, backups, func() {
		for _, backup := range backups.Items {
			if agent.UsedBy == "" && ptr.Deref(backup.Spec.SnapshotMoveData, false) {
				agent.UsedBy = "Backup " + backup.Name
			}
		}
	}, here)
	agent.UsedErr = errors.Join(errSchedules, errBackups)
	for _, name := range []string{"node-agent", "node-agent-windows"} {
		set := new(appsv1.DaemonSet)
		err := r.Cluster.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, set)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			agent.Agents.Err = err
		default:
			agent.Agents.Value = append(agent.Agents.Value, Agent{
				Name: name, Wanted: set.Status.DesiredNumberScheduled, Ready: set.Status.NumberReady,
			})
		}
	}
}

// pages lists in pages, each of which is in list when page is called.
func (r *reading) pages(ctx context.Context, list client.ObjectList, page func(), opts ...client.ListOption) error {
	next := ""
	for {
		all := append(slices.Clone(opts), client.Limit(pageSize), client.Continue(next))
		if err := r.Cluster.List(ctx, list, all...); err != nil {
			return err
		}
		page()
		if next = list.GetContinue(); next == "" {
			return nil
		}
		// Decoding into the same list would keep fields that the next page leaves out.
		if err := meta.SetList(list, nil); err != nil {
			return err
		}
		list.SetContinue("")
	}
}

// sortedKeys gives reports the same order each time.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
