// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// indexMark is what stands for the number in a name with a count.
const indexMark = "{i}"

// Workload is the scenario's workload with every template written out.
type Workload struct {
	Namespaces []Namespace
	Pods       []WorkloadPod
	Claims     []WorkloadClaim
}

// WorkloadPod is one pod to be created.
type WorkloadPod struct {
	Namespace string
	// Pod is the template with Name replaced.
	Pod
	// Claims are the names of all claims that it mounts.
	Claims []string
}

// Key is "namespace/name".
func (p WorkloadPod) Key() string { return p.Namespace + "/" + p.Pod.Name }

// Hooked says whether the pod declares a hook.
func (p WorkloadPod) Hooked() bool { return p.Hooks.Pre != nil || p.Hooks.Post != nil }

// WorkloadClaim is one claim to be created.
type WorkloadClaim struct {
	Namespace string
	// Claim is the template with Name replaced.
	Claim
	// Pods are the pods that mount it, "namespace/name".
	Pods []string
}

// Key is "namespace/name".
func (c WorkloadClaim) Key() string { return c.Namespace + "/" + c.Claim.Name }

// Expand writes out the templates. Pods and claims come in the order of the file.
func (s *Scenario) Expand() Workload {
	out := Workload{Namespaces: s.Workload}
	for _, namespace := range s.Workload {
		claims, pods := namespace.expand()
		out.Claims = append(out.Claims, claims...)
		out.Pods = append(out.Pods, pods...)
	}
	return out
}

func (n Namespace) expand() ([]WorkloadClaim, []WorkloadPod) {
	var (
		claims []WorkloadClaim
		pods   []WorkloadPod
	)
	for _, template := range n.PVCs {
		for _, name := range names(template.Name, template.Count) {
			claim := template
			claim.Name = name
			claims = append(claims, WorkloadClaim{Namespace: n.Namespace, Claim: claim})
		}
	}
	for _, template := range n.Pods {
		for i, name := range names(template.Name, template.Count) {
			pod := WorkloadPod{Namespace: n.Namespace, Pod: template}
			pod.Pod.Name = name
			for j := range template.PVCs {
				claim := Claim{Name: fmt.Sprintf("%s-%d", name, j), Driver: template.Driver, Phase: "Bound", Labels: template.Labels}
				claims = append(claims, WorkloadClaim{Namespace: n.Namespace, Claim: claim})
				pod.Claims = append(pod.Claims, claim.Name)
			}
			for _, mount := range template.Mounts {
				pod.Claims = append(pod.Claims, strings.ReplaceAll(mount, indexMark, strconv.Itoa(i)))
			}
			pods = append(pods, pod)
		}
	}
	noteMounts(claims, pods)
	return claims, pods
}

func noteMounts(claims []WorkloadClaim, pods []WorkloadPod) {
	index := make(map[string]int, len(claims))
	for i, claim := range claims {
		index[claim.Claim.Name] = i
	}
	for _, pod := range pods {
		for _, name := range pod.Claims {
			if i, ok := index[name]; ok {
				claims[i].Pods = append(claims[i].Pods, pod.Key())
			}
		}
	}
}

// names writes out a name with its count: one name when there is none.
func names(template string, count int) []string {
	if count == 0 && !strings.Contains(template, indexMark) {
		return []string{template}
	}
	out := make([]string, 0, count)
	for i := range count {
		out = append(out, strings.ReplaceAll(template, indexMark, strconv.Itoa(i)))
	}
	return out
}

// MatchName says whether "namespace/name" fits a pattern: "*" fits everything, a pattern without a slash is for the
// name in any namespace, and otherwise * stands for any text without a slash.
func MatchName(pattern, name string) bool {
	if pattern == "*" {
		return true
	}
	if !strings.Contains(pattern, "/") {
		name = path.Base(name)
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// Actions are everything that events and steps do.
func (s *Scenario) Actions() []Action {
	var out []Action
	for _, event := range s.Events {
		out = append(out, event.Do)
	}
	for _, step := range s.Then {
		if step.Do != nil {
			out = append(out, *step.Do)
		}
	}
	return out
}
