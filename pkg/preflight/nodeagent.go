// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strings"
)

// checkNodeAgent matters only where data movement is on.
func checkNodeAgent(s *State) []Finding {
	var out []Finding
	usedBy := s.NodeAgent.UsedBy
	if s.Server.Value.MoveData {
		usedBy = "the server's flag --default-snapshot-move-data"
	}
	if usedBy == "" {
		if s.NodeAgent.UsedErr != nil {
			out = notReadable(Info, "Schedules and Backups in namespace "+s.Namespace, s.NodeAgent.UsedErr, "")
		}
		return out
	}
	object := "DaemonSet " + s.Namespace + "/node-agent"
	if s.NodeAgent.Agents.Err != nil {
		return notReadable(Warning, object, s.NodeAgent.Agents.Err, "")
	}
	if len(s.NodeAgent.Agents.Value) == 0 {
		return []Finding{{
			Severity: Error, Reason: "NodeAgentMissing", Object: object, Fix: "velero install --use-node-agent",
			Message: fmt.Sprintf("Data movement is on (%s) and there is no DaemonSet node-agent in namespace %s: the data is never moved.", usedBy, s.Namespace),
		}}
	}
	for _, agent := range s.NodeAgent.Agents.Value {
		if agent.Ready == agent.Wanted && agent.Ready > 0 {
			continue
		}
		severity := Warning
		if agent.Ready == 0 {
			severity = Error
		}
		out = append(out, Finding{
			Severity: severity, Reason: "NodeAgentNotReady", Object: "DaemonSet " + s.Namespace + "/" + agent.Name,
			Message: fmt.Sprintf("Data movement is on (%s) and DaemonSet %s/%s is ready on %d of %d nodes.", usedBy, s.Namespace, agent.Name, agent.Ready, agent.Wanted),
			Fix:     fmt.Sprintf("kubectl -n %s describe daemonset %s", s.Namespace, agent.Name),
		})
	}
	return out
}

// ruleLine writes a rule for a role.
func ruleLine(group string, resources, verbs []string) string {
	return fmt.Sprintf(`- {apiGroups: ["%s"], resources: ["%s"], verbs: ["%s"]}`, group, strings.Join(resources, `", "`), strings.Join(verbs, `", "`))
}
