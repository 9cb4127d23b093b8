// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/velero-clipper/clipper/internal/lab/result"
)

// validator checks what the types cannot. Each check is a method, named after the part of the scenario that it looks at.
type validator struct {
	*Scenario
	lines    *locator
	problems *problemList

	drivers, backups []string
}

func validate(s *Scenario, lines *locator, problems *problemList) {
	v := &validator{Scenario: s, lines: lines, problems: problems}
	for _, d := range s.Storage.Drivers {
		v.drivers = append(v.drivers, d.Name)
	}
	for _, b := range s.Backups {
		v.backups = append(v.backups, b.Name)
	}
	v.name(place{"name"}, s.Name)
	v.oneOf(place{"cluster", "authorization"}, s.Cluster.Authorization, AlwaysAllow, RBAC)
	v.checkSnapshotter()
	v.checkOldSnapshots()
	v.checkDrivers()
	v.checkWorkload()
	v.checkCommands()
	v.checkServer(place{"server"}, &s.Server)
	if s.Second != nil {
		v.checkServer(place{"secondCluster", "server"}, &s.Second.Server)
	}
	for i, manifest := range s.Manifests {
		v.checkManifest(place{"manifests", i}, manifest)
	}
	v.checkBackups()
	v.checkEvents()
	v.checkSteps()
	v.checkExpectations()
}

// bad notes a mistake with its path and line.
func (v *validator) bad(p place, format string, args ...any) {
	v.problems.add(v.lines.line(p), "%s: %s", p, fmt.Sprintf(format, args...))
}

func (v *validator) name(p place, name string) bool {
	if name == "" {
		v.bad(p, "a name is needed")
		return false
	}
	if wrong := validation.IsDNS1123Subdomain(strings.ReplaceAll(name, indexMark, "0")); len(wrong) > 0 {
		v.bad(p, "%q is no Kubernetes name: use lower case letters, digits, '-' and '.', such as app-1", name)
		return false
	}
	return true
}

func (v *validator) oneOf(p place, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		v.bad(p, "%q is not possible here: use one of %s", value, strings.Join(allowed, ", "))
	}
}

// known checks a reference to something that the scenario declares.
func (v *validator) known(p place, what, name string, declared []string) {
	if slices.Contains(declared, name) {
		return
	}
	if len(declared) == 0 {
		v.bad(p, "there is no %s %q, none is declared", what, name)
		return
	}
	v.bad(p, "there is no %s %q: declared are %s", what, name, strings.Join(declared, ", "))
}

func (v *validator) checkSnapshotter() {
	p := place{"cluster", "snapshotter"}
	for _, limit := range []struct {
		key   string
		value int
	}{
		{"workers", v.Cluster.Snapshotter.Workers},
		{"qps", v.Cluster.Snapshotter.QPS},
		{"burst", v.Cluster.Snapshotter.Burst},
	} {
		if limit.value < 1 {
			v.bad(p.at(limit.key), "must be at least 1, is %d", limit.value)
		}
	}
}

func (v *validator) checkOldSnapshots() {
	p := place{"cluster", "oldSnapshots"}
	switch {
	case v.Cluster.OldSnapshots < 0:
		v.bad(p, "must be 0 or more, is %d", v.Cluster.OldSnapshots)
	case v.Cluster.OldSnapshots > 0 && !*v.Cluster.SnapshotCRDs:
		v.bad(p, "can't be there without the snapshot CRDs")
	}
}

func (v *validator) checkDrivers() {
	seen, classes := map[string]bool{}, map[string]bool{}
	for i, d := range v.Storage.Drivers {
		p := place{"storage", "drivers", i}
		v.name(p.at("name"), d.Name)
		if seen[d.Name] {
			v.bad(p.at("name"), "driver %q is declared twice", d.Name)
		}
		seen[d.Name] = true
		v.oneOf(p.at("deletionPolicy"), d.DeletionPolicy, "Delete", "Retain")
		for j, class := range d.MoreClasses {
			at := p.at("moreClasses", j)
			v.name(at.at("name"), class.Name)
			v.oneOf(at.at("deletionPolicy"), class.DeletionPolicy, "Delete", "Retain")
			if classes[class.Name] || class.Name == d.Name {
				v.bad(at.at("name"), "VolumeSnapshotClass %q is there already", class.Name)
			}
			classes[class.Name] = true
		}
		v.checkBehaviour(p.at("behaviour"), d.Behaviour)
	}
}

func (v *validator) checkBehaviour(p place, rules []Behaviour) {
	for i, rule := range rules {
		at := p.at(i)
		if _, err := path.Match(rule.Match, ""); err != nil {
			v.bad(at.at("match"), "%q is no pattern: use * for any text, such as app/plain-*", rule.Match)
		}
		if rule.Hang && (rule.HangFor > 0 || rule.Fail != nil) {
			v.bad(at, "hang never answers, so hangFor and fail have no meaning beside it")
		}
		if rule.LateCut && !rule.Hang && rule.HangFor == 0 && rule.Fail == nil {
			v.bad(at.at("lateCut"), "has a meaning only beside hang, hangFor or fail")
		}
		if rule.Capacity < 0 {
			v.bad(at.at("capacity"), "must be 0 (any number) or more, is %d", rule.Capacity)
		}
		if rule.Fail != nil {
			v.checkCode(at.at("fail", "code"), rule.Fail.Code)
		}
		if rule.Throttle != nil {
			v.checkCode(at.at("throttle", "code"), rule.Throttle.Code)
			if rule.Throttle.PerSecond <= 0 {
				v.bad(at.at("throttle", "perSecond"), "must be above 0")
			}
		}
	}
}

func (v *validator) checkCode(p place, name string) {
	if _, ok := ParseCode(name); ok {
		return
	}
	var all []string
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		all = append(all, code.String())
	}
	v.bad(p, "%q is no gRPC code: use one of %s", name, strings.Join(all, ", "))
}

// ParseCode gives the gRPC code of that name.
func ParseCode(name string) (codes.Code, bool) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if strings.EqualFold(code.String(), name) {
			return code, true
		}
	}
	return codes.OK, false
}

func (v *validator) checkServer(p place, s *Server) {
	v.oneOf(p.at("engine"), s.Engine, EngineParallel, EngineStock)
	for i, arg := range s.Args {
		if !strings.HasPrefix(arg, "-") && i == 0 {
			v.bad(p.at("args", i), "%q is no flag: args are what follows \"velero server\", such as --log-level=debug", arg)
		}
	}
	if (s.RBAC.Role != "" || s.RBAC.Without != nil) && v.Cluster.Authorization != RBAC {
		v.bad(p.at("rbac"), "has a meaning only with cluster.authorization: %s", RBAC)
	}
}

func (v *validator) checkBackups() {
	if len(v.Backups) == 0 && !v.Server.MustNotStart {
		v.bad(place{"backups"}, "a scenario needs a backup: add one, such as {name: b1, spec: {includedNamespaces: [app]}}")
	}
	seen := map[string]bool{}
	for i, b := range v.Backups {
		p := place{"backups", i}
		v.name(p.at("name"), b.Name)
		if seen[b.Name] {
			v.bad(p.at("name"), "backup %q is there twice", b.Name)
		}
		if b.When != nil {
			v.checkCondition(p.at("when"), *b.When)
		}
		if b.When != nil && b.After != "" {
			v.bad(p, "after and when can't stand together: when: {phase: {%s: terminal}} is the same as after", b.After)
		}
		if b.After != "" {
			v.known(p.at("after"), "backup", b.After, v.backups)
			if !seen[b.After] && slices.Contains(v.backups, b.After) {
				v.bad(p.at("after"), "backup %q must stand before the one that waits for it", b.After)
			}
		}
		seen[b.Name] = true
	}
}

func (v *validator) checkSteps() {
	backups := slices.Clone(v.backups)
	for i, step := range v.Then {
		p := place{"then", i}
		v.oneOf(p.at("in"), step.In, InFirst, InSecond)
		if step.In == InSecond && v.Second == nil {
			v.bad(p.at("in"), "there is no second cluster: add secondCluster: {server: {}}")
		}
		v.exactlyOne(p, map[string]bool{
			"server": step.Server != nil, "restore": step.Restore != nil, "deleteBackup": step.DeleteBackup != "",
			"backup": step.Backup != nil, "run": step.Run != nil, "do": step.Do != nil, "await": step.Await != nil,
		})
		switch {
		case step.Server != nil:
			v.checkServer(p.at("server"), step.Server)
		case step.Restore != nil:
			v.name(p.at("restore", "name"), step.Restore.Name)
			v.known(p.at("restore", "backup"), "backup", step.Restore.Backup, backups)
		case step.DeleteBackup != "":
			v.known(p.at("deleteBackup"), "backup", step.DeleteBackup, backups)
		case step.Backup != nil:
			v.name(p.at("backup", "name"), step.Backup.Name)
			backups = append(backups, step.Backup.Name)
			v.backups = backups
		case step.Await != nil:
			v.checkCondition(p.at("await"), *step.Await)
		case step.Run != nil && len(step.Run.Args) == 0:
			v.bad(p.at("run"), "args are needed, such as [backup, describe, b1, --details]")
		case step.Do != nil:
			v.checkAction(p.at("do"), *step.Do)
		}
	}
}

// exactlyOne refuses a mapping with no or several of the keys that exclude each other.
func (v *validator) exactlyOne(p place, given map[string]bool) {
	var keys, all []string
	for key, is := range given {
		all = append(all, key)
		if is {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	slices.Sort(all)
	switch {
	case len(keys) == 0:
		v.bad(p, "give one of %s", strings.Join(all, ", "))
	case len(keys) > 1:
		v.bad(p, "%s can't stand together: make one entry for each", strings.Join(keys, " and "))
	}
}

func (v *validator) checkExpectations() {
	for i, e := range v.Expect {
		err := result.Check(e.Expression)
		var wrong *result.CompileError
		switch {
		case errors.As(err, &wrong):
			v.problems.add(e.Line, "expect[%d]: %s", i, wrong)
		case err != nil:
			v.problems.add(e.Line, "expect[%d]: %s", i, err)
		}
	}
}
