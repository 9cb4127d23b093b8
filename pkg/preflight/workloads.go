// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// workloads looks for external-snapshotter, and for the Velero server, in everything that has a pod template.
func (r *reading) workloads(ctx context.Context) {
	deployments, sets, daemons := new(appsv1.DeploymentList), new(appsv1.StatefulSetList), new(appsv1.DaemonSetList)
	server := defaultServer()
	errDeployments := r.pages(ctx, deployments, func() {
		for i := range deployments.Items {
			d := &deployments.Items[i]
			r.look(Workload{
				Kind: "Deployment", Namespace: d.Namespace, Name: d.Name, Wanted: ptr.Deref(d.Spec.Replicas, 1), Ready: d.Status.ReadyReplicas,
			}, d.Spec.Template.Spec)
			if d.Namespace == r.Namespace {
				server.readFrom(d.Spec.Template.Spec)
			}
		}
	})
	errSets := r.pages(ctx, sets, func() {
		for i := range sets.Items {
			s := &sets.Items[i]
			r.look(Workload{
				Kind: "StatefulSet", Namespace: s.Namespace, Name: s.Name, Wanted: ptr.Deref(s.Spec.Replicas, 1), Ready: s.Status.ReadyReplicas,
			}, s.Spec.Template.Spec)
		}
	})
	errDaemons := r.pages(ctx, daemons, func() {
		for i := range daemons.Items {
			d := &daemons.Items[i]
			r.look(Workload{
				Kind: "DaemonSet", Namespace: d.Namespace, Name: d.Name,
				Wanted: d.Status.DesiredNumberScheduled, Ready: d.Status.NumberReady,
			}, d.Spec.Template.Spec)
		}
	})
	r.state.Workloads.Err = errors.Join(errDeployments, errSets, errDaemons)
	r.state.Server = Answer[Server]{Value: server, Err: errDeployments}
	if r.Server != nil {
		r.state.Server = Answer[Server]{Value: *r.Server}
	}
}

// look notes the programs of external-snapshotter in a pod template.
func (r *reading) look(w Workload, pod corev1.PodSpec) {
	for i, container := range pod.Containers {
		program, ok := programOf(container)
		if !ok {
			continue
		}
		w.Program, w.Container, w.Index, w.Image = program, container.Name, i, container.Image
		w.Command, w.Args, w.Text = container.Command, container.Args, textOf(pod)
		r.state.Workloads.Value = append(r.state.Workloads.Value, w)
	}
}

// programOf tells the programs by image, command or container name: images are mirrored under other names, or named by digest.
func programOf(container corev1.Container) (Program, bool) {
	names := []string{path.Base(strings.Split(container.Image, "@")[0]), container.Name}
	if len(container.Command) > 0 {
		names = append(names, path.Base(container.Command[0]))
	}
	for _, name := range names {
		if strings.Contains(name, "operator") || strings.Contains(name, "webhook") {
			return "", false // they look after a snapshot-controller, and aren't one
		}
	}
	for _, name := range names {
		for _, program := range []Program{SnapshotController, Sidecar} {
			if strings.Contains(name, string(program)) {
				return program, true
			}
		}
	}
	return "", false
}

func textOf(pod corev1.PodSpec) string {
	var text strings.Builder
	for _, container := range pod.Containers {
		for _, words := range [][]string{container.Command, container.Args} {
			for _, word := range words {
				fmt.Fprintln(&text, word)
			}
		}
		for _, variable := range container.Env {
			fmt.Fprintln(&text, variable.Value)
		}
	}
	return text.String()
}

// defaultSnapshotTimeout is Velero's.
const defaultSnapshotTimeout = 10 * time.Minute

func defaultServer() Server { return Server{SnapshotTimeout: defaultSnapshotTimeout} }

// readFrom takes settings from the pod template of a Velero server. What doesn't parse is left as it is: the server refuses it
// by itself.
func (s *Server) readFrom(pod corev1.PodSpec) {
	for _, container := range pod.Containers {
		words := append(append([]string{}, container.Command...), container.Args...)
		if len(words) < 2 || path.Base(words[0]) != "velero" || words[1] != "server" {
			continue
		}
		s.Found = true
		if value, ok := flagOf(words, "features"); ok {
			s.CSI = hasFeature(value, velerov1.CSIFeatureFlag)
		}
		if value, ok := flagOf(words, "csi-snapshot-parallelism"); ok {
			_ = s.Parallelism.Set(value)
		}
		if value, ok := flagOf(words, "default-snapshot-move-data"); ok {
			s.MoveData = value == "true" || value == ""
		}
		if value, ok := flagOf(words, "default-csi-snapshot-timeout"); ok {
			if timeout, err := time.ParseDuration(value); err == nil {
				s.SnapshotTimeout = timeout
			}
		}
	}
}

func hasFeature(list, feature string) bool {
	for name := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(name) == feature {
			return true
		}
	}
	return false
}
