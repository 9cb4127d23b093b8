// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

func TestResolveNamesSpecAndFieldOfABadSelector(t *testing.T) {
	g := NewWithT(t)
	bad := specOf("second", nil, nil)
	bad.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "tier", Operator: "Near"},
	}}
	_, err := Resolve([]velerov1.BackupResourceHookSpec{specOf("first", nil, nil), bad}, helper())
	g.Expect(err).To(MatchError(SatisfyAll(
		ContainSubstring(`spec.hooks.resources[1] "second": labelSelector:`), ContainSubstring("Near"))))
}

func TestAnnotationHooks(t *testing.T) {
	hook := func(command []string, change func(*velerov1.ExecHook)) []Hook {
		h := Hook{Source: SourceAnnotation, Exec: velerov1.ExecHook{Command: command}}
		if change != nil {
			change(&h.Exec)
		}
		return []Hook{h}
	}
	tests := []struct {
		name        string
		annotations []string
		phase       Phase
		want        []Hook
		warning     string
	}{
		{name: "none", phase: PhasePre, annotations: []string{"other", "x"}},
		{name: "an empty command is no hook", phase: PhasePre, annotations: []string{"pre.hook.backup.velero.io/command", ""}},
		{name: "the other phase", phase: PhasePost, annotations: []string{"pre.hook.backup.velero.io/command", "freeze"}},
		{name: "a string is one argument", phase: PhasePre,
			annotations: []string{"pre.hook.backup.velero.io/command", "fsfreeze --freeze /data"},
			want:        hook([]string{"fsfreeze --freeze /data"}, nil)},
		{name: "a JSON list", phase: PhasePost,
			annotations: []string{"post.hook.backup.velero.io/command", `["/bin/sh", "-c", "sync && thaw"]`},
			want:        hook([]string{"/bin/sh", "-c", "sync && thaw"}, nil)},
		{name: "a broken JSON list is one argument", phase: PhasePre,
			annotations: []string{"pre.hook.backup.velero.io/command", `["freeze", 1]`},
			want:        hook([]string{`["freeze", 1]`}, nil)},
		{name: "a shell test is one argument", phase: PhasePre,
			annotations: []string{"pre.hook.backup.velero.io/command", `[ -f /data ]`},
			want:        hook([]string{`[ -f /data ]`}, nil)},
		{name: "an empty JSON list is a hook without a command", phase: PhasePre,
			annotations: []string{"pre.hook.backup.velero.io/command", `[]`},
			want:        hook([]string{}, nil)},
		{name: "everything set", phase: PhasePost,
			annotations: []string{
				"post.hook.backup.velero.io/command", "thaw", "post.hook.backup.velero.io/container", "side",
				"post.hook.backup.velero.io/on-error", "Continue", "post.hook.backup.velero.io/timeout", "1m30s",
			},
			want: hook([]string{"thaw"}, func(e *velerov1.ExecHook) {
				e.Container, e.OnError, e.Timeout.Duration = "side", velerov1.HookErrorModeContinue, 90*time.Second
			})},
		{name: "an unknown on-error is unset", phase: PhasePre,
			annotations: []string{"pre.hook.backup.velero.io/command", "freeze", "pre.hook.backup.velero.io/on-error", "fail"},
			want:        hook([]string{"freeze"}, nil)},
		{name: "a bad timeout is warned of", phase: PhasePre,
			annotations: []string{"pre.hook.backup.velero.io/command", "freeze", "pre.hook.backup.velero.io/timeout", "30"},
			want:        hook([]string{"freeze"}, nil),
			warning:     `Annotation pre.hook.backup.velero.io/timeout: "30" is no duration`},
		{name: "a negative timeout is warned of", phase: PhasePre,
			annotations: []string{"pre.hook.backup.velero.io/command", "freeze", "pre.hook.backup.velero.io/timeout", "-5s"},
			want:        hook([]string{"freeze"}, nil),
			warning:     "negative timeout -5s"},
		{name: "legacy keys", phase: PhasePre,
			annotations: []string{
				"hook.backup.velero.io/command", "freeze", "hook.backup.velero.io/container", "side",
				"hook.backup.velero.io/on-error", "Fail", "hook.backup.velero.io/timeout", "5s",
			},
			want: hook([]string{"freeze"}, func(e *velerov1.ExecHook) {
				e.Container, e.OnError, e.Timeout.Duration = "side", velerov1.HookErrorModeFail, 5*time.Second
			})},
		{name: "legacy keys are no post hook", phase: PhasePost, annotations: []string{"hook.backup.velero.io/command", "freeze"}},
		{name: "a prefixed command hides the legacy keys", phase: PhasePre,
			annotations: []string{
				"pre.hook.backup.velero.io/command", "new", "hook.backup.velero.io/command", "old",
				"hook.backup.velero.io/container", "side",
			},
			want: hook([]string{"new"}, nil)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			log, written := newLog()
			got := (*Set)(nil).Hooks(newPod("a", annotated(tt.annotations...)), tt.phase, log)
			g.Expect(got).To(Equal(tt.want))
			if tt.warning == "" {
				g.Expect(written.AllEntries()).To(BeEmpty())
				return
			}
			g.Expect(lines(written, logrus.WarnLevel)).To(ConsistOf(ContainSubstring(tt.warning)))
		})
	}
}

func TestSpecHooksInOrder(t *testing.T) {
	g := NewWithT(t)
	log, written := newLog()
	first := specOf("first", []velerov1.BackupResourceHook{exec("a", ""), {}, exec("b", velerov1.HookErrorModeFail)}, nil)
	first.PreHooks[2].Exec.Timeout = metav1.Duration{Duration: -time.Second}
	second := specOf("second", []velerov1.BackupResourceHook{exec("c", "")}, []velerov1.BackupResourceHook{exec("d", "")})
	set := mustResolve(first, second)

	got := set.Hooks(newPod("a"), PhasePre, log)
	g.Expect(got).To(Equal([]Hook{
		{Source: SourceSpec, Name: "first", Index: 0, Exec: velerov1.ExecHook{Command: []string{"a"}}},
		{Source: SourceSpec, Name: "first", Index: 2,
			Exec: velerov1.ExecHook{Command: []string{"b"}, OnError: velerov1.HookErrorModeFail}},
		{Source: SourceSpec, Name: "second", Index: 0, Exec: velerov1.ExecHook{Command: []string{"c"}}},
	}))
	g.Expect(lines(written, logrus.WarnLevel)).To(ConsistOf(ContainSubstring(`Hook "first" of the backup's spec`)))

	got[0].Exec.Command[0] = "changed"
	g.Expect(set.Hooks(newPod("a"), PhasePre, log)[0].Exec.Command).To(Equal([]string{"a"}), "hooks are copies")
}

func TestAnnotationReplacesSpecHooksOfItsPhaseOnly(t *testing.T) {
	g := NewWithT(t)
	log, _ := newLog()
	set := mustResolve(specOf("s", []velerov1.BackupResourceHook{exec("spec-pre", "")},
		[]velerov1.BackupResourceHook{exec("spec-post", "")}))
	pod := newPod("a", annotated("pre.hook.backup.velero.io/command", "mine"))
	g.Expect(set.Hooks(pod, PhasePre, log)).To(ConsistOf(HaveField("Exec.Command", []string{"mine"})))
	g.Expect(set.Hooks(pod, PhasePost, log)).To(ConsistOf(HaveField("Exec.Command", []string{"spec-post"})))
}

func TestWhichPodsASpecSelects(t *testing.T) {
	tests := []struct {
		name   string
		change func(*velerov1.BackupResourceHookSpec)
		pod    *unstructured.Unstructured
		want   bool
	}{
		{name: "everything unset", pod: newPod("a"), want: true},
		{name: "included namespace", change: func(s *velerov1.BackupResourceHookSpec) { s.IncludedNamespaces = []string{"app"} },
			pod: newPod("a"), want: true},
		{name: "other namespace", change: func(s *velerov1.BackupResourceHookSpec) { s.IncludedNamespaces = []string{"app"} },
			pod: newPod("a", inNamespace("db")), want: false},
		{name: "namespace pattern", change: func(s *velerov1.BackupResourceHookSpec) { s.IncludedNamespaces = []string{"a*"} },
			pod: newPod("a"), want: true},
		{name: "excluded namespace", change: func(s *velerov1.BackupResourceHookSpec) { s.ExcludedNamespaces = []string{"app"} },
			pod: newPod("a"), want: false},
		{name: "pods by short name", change: func(s *velerov1.BackupResourceHookSpec) { s.IncludedResources = []string{"po"} },
			pod: newPod("a"), want: true},
		{name: "another resource", change: func(s *velerov1.BackupResourceHookSpec) { s.IncludedResources = []string{"deployments"} },
			pod: newPod("a"), want: false},
		{name: "a resource that isn't known", change: func(s *velerov1.BackupResourceHookSpec) { s.IncludedResources = []string{"unheard"} },
			pod: newPod("a"), want: false},
		{name: "pods excluded", change: func(s *velerov1.BackupResourceHookSpec) { s.ExcludedResources = []string{"pods"} },
			pod: newPod("a"), want: false},
		{name: "label matches", change: func(s *velerov1.BackupResourceHookSpec) {
			s.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}
		}, pod: newPod("a", labelled("tier", "db")), want: true},
		{name: "label differs", change: func(s *velerov1.BackupResourceHookSpec) {
			s.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}
		}, pod: newPod("a", labelled("tier", "web")), want: false},
		{name: "an empty selector selects all", change: func(s *velerov1.BackupResourceHookSpec) {
			s.LabelSelector = &metav1.LabelSelector{}
		}, pod: newPod("a"), want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			log, _ := newLog()
			spec := specOf("s", []velerov1.BackupResourceHook{exec("x", "")}, nil)
			if tt.change != nil {
				tt.change(&spec)
			}
			set := mustResolve(spec)
			g.Expect(set.HasHooks(tt.pod)).To(Equal(tt.want))
			g.Expect(set.Hooks(tt.pod, PhasePre, log)).To(HaveLen(map[bool]int{true: 1, false: 0}[tt.want]))
		})
	}
}

func TestHasHooks(t *testing.T) {
	preOnly := specOf("s", []velerov1.BackupResourceHook{exec("x", "")}, nil)
	postOnly := specOf("s", nil, []velerov1.BackupResourceHook{exec("x", "")})
	nothing := specOf("s", []velerov1.BackupResourceHook{{}}, []velerov1.BackupResourceHook{{}})
	pre := annotated("pre.hook.backup.velero.io/command", "freeze")
	tests := []struct {
		name string
		set  *Set
		pod  *unstructured.Unstructured
		want bool
	}{
		{"nothing at all", nil, newPod("a"), false},
		{"pre annotation", nil, newPod("a", pre), true},
		{"post annotation", nil, newPod("a", annotated("post.hook.backup.velero.io/command", "thaw")), true},
		{"legacy annotation", nil, newPod("a", annotated("hook.backup.velero.io/command", "freeze")), true},
		{"annotation without a command", nil, newPod("a", annotated("pre.hook.backup.velero.io/container", "main")), false},
		{"pre spec hook", mustResolve(preOnly), newPod("a"), true},
		{"post spec hook", mustResolve(postOnly), newPod("a"), true},
		{"spec entries without a command", mustResolve(nothing), newPod("a"), false},
		{"pending pod", nil, newPod("a", pre, inPhase("Pending")), true},
		{"succeeded pod with annotation", nil, newPod("a", pre, inPhase("Succeeded")), false},
		{"failed pod with spec hook", mustResolve(preOnly), newPod("a", inPhase("Failed")), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			NewWithT(t).Expect(tt.set.HasHooks(tt.pod)).To(Equal(tt.want))
		})
	}
}
