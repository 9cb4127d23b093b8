// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import "fmt"

// checkRights puts what is missing together by resource and consequence.
func checkRights(s *State) []Finding {
	r := s.Rights
	if r.Who == "" {
		return nil
	}
	var out []Finding
	if r.Err != nil {
		out = append(out, notReadable(Warning, "Rights of "+r.Who, r.Err, ruleLine("authorization.k8s.io",
			[]string{"selfsubjectaccessreviews", "subjectaccessreviews"}, []string{"create"}))...)
	}
	for i := 0; i < len(r.Missing); {
		first := r.Missing[i]
		var verbs []string
		for i < len(r.Missing) && sameNeed(r.Missing[i], first) {
			verbs = append(verbs, r.Missing[i].Verb)
			i++
		}
		out = append(out, missingFinding(r.Who, first, verbs))
	}
	if len(r.Missing) == 0 && r.Err == nil {
		out = append(out, Finding{
			Severity: Info, Reason: "RightsSuffice", Object: r.Who,
			Message: fmt.Sprintf("The rights of %s are all that the server needs for CSI snapshots.", r.Who),
		})
	}
	if r.Own {
		out = append(out, Finding{
			Severity: Info, Reason: "RightsChecked", Object: r.Who,
			Message: fmt.Sprintf("The rights that were checked are those of %s; the server has them only if it runs as the same.", r.Who),
			Fix:     fmt.Sprintf("velero preflight --as-service-account %s/velero", s.Namespace),
		})
	}
	return out
}

func sameNeed(a, b Permission) bool {
	a.Verb, b.Verb = "", ""
	return a == b
}

func missingFinding(who string, p Permission, verbs []string) Finding {
	resource := p.Resource
	if p.Group != "" {
		resource += "." + p.Group
	}
	where := "in the whole cluster"
	role := "the ClusterRole"
	if p.Namespace != "" {
		where, role = "in namespace "+p.Namespace, "the Role in namespace "+p.Namespace
	}
	return Finding{
		Severity: p.Severity, Reason: "PermissionMissing", Object: who,
		Message: fmt.Sprintf("%s may not %s %s %s: %s.", who, join(verbs), resource, where, p.Without),
		Fix:     "add to the rules of " + role + " of " + who + ": " + ruleLine(p.Group, []string{p.Resource}, verbs),
	}
}

// join lists words for people.
func join(words []string) string {
	text := ""
	for i, word := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			text += " or "
		default:
			text += ", "
		}
		text += word
	}
	return text
}
