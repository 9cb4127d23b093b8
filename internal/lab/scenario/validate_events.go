// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import "time"

func (v *validator) checkEvents() {
	for i, e := range v.Events {
		p := place{"events", i}
		if e.When != nil {
			v.checkCondition(p.at("when"), *e.When)
		}
		v.checkAction(p.at("do"), e.Do)
	}
}

func (v *validator) checkCondition(p place, c Condition) {
	if c.String() == "{}" {
		v.bad(p, "the condition is empty: give at least one of created, cuts, calls, backups, hooks, frozen, phase, gone, server")
	}
	for backup := range c.Phase {
		if !IsPattern(backup) {
			v.known(p.at("phase", backup), "backup", backup, v.backups)
		}
	}
	for i, backup := range c.Gone {
		v.known(p.at("gone", i), "backup", backup, v.backups)
	}
	if c.Server != "" {
		v.oneOf(p.at("server"), c.Server, ServerReady, ServerExited)
	}
}

func (v *validator) checkAction(p place, a Action) {
	v.exactlyOne(p, map[string]bool{
		"kill": a.Kill != "", "term": a.Term != "", "start": a.Start != "", "restart": a.Restart != "",
		"stop": a.Stop != "", "behaviour": a.Behaviour != nil, "delete": a.Delete != nil, "api": a.API != nil,
		"nextServer": a.NextServer != nil, "create": a.Create != nil, "patch": a.Patch != nil,
	})
	for key, target := range map[string]string{"kill": a.Kill, "term": a.Term} {
		if target != "" {
			v.oneOf(p.at(key), target, TargetServer)
		}
	}
	if a.Start != "" {
		v.oneOf(p.at("start"), a.Start, TargetServer, TargetSidecars, TargetSnapshotController)
	}
	if a.Stop != "" {
		v.oneOf(p.at("stop"), a.Stop, TargetSidecars, TargetSnapshotController)
	}
	if a.Restart != "" {
		v.oneOf(p.at("restart"), a.Restart, TargetAPIServer, TargetServer)
	}
	if a.Behaviour != nil {
		v.known(p.at("behaviour", "driver"), "driver", a.Behaviour.Driver, v.drivers)
		v.checkBehaviour(p.at("behaviour", "rules"), a.Behaviour.Rules)
	}
	if a.Delete != nil {
		v.checkDelete(p.at("delete"), *a.Delete)
	}
	if a.API != nil {
		v.checkAPIFault(p.at("api"), *a.API)
	}
	if a.NextServer != nil {
		v.checkServer(p.at("nextServer"), a.NextServer)
	}
	if a.Create != nil {
		v.checkManifest(p.at("create"), a.Create)
	}
	if a.Patch != nil && (a.Patch.Kind == "" || a.Patch.Name == "" || len(a.Patch.Merge) == 0) {
		v.bad(p.at("patch"), "kind, name and merge are needed, such as {kind: Backup, namespace: velero, name: b1, merge: {metadata: {labels: {a: b}}}}")
	}
}

func (v *validator) checkManifest(p place, m Manifest) {
	metadata, _ := m["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	kind, _ := m["kind"].(string)
	version, _ := m["apiVersion"].(string)
	if name == "" || kind == "" || version == "" {
		v.bad(p, "an object needs apiVersion, kind and metadata with a name")
	}
}

func (v *validator) checkDelete(p place, d Delete) {
	if d.Kind == "" {
		v.bad(p, "kind is needed, such as VolumeSnapshot")
	}
	if (d.Name == "") == (d.Of == "") {
		v.bad(p, "give either name, or of with the \"namespace/pvc\" that a VolumeSnapshot or VolumeSnapshotContent was made of")
	}
	if d.Of != "" && d.Kind != "VolumeSnapshot" && d.Kind != "VolumeSnapshotContent" {
		v.bad(p.at("of"), "works for VolumeSnapshot and VolumeSnapshotContent; a %s is deleted by its name", d.Kind)
	}
}

// verbs of requests to the API.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

func (v *validator) checkAPIFault(p place, f APIFault) {
	v.oneOf(p.at("of"), f.Of, TargetServer, TargetSnapshotController)
	v.exactlyOne(p, map[string]bool{
		"answer or slow": f.Answer != 0 || f.Slow > 0, "cutWatches": f.CutWatches, "expireWatches": f.ExpireWatches, "clear": f.Clear,
	})
	if f.Answer != 0 && (f.Answer < 400 || f.Answer > 599) {
		v.bad(p.at("answer"), "is the HTTP status of an error, 400 to 599, not %d", f.Answer)
	}
	for i, verb := range f.Verbs {
		v.oneOf(p.at("verbs", i), verb, verbs...)
	}
	if f.Times < 0 {
		v.bad(p.at("times"), "must be 1 or more, is %d", f.Times)
	}
	if f.RetryAfter.Duration()%time.Second != 0 {
		v.bad(p.at("retryAfter"), "is in whole seconds, not %s", f.RetryAfter)
	}
}
