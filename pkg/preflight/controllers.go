// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Defaults of external-snapshotter's flags.
const (
	defaultQPS      = 5
	defaultBurst    = 10
	defaultWorkers  = 10
	defaultCallTime = time.Minute
	defaultRetryMax = 5 * time.Minute
)

const (
	// requestsPerSnapshot is what one snapshot costs each of the programs in API requests: kubernetes-csi/external-snapshotter#1344
	// measured 143 s for 80 snapshots at 5 requests a second.
	requestsPerSnapshot = 9
	// vendorQPS and vendorBurst are what vendors ship meanwhile (field case F16).
	vendorQPS, vendorBurst = 100, 200
	// longWait is from which estimate on the wait for the API limit is worth a warning.
	longWait = 20 * time.Second
)

// limits are what the flags of a program say.
type limits struct {
	qps      float64
	burst    int
	workers  int
	callTime time.Duration
	retryMax time.Duration
	// unread are flags whose value isn't known, such as those with a variable in them.
	unread []string
}

func limitsOf(w Workload) limits {
	l := limits{qps: defaultQPS, burst: defaultBurst, workers: defaultWorkers, callTime: defaultCallTime, retryMax: defaultRetryMax}
	words := append(append([]string{}, w.Command...), w.Args...)
	read := func(name string, parse func(string) error) {
		if value, ok := flagOf(words, name); ok && parse(value) != nil {
			l.unread = append(l.unread, "--"+name+"="+value)
		}
	}
	read("kube-api-qps", func(v string) (err error) { return store(&l.qps)(strconv.ParseFloat(v, 64)) })
	read("kube-api-burst", func(v string) (err error) { return store(&l.burst)(strconv.Atoi(v)) })
	read("worker-threads", func(v string) (err error) { return store(&l.workers)(strconv.Atoi(v)) })
	read("timeout", func(v string) (err error) { return store(&l.callTime)(time.ParseDuration(v)) })
	read("retry-interval-max", func(v string) (err error) { return store(&l.retryMax)(time.ParseDuration(v)) })
	return l
}

// store keeps a value that could be read, and the one before it otherwise.
func store[T any](into *T) func(T, error) error {
	return func(value T, err error) error {
		if err == nil {
			*into = value
		}
		return err
	}
}

// wait is about how long the API limit keeps that many snapshots waiting in all.
func (l limits) wait(snapshots int) time.Duration {
	requests := float64(snapshots*requestsPerSnapshot - l.burst)
	if requests <= 0 || l.qps <= 0 {
		return 0
	}
	return time.Duration(requests / l.qps * float64(time.Second)).Round(time.Second)
}

// object names a workload for people.
func (w Workload) object() string { return fmt.Sprintf("%s %s/%s", w.Kind, w.Namespace, w.Name) }

// checkControllers looks at the snapshot-controller.
func checkControllers(s *State) []Finding {
	if s.Workloads.Err != nil {
		return notReadable(Info, "Deployments, StatefulSets and DaemonSets", s.Workloads.Err,
			ruleLine("apps", []string{"deployments", "statefulsets", "daemonsets"}, []string{"get", "list"}))
	}
	volumes := 0
	for _, count := range s.Volumes.Value.CSI {
		volumes += count
	}
	var out []Finding
	found := false
	for _, w := range s.Workloads.Value {
		if w.Program == SnapshotController {
			found = true
			out = append(out, checkRunning(w)...)
			out = append(out, checkRate(w, volumes)...)
		}
	}
	if !found && volumes > 0 {
		out = append(out, Finding{
			Severity: Warning, Reason: "SnapshotControllerNotFound", Object: "snapshot-controller",
			Message: "No Deployment, StatefulSet or DaemonSet runs the snapshot-controller: unless the provider of the cluster runs it out of sight, no snapshot is ever taken.",
			Fix:     "kubectl kustomize https://github.com/kubernetes-csi/external-snapshotter/deploy/kubernetes/snapshot-controller | kubectl -n kube-system apply -f -",
		})
	}
	return out
}

func checkRunning(w Workload) []Finding {
	if w.Ready > 0 {
		return nil
	}
	return []Finding{{
		Severity: Error, Reason: "SnapshotterNotRunning", Object: w.object(),
		Message: fmt.Sprintf("%s, which runs the %s, has no ready pod (%d wanted): snapshots wait for it until their timeout.", w.object(), w.Program, w.Wanted),
		Fix:     fmt.Sprintf("kubectl -n %s describe %s %s", w.Namespace, strings.ToLower(w.Kind), w.Name),
	}}
}

// checkRate estimates what the program's own limit of API requests costs.
func checkRate(w Workload, snapshots int) []Finding {
	l := limitsOf(w)
	var out []Finding
	if len(l.unread) > 0 {
		out = append(out, Finding{
			Severity: Info, Reason: "NotReadable", Object: w.object(),
			Message: fmt.Sprintf("The value of %s in container %s of %s can't be read; the default is assumed.", strings.Join(l.unread, ", "), w.Container, w.object()),
		})
	}
	wait := l.wait(snapshots)
	facts := fmt.Sprintf("The %s in %s may make %g API requests a second (burst %d) and works on %d snapshots at a time: %d snapshots at once wait about %s for it, "+
		"whatever the storage needs (kubernetes-csi/external-snapshotter#1344)", w.Program, w.object(), l.qps, l.burst, l.workers, snapshots, wait)
	if wait < longWait || l.qps >= vendorQPS {
		return append(out, Finding{Severity: Info, Reason: "APIRate", Object: w.object(), Message: facts + "."})
	}
	return append(out, Finding{
		Severity: Warning, Reason: "LowAPIRate", Object: w.object(), Message: facts + ".",
		Fix: patchFlags(w, "kube-api-qps", strconv.Itoa(vendorQPS), "kube-api-burst", strconv.Itoa(vendorBurst)),
	})
}

// patchFlags writes the command that sets flags of a container, given as names and values in turn.
func patchFlags(w Workload, pairs ...string) string {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	base := fmt.Sprintf("/spec/template/spec/containers/%d/", w.Index)
	var operations []operation
	var added []string
	for i := 0; i+1 < len(pairs); i += 2 {
		flag := "--" + pairs[i] + "=" + pairs[i+1]
		replaced := false
		for field, words := range map[string][]string{"args": w.Args, "command": w.Command} {
			at, _, ok := locateFlag(words, pairs[i])
			if !ok {
				continue
			}
			value := flag
			if !strings.HasPrefix(words[at], "-") {
				value = pairs[i+1] // the value stands in a word of its own
			}
			operations = append(operations, operation{"replace", base + field + "/" + strconv.Itoa(at), value})
			replaced = true
			break
		}
		if !replaced {
			added = append(added, flag)
		}
	}
	if len(w.Args) == 0 && len(added) > 0 {
		operations = append(operations, operation{"add", base + "args", added})
		added = nil
	}
	for _, flag := range added {
		operations = append(operations, operation{"add", base + "args/-", flag})
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return "" // strings always encode
	}
	return fmt.Sprintf("kubectl -n %s patch %s %s --type=json -p '%s'", w.Namespace, strings.ToLower(w.Kind), w.Name, patch)
}
