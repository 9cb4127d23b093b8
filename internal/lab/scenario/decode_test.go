// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// seed is the example of the format.
const seed = `name: seed-example
cluster:
  snapshotter: {workers: 10, qps: 100, burst: 200}
storage:
  drivers:
  - name: lab.csi.clipper.dev
    behaviour:
    - {match: "app/plain-*", cut: 2s, jitter: 100ms}
    - {match: "*", fail: {code: Internal, message: no, times: 2}, cut: 1s}
workload:
- namespace: app
  pods:
  - {name: a, pvcs: 3, hooks: {pre: {command: freeze, takes: 50ms}, post: {command: [thaw, --all]}}}
  - {name: b, pvcs: 2, hooks: {pre: {command: freeze}, post: {command: thaw}}}
  - {name: "plain-{i}", count: 20, pvcs: 1}
server: {engine: parallel, args: ["--csi-snapshot-parallelism=50"]}
backups:
- {name: b1, spec: {includedNamespaces: [app], csiSnapshotTimeout: 1m, labelSelector: {matchLabels: {x: y}}}}
events:
- {when: {cuts: 5}, do: {kill: server}}
- {after: 2s, do: {start: server}}
then:
- restore: {backup: b1, spec: {namespaceMapping: {app: app2}}}
- deleteBackup: b1
expect:
- result.backups.b1.phase == "Completed"
- result.backups.b1.secondsInProgress < 1.3 * result.floorSeconds + 2.0
- result.leftovers.total == 0
`

func TestParse(t *testing.T) {
	g := NewWithT(t)
	s, err := scenario.Parse("seed.yaml", []byte(seed))
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(s.Name).To(Equal("seed-example"))
	g.Expect(s.Storage.Drivers[0].Behaviour[0].Cut.Duration()).To(Equal(2 * time.Second))
	g.Expect(s.Storage.Drivers[0].Behaviour[1].Fail.Times).To(Equal(2))
	g.Expect(s.Workload[0].Pods[0].Hooks.Post.Command).To(Equal(scenario.Command{"thaw", "--all"}))
	g.Expect(s.Backups[0].Spec.CSISnapshotTimeout.Duration).To(Equal(time.Minute))
	g.Expect(s.Backups[0].Spec.LabelSelector.MatchLabels).To(HaveKeyWithValue("x", "y"))
	g.Expect(s.Events[0].When.Cuts).To(Equal(5))
	g.Expect(s.Events[1].After.Duration()).To(Equal(2 * time.Second))
	g.Expect(s.Then[0].Restore.Spec.NamespaceMapping).To(HaveKeyWithValue("app", "app2"))
	g.Expect(s.Expect[2].Line).To(Equal(28))
}

func TestParseFillsInDefaults(t *testing.T) {
	g := NewWithT(t)
	s, err := scenario.Parse("small.yaml", []byte(`
name: small
workload:
- {namespace: app, pods: [{name: a, pvcs: 1}]}
backups:
- {name: b1, spec: {includedNamespaces: [app]}}
events:
- do: {api: {answer: 429, verbs: [create], resources: [volumesnapshots], for: 10s}}
then:
- restore: {backup: b1}
`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Cluster.Snapshotter).To(Equal(scenario.Snapshotter{Workers: 10, QPS: 100, Burst: 200, Timeout: scenario.Duration(time.Minute)}))
	g.Expect(s.Cluster.Authorization).To(Equal(scenario.AlwaysAllow))
	g.Expect(s.Storage.Drivers).To(HaveLen(1))
	g.Expect(s.Storage.Drivers[0].Name).To(Equal(scenario.DefaultDriver))
	g.Expect(*s.Storage.Drivers[0].SnapshotClass).To(BeTrue())
	g.Expect(s.Storage.Drivers[0].Behaviour).To(ConsistOf(scenario.Behaviour{Match: "*", Cut: scenario.Duration(2 * time.Second)}))
	g.Expect(s.Workload[0].Pods[0].Driver).To(Equal(scenario.DefaultDriver))
	g.Expect(s.Workload[0].Pods[0].Containers).To(ConsistOf("app"))
	g.Expect(s.Server.Engine).To(Equal(scenario.EngineParallel))
	g.Expect(*s.Floor).To(BeTrue())
	g.Expect(s.Events[0].Do.API.Of).To(Equal(scenario.TargetServer))
	g.Expect(s.Then[0].Restore.Name).To(Equal("b1-restore"))
	g.Expect(s.Then[0].Restore.Spec.BackupName).To(Equal("b1"))
}

// TestParseRefuses changes the seed in one place each time and looks for the line, the path and the way out.
func TestParseRefuses(t *testing.T) {
	tests := []struct {
		name, old, new string
		wants          []string
	}{
		{"an unknown key", "workers: 10", "worker: 10", []string{"seed.yaml: line 3:", `unknown key "worker" in cluster.snapshotter`, `did you mean "workers"?`}},
		{"an unknown key at the top", "expect:", "expects:", []string{"line 25:", `unknown key "expects"`, `did you mean "expect"?`}},
		{"a key like no other", "jitter: 100ms", "zzzzqqqqxxxx: 1", []string{"line 8:", "known are appendRequestID, capacity, cut, fail"}},
		{"an unknown key in a list element", "pvcs: 2, hooks", "volumes: 2, hooks", []string{"line 14:", "in workload[0].pods[1]"}},
		{"an unknown key in Velero's spec", "csiSnapshotTimeout", "csiSnapshotTimout", []string{"line 18:", "in backups[0].spec", `did you mean "csiSnapshotTimeout"?`}},
		{"an unknown key below Velero's spec", "matchLabels", "matchLabel", []string{"line 18:", "in backups[0].spec.labelSelector"}},
		{"a key given twice", "name: seed-example\n", "name: seed-example\nname: other\n", []string{"line 2:", "name is given twice"}},
		{"a duration without a unit", "cut: 2s", "cut: 2", []string{"line 8:", `"2" is not a duration`, "such as 2s"}},
		{"a duration in Velero's spec", "csiSnapshotTimeout: 1m", "csiSnapshotTimeout: soon", []string{"line 18:", "soon"}},
		{"a negative duration", "after: 2s", "after: -2s", []string{"line 21:", "negative"}},
		{"a word for a number", "pvcs: 3", "pvcs: three", []string{"line 13:", "three"}},
		{"a name Kubernetes refuses", "name: b, pvcs", "name: B_b, pvcs", []string{"line 14:", "workload[0].pods[1].name", "lower case"}},
		{"a count without a mark", `"plain-{i}"`, "plain", []string{"line 15:", "must hold {i}", `"plain-{i}"`}},
		{"a mark without a count", "count: 20, ", "", []string{"line 15:", "a count is needed"}},
		{"two pods of one name", "name: b, pvcs", "name: a, pvcs", []string{"two pods of namespace app are called a"}},
		{"two claims of one name", "- namespace: app\n", "- namespace: app\n  pvcs: [{name: a-0}]\n", []string{"line 11:", "two claims of namespace app are called a-0"}},
		{"a driver that is not there", `"plain-{i}", count: 20`, `"plain-{i}", driver: other, count: 20`, []string{"line 15:", `no driver "other"`, "declared are lab.csi.clipper.dev"}},
		{"a claim that is not there", "name: b, pvcs: 2", "name: b, mounts: [shared]", []string{"pod b mounts the claim shared", "declare it under pvcs"}},
		{"an unknown gRPC code", "code: Internal", "code: Intern", []string{"line 9:", "storage.drivers[0].behaviour[1].fail.code", "ResourceExhausted"}},
		{"an unknown engine", "engine: parallel", "engine: fast", []string{"line 16:", "server.engine", "parallel, stock"}},
		{"the same pre and post command", "post: {command: thaw}", "post: {command: freeze}", []string{"line 14:", "must differ"}},
		{"an event on a backup that is not there", "{cuts: 5}", "{phase: {b2: InProgress}}", []string{"line 20:", `no backup "b2"`, "declared are b1"}},
		{"an empty condition", "{cuts: 5}", "{}", []string{"line 20:", "condition is empty"}},
		{"two actions in one", "{kill: server}", "{kill: server, start: server}", []string{"line 20:", "kill and start can't stand together"}},
		{"no action", "{kill: server}", "{}", []string{"line 20:", "give one of api, behaviour, create, delete, kill"}},
		{"something that can't be stopped", "{kill: server}", "{stop: server}", []string{"line 20:", "events[0].do.stop", "csi-snapshotter, snapshot-controller"}},
		{"a fault of the API without an effect", "{kill: server}", "{api: {for: 2s}}", []string{"line 20:", "events[0].do.api", "give one of answer or slow, clear, cutWatches, expireWatches"}},
		{"two faults in one", "{kill: server}", "{api: {answer: 429, cutWatches: true}}", []string{"line 20:", "answer or slow and cutWatches can't stand together"}},
		{"an answer that is no error", "{kill: server}", "{api: {answer: 200}}", []string{"line 20:", "400 to 599"}},
		{"an unknown verb", "{kill: server}", "{api: {answer: 500, verbs: [post]}}", []string{"line 20:", "do.api.verbs[0]", "deletecollection"}},
		{"an unknown client", "{kill: server}", "{api: {answer: 500, of: kubelet}}", []string{"line 20:", "do.api.of", "server, snapshot-controller"}},
		{"a part of a second in a header", "{kill: server}", "{api: {answer: 503, retryAfter: 1500ms}}", []string{"line 20:", "whole seconds"}},
		{"less than no old snapshots", "cluster:\n", "cluster:\n  oldSnapshots: -1\n", []string{"line 3:", "cluster.oldSnapshots"}},
		{"a class that is there", "- name: lab.csi.clipper.dev\n", "- name: lab.csi.clipper.dev\n    moreClasses: [{name: lab.csi.clipper.dev}]\n", []string{"line 7:", "is there already"}},
		{"an object without a name", "{kill: server}", "{create: {apiVersion: v1, kind: ConfigMap, metadata: {namespace: app}}}", []string{"line 20:", "events[0].do.create", "metadata with a name"}},
		{"a patch of nothing", "{kill: server}", "{patch: {kind: Backup, name: b1}}", []string{"line 20:", "events[0].do.patch", "merge"}},
		{"a next server of an unknown engine", "{kill: server}", "{nextServer: {engine: fast}}", []string{"line 20:", "events[0].do.nextServer.engine"}},
		{"a second cluster that is not there", "- deleteBackup: b1", "- {in: second, deleteBackup: b1}", []string{"line 24:", "then[1].in", "secondCluster"}},
		{"a cluster that can't be", "- deleteBackup: b1", "- {in: third, deleteBackup: b1}", []string{"line 24:", "first, second"}},
		{"a wait for nothing", "- deleteBackup: b1", "- await: {}", []string{"line 24:", "condition is empty"}},
		{"a wait for a backup that is not there", "- deleteBackup: b1", "- await: {gone: [b2]}", []string{"line 24:", `no backup "b2"`}},
		{"a backup that waits twice", "- {name: b1, spec:", "- {name: b1, after: b1, when: {cuts: 1}, spec:", []string{"line 18:", "after and when can't stand together"}},
		{"something that can't be killed", "{kill: server}", "{kill: etcd}", []string{"line 20:", "events[0].do.kill", "use one of server"}},
		{"a restore of nothing", "backup: b1", "backup: b9", []string{"line 23:", "then[0].restore.backup", `no backup "b9"`}},
		{"an expectation with a wrong field", "result.leftovers.total", "result.leftovers.totl", []string{"line 28:", "expect[2]", "column 17", "undefined field 'totl'"}},
		{"an expectation that is no expression", "result.leftovers.total == 0", "result.leftovers.total ==", []string{"line 28:", "expect[2]", "column"}},
		{"no backup", "- {name: b1, spec: {includedNamespaces: [app], csiSnapshotTimeout: 1m, labelSelector: {matchLabels: {x: y}}}}\n", "", []string{"needs a backup", "{name: b1"}},
		{"a second document", "- result.leftovers.total == 0\n", "- result.leftovers.total == 0\n---\nname: two\n", []string{"one file holds one scenario"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(seed).To(ContainSubstring(test.old))
			_, err := scenario.Parse("seed.yaml", []byte(strings.Replace(seed, test.old, test.new, 1)))
			g.Expect(err).To(HaveOccurred())
			g.Expect(err.Error()).To(HavePrefix("seed.yaml: "))
			for _, want := range test.wants {
				g.Expect(err.Error()).To(ContainSubstring(want))
			}
		})
	}
}

func TestParseReadsObjects(t *testing.T) {
	g := NewWithT(t)
	s, err := scenario.Parse("objects.yaml", []byte(`
name: objects
workload:
- {namespace: app, pvcs: [{name: static, storageClass: ""}, {name: usual}]}
manifests:
- {apiVersion: v1, kind: ConfigMap, metadata: {namespace: app, name: a}, data: {x: y}}
server: {engine: stock}
secondCluster: {}
backups:
- {name: b1, spec: {includedNamespaces: [app]}}
- {name: b2, when: {backups: 1, phase: {b1: terminal}}, phase: ReadyToStart, spec: {includedNamespaces: [app]}}
events:
- do: {nextServer: {args: ["--log-level=debug"]}}
- do: {patch: {kind: Backup, namespace: velero, name: b1, merge: {metadata: {labels: {a: b}}}}}
then:
- await: {phase: {"nightly-*": Completed}, gone: [b1]}
- {in: second, await: {phase: {b2: Completed}}}
`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Workload[0].PVCs[0].StorageClass).To(HaveValue(BeEmpty()))
	g.Expect(s.Workload[0].PVCs[1].StorageClass).To(BeNil())
	g.Expect(s.Manifests[0]["metadata"]).To(Equal(map[string]any{"namespace": "app", "name": "a"}))
	g.Expect(s.Backups[1].When.Backups).To(Equal(1))
	g.Expect(s.Events[0].Do.NextServer.Engine).To(Equal(scenario.EngineStock), "as the first")
	g.Expect(s.Second.Server.Engine).To(Equal(scenario.EngineParallel))
	g.Expect(s.Then[0].In).To(Equal(scenario.InFirst))
	g.Expect(s.Then[1].In).To(Equal(scenario.InSecond))
}

func TestParseNamesEveryMistake(t *testing.T) {
	g := NewWithT(t)
	broken := strings.NewReplacer("{kill: server}", "{kill: etcd}", "engine: parallel", "engine: fast").Replace(seed)
	_, err := scenario.Parse("seed.yaml", []byte(broken))
	g.Expect(err).To(HaveOccurred())
	g.Expect(strings.Split(err.Error(), "\n")).To(HaveLen(2))
}

func TestParseRefusesWhatIsNoMapping(t *testing.T) {
	for content, want := range map[string]string{
		"":         "the file is empty",
		"- a\n":    "a scenario is a mapping",
		"name: [a": "line 1",
	} {
		t.Run(want, func(t *testing.T) {
			_, err := scenario.Parse("x.yaml", []byte(content))
			NewWithT(t).Expect(err).To(MatchError(And(HavePrefix("x.yaml: "), ContainSubstring(want))))
		})
	}
}
