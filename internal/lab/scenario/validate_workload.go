// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"path"
	"slices"
	"strings"
)

// checkWorkload looks at the templates first and, when they can be written out, at the single pods and claims.
func (v *validator) checkWorkload() {
	before := len(v.problems.messages)
	seen := map[string]bool{}
	for i, n := range v.Workload {
		p := place{"workload", i}
		v.name(p.at("namespace"), n.Namespace)
		if seen[n.Namespace] {
			v.bad(p.at("namespace"), "namespace %q is there twice", n.Namespace)
		}
		seen[n.Namespace] = true
		for j, claim := range n.PVCs {
			v.checkClaim(p.at("pvcs", j), claim)
		}
		for j, pod := range n.Pods {
			v.checkPod(p.at("pods", j), pod)
		}
	}
	if len(v.problems.messages) > before {
		return
	}
	for i, n := range v.Workload {
		v.checkExpanded(place{"workload", i}, n)
	}
}

func (v *validator) checkClaim(p place, c Claim) {
	v.template(p, c.Name, c.Count)
	v.known(p.at("driver"), "driver", c.Driver, v.drivers)
	v.oneOf(p.at("phase"), c.Phase, "Bound", "Pending", "Lost")
}

func (v *validator) checkPod(p place, pod Pod) {
	v.template(p, pod.Name, pod.Count)
	v.known(p.at("driver"), "driver", pod.Driver, v.drivers)
	v.oneOf(p.at("phase"), pod.Phase, "Pending", "Running", "Succeeded", "Failed", "Unknown")
	if pod.PVCs < 0 {
		v.bad(p.at("pvcs"), "must be 0 or more, is %d", pod.PVCs)
	}
	for key, hook := range map[string]*Hook{"pre": pod.Hooks.Pre, "post": pod.Hooks.Post} {
		if hook != nil {
			v.checkHook(p.at("hooks", key), hook)
		}
	}
	if pre, post := pod.Hooks.Pre, pod.Hooks.Post; pre != nil && post != nil && slices.Equal(pre.Command, post.Command) {
		v.bad(p.at("hooks", "post", "command"), "must differ from the pre hook's, or the lab can't tell a freeze from a thaw")
	}
}

func (v *validator) checkHook(p place, h *Hook) {
	if len(h.Command) == 0 {
		v.bad(p, "command is needed, such as command: freeze")
	}
	if h.OnError != "" {
		v.oneOf(p.at("onError"), h.OnError, "Fail", "Continue")
	}
	v.checkExit(p.at("exit"), h.Exit)
}

func (v *validator) checkCommands() {
	for i, c := range v.Commands {
		p := place{"commands", i}
		if len(c.Command) == 0 {
			v.bad(p, "command is needed, such as command: freeze")
		}
		if _, err := path.Match(c.Match, ""); err != nil {
			v.bad(p.at("match"), "%q is no pattern: use * for any text, such as app/db-*", c.Match)
		}
		v.checkExit(p.at("exit"), c.Exit)
	}
}

func (v *validator) checkExit(p place, status int) {
	if status < 0 || status > 255 {
		v.bad(p, "an exit status is 0 to 255, not %d", status)
	}
}

// template checks a name that may stand for several objects.
func (v *validator) template(p place, name string, count int) {
	if !v.name(p.at("name"), name) {
		return
	}
	switch marked := strings.Contains(name, indexMark); {
	case count < 0:
		v.bad(p.at("count"), "must be 1 or more, is %d", count)
	case count > 0 && !marked:
		v.bad(p.at("name"), "%q with a count must hold {i}, such as \"%s-{i}\"", name, name)
	case count == 0 && marked:
		v.bad(p.at("name"), "%q holds {i}, so a count is needed, such as count: 20", name)
	}
}

// checkExpanded looks for two objects of one name and for mounts of claims that are not there.
func (v *validator) checkExpanded(p place, n Namespace) {
	claims, pods := n.expand()
	claimNames, podNames := map[string]bool{}, map[string]bool{}
	for _, claim := range claims {
		if claimNames[claim.Claim.Name] {
			v.bad(p, "two claims of namespace %s are called %s: rename a pod or a claim", n.Namespace, claim.Claim.Name)
		}
		claimNames[claim.Claim.Name] = true
	}
	for _, pod := range pods {
		if podNames[pod.Pod.Name] {
			v.bad(p, "two pods of namespace %s are called %s", n.Namespace, pod.Pod.Name)
		}
		podNames[pod.Pod.Name] = true
		for _, claim := range pod.Claims {
			if !claimNames[claim] {
				v.bad(p, "pod %s mounts the claim %s, which is not there: declare it under pvcs of namespace %s", pod.Pod.Name, claim, n.Namespace)
			}
		}
	}
}
