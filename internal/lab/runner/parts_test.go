// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware-tanzu/velero/pkg/util/results"

	"github.com/velero-clipper/clipper/internal/lab/kubelet"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

func TestBoardWaitsForAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		b := newBoard()
		done := make(chan error)
		go func() {
			done <- b.wait(t.Context(), func(rec *recording) bool { return rec.starts == 2 })
		}()
		b.update(func(rec *recording) { rec.starts++ })
		synctest.Wait()
		g.Expect(done).NotTo(Receive())
		b.update(func(rec *recording) { rec.starts++ })
		g.Expect(<-done).To(Succeed())
	})
}

func TestBoardWaitEndsWithTheCauseOfTheContext(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, errTimeout)
	defer cancel()
	err := newBoard().wait(ctx, func(*recording) bool { return false })
	g.Expect(err).To(MatchError(errTimeout))

	var outcome *unfinishedError
	g.Expect(errors.As(unfinished(err, "backup %s", "b1"), &outcome)).To(BeTrue())
	g.Expect(outcome).To(MatchError("waiting for backup b1: the scenario's timeout passed"))
	g.Expect(unfinished(context.Canceled, "backup b1")).To(Equal(context.Canceled), "an interrupt is no outcome")
}

// TestRest follows leftovers that come back once: rest is only reached when they stay away for the quiet time.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		s := &scenario.Scenario{Settle: scenario.Settle{Quiet: scenario.Duration(time.Second), Limit: scenario.Duration(time.Minute)}}
		r := &run{scenario: s, board: newBoard(), lab: &lab{}}
		add := func() {
			r.board.update(func(rec *recording) { rec.contents["c"] = &contentRecord{name: "c"} })
		}
		remove := func() {
			r.board.update(func(rec *recording) { rec.contents["c"].deleted = time.Now() })
		}
		add()
		begin := time.Now()
		done := make(chan error)
		go func() { done <- r.rest(t.Context()) }()
		for _, step := range []struct {
			after time.Duration
			do    func()
		}{{3 * time.Second, remove}, {500 * time.Millisecond, add}, {time.Second, remove}} {
			g.Expect(pause(t.Context(), step.after)).To(Succeed())
			step.do()
		}
		g.Expect(<-done).To(Succeed())
		g.Expect(time.Since(begin)).To(Equal(5500 * time.Millisecond))
	})
}

func TestRestGivesUpAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		s := &scenario.Scenario{Settle: scenario.Settle{Quiet: scenario.Duration(time.Second), Limit: scenario.Duration(time.Minute)}}
		r := &run{scenario: s, board: newBoard(), lab: &lab{}}
		r.board.update(func(rec *recording) { rec.snapshots["s"] = &snapshotRecord{name: "s"} })
		begin := time.Now()
		g.Expect(r.rest(t.Context())).To(Succeed())
		g.Expect(time.Since(begin)).To(Equal(time.Minute))
	})
}

func TestEngineArgs(t *testing.T) {
	tests := []struct {
		name    string
		engine  string
		args    []string
		hasFlag bool
		want    []string
		err     string
	}{
		{"parallel", scenario.EngineParallel, []string{"--csi-snapshot-parallelism=7"}, true, []string{"--csi-snapshot-parallelism=7"}, ""},
		{"parallel by default", scenario.EngineParallel, nil, true, nil, ""},
		{"parallel on a binary without it", scenario.EngineParallel, nil, false, nil, "--engine stock"},
		{"stock", scenario.EngineStock, []string{"--log-level=debug"}, true, []string{"--log-level=debug", "--csi-snapshot-parallelism=0"}, ""},
		{"stock wins over the scenario", scenario.EngineStock, []string{"--csi-snapshot-parallelism=7", "-x"}, true, []string{"-x", "--csi-snapshot-parallelism=0"}, ""},
		{"two words", scenario.EngineStock, []string{"--csi-snapshot-parallelism", "7", "-x"}, true, []string{"-x", "--csi-snapshot-parallelism=0"}, ""},
		{"stock on any binary", scenario.EngineStock, []string{"--csi-snapshot-parallelism=7"}, false, nil, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := engineArgs(scenario.Server{Engine: test.engine, Args: test.args}, test.hasFlag)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func TestOutcomesOfCommands(t *testing.T) {
	g := NewWithT(t)
	s, err := scenario.Parse("s.yaml", []byte(`
name: s
workload:
- namespace: app
  pods: [{name: a, hooks: {pre: {command: [freeze, now], takes: 50ms, exit: 3}, post: {command: thaw}}}]
commands:
- {match: app/b, command: freeze, exit: 1}
- {command: freeze, takes: 1s}
backups: [{name: b1}]
`))
	g.Expect(err).NotTo(HaveOccurred())
	o := outcomesOf(s, s.Expand())
	run := func(pod string, command ...string) kubelet.Result {
		return o.run(t.Context(), kubelet.ExecCall{Namespace: "app", Pod: pod, Command: command})
	}
	g.Expect(run("a", "freeze", "now")).To(Equal(kubelet.Result{Takes: 50 * time.Millisecond, ExitCode: 3}))
	g.Expect(run("a", "freeze")).To(Equal(kubelet.Result{Takes: time.Second}), "not the hook's command")
	g.Expect(run("b", "freeze")).To(Equal(kubelet.Result{ExitCode: 1}))
	g.Expect(run("b", "ls")).To(Equal(kubelet.Result{}))
}

func TestHookAnnotations(t *testing.T) {
	g := NewWithT(t)
	pod := scenario.WorkloadPod{Namespace: "app", Pod: scenario.Pod{
		Annotations: map[string]string{"own": "1"},
		Hooks: scenario.Hooks{
			Pre:  &scenario.Hook{Command: scenario.Command{"sh", "-c", "sync"}, Container: "db", OnError: "Fail", Timeout: scenario.Duration(time.Minute)},
			Post: &scenario.Hook{Command: scenario.Command{"thaw"}},
		},
	}}
	annotations, err := hookAnnotations(pod)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(annotations).To(Equal(map[string]string{
		"own":                                 "1",
		"pre.hook.backup.velero.io/command":   `["sh","-c","sync"]`,
		"pre.hook.backup.velero.io/container": "db",
		"pre.hook.backup.velero.io/on-error":  "Fail",
		"pre.hook.backup.velero.io/timeout":   "1m0s",
		"post.hook.backup.velero.io/command":  `["thaw"]`,
	}))
	g.Expect(pod.Annotations).To(HaveLen(1), "the template stays as it is")
}

func TestLogLines(t *testing.T) {
	g := NewWithT(t)
	failures, warnings := logLines([]byte(`time="x" level=info msg="level=fine"
time="x" level=error msg="bad"
{"level":"warning","msg":"hm"}
time="x" level=warning msg="careful"
`))
	g.Expect(failures).To(ConsistOf(ContainSubstring("bad")))
	g.Expect(warnings).To(ConsistOf(ContainSubstring("hm"), ContainSubstring("careful")))
}

func TestTarNames(t *testing.T) {
	g := NewWithT(t)
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, name := range []string{"b.json", "a.json"} {
		g.Expect(archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644})).To(Succeed())
	}
	g.Expect(archive.WriteHeader(&tar.Header{Name: "dir/", Typeflag: tar.TypeDir})).To(Succeed())
	g.Expect(archive.Close()).To(Succeed())
	g.Expect(tarNames(buffer.Bytes())).To(Equal([]string{"a.json", "b.json"}))
	g.Expect(tarNames([]byte("nonsense"))).To(BeEmpty())
}

func TestMessages(t *testing.T) {
	var outcome map[string]results.Result
	g := NewWithT(t)
	g.Expect(json.Unmarshal([]byte(`{"errors":{"velero":["v"],"cluster":["c"],"namespaces":{"app":["a1","a2"]}}}`), &outcome)).To(Succeed())
	g.Expect(messages(outcome["errors"])).To(Equal([]string{"a1", "a2", "c", "v"}))
	g.Expect(messages(outcome["warnings"])).To(BeEmpty())
}

func TestObjectOfKind(t *testing.T) {
	g := NewWithT(t)
	for _, kind := range []string{"Pod", "VolumeSnapshot", "VolumeSnapshotContent", "PersistentVolumeClaim", "Backup"} {
		object, err := objectOfKind(kind)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(object).NotTo(BeNil())
	}
	_, err := objectOfKind("Nothing")
	g.Expect(err).To(MatchError(ContainSubstring(`"Nothing"`)))
}
