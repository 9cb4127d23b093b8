// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/util/results"

	"github.com/velero-clipper/clipper/internal/lab/audit"
	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/result"
)

// artifacts are what a backup left in the object store.
type artifacts struct {
	tarball                      []string
	logErrors, logWarnings       []string
	resultErrors, resultWarnings []string
}

// collect turns everything that was seen into the result.
func (r *run) collect(ctx context.Context) (*result.Result, error) {
	var out *result.Result
	r.board.view(func(rec *recording) {
		rec.calls, rec.execs = r.driverCalls(rec.origin), r.executions(rec.origin)
		out = analyse(rec, r.scenario)
	})
	out.Engine = r.scenario.Server.Engine
	out.FloorSeconds = r.floor.Seconds()
	out.Unfinished = r.unfinished
	out.Restores, out.Deletions, out.Commands = r.restores, r.deletions, r.commands
	r.collectSecond(out)
	for name := range out.Backups {
		// Those that Velero itself made, by a schedule or the command line, are read only now.
		if r.artifacts[name] == nil {
			r.readArtifacts(name)
		}
	}
	for name, a := range r.artifacts {
		if b := out.Backups[name]; b != nil {
			b.Tarball, b.LogErrors, b.LogWarnings = nonNil(a.tarball), nonNil(a.logErrors), nonNil(a.logWarnings)
			b.ResultErrors, b.ResultWarnings = nonNil(a.resultErrors), nonNil(a.resultWarnings)
		}
	}
	for name, d := range r.lab.drivers {
		out.Drivers[name].Snapshots = len(d.Snapshots())
	}
	r.collectServer(out)
	if err := r.collectPlugins(out); err != nil {
		return nil, err
	}
	if err := r.collectAPI(out); err != nil {
		return nil, err
	}
	out.Leftovers = r.countLeftovers()
	var expressions []string
	for _, e := range r.scenario.Expect {
		expressions = append(expressions, e.Expression)
	}
	out.Failures = []result.Failure{}
	if !r.opts.FloorOnly {
		out.Failures = nonNil(result.Evaluate(expressions, out))
	}
	return out, ctx.Err()
}

// collectServer looks at memory and logs of the server.
func (r *run) collectServer(out *result.Result) {
	out.Server.StartError = r.startError
	if r.opts.Keep {
		out.Server.LogDir = r.opts.Dir
	}
	if r.server == nil {
		return
	}
	out.Server.Started = out.Server.Starts > 0
	out.Server.PeakMemoryBytesByStart = nonNil(r.server.peakMemory())
	out.Server.PeakMemoryBytes = slices.Max(append([]int{0}, out.Server.PeakMemoryBytesByStart...))
	for _, log := range r.server.logPaths() {
		// A log that can't be read holds no report.
		content, _ := os.ReadFile(log)
		out.Server.DataRaces += bytes.Count(content, []byte("WARNING: DATA RACE"))
	}
}

// collectAPI counts the server's requests between the first backup and the last phase of the last one.
func (r *run) collectAPI(out *result.Result) error {
	out.API = result.API{ByVerb: map[string]int{}, ByResource: map[string]int{}, Requests: map[string]int{}, Forbidden: map[string]int{}}
	if out.StartedAt.IsZero() {
		return nil
	}
	counts, err := audit.CountFile(r.lab.cluster.AuditLog(), audit.Filter{
		User: string(cluster.UserVelero), From: out.StartedAt, To: r.lastPhase.Add(time.Nanosecond),
	})
	if err != nil {
		return err
	}
	all, err := audit.CountFile(r.lab.cluster.AuditLog(), audit.Filter{User: string(cluster.UserVelero)})
	if err != nil {
		return err
	}
	out.API.Forbidden = all.Forbidden
	out.API.Total, out.API.Throttled = counts.Total, counts.Throttled
	out.API.ByVerb, out.API.ByResource, out.API.Requests = counts.ByVerb, counts.ByResource, counts.Requests
	for _, user := range proxied(r.scenario) {
		counts := r.lab.cluster.Proxy(user).Counts()
		out.API.Faults.Answered += counts.Answered
		out.API.Faults.Slowed += counts.Slowed
		out.API.Faults.CutWatches += counts.Cut
		out.API.Faults.ExpiredWatches += counts.Expired
	}
	if out.Volumes > 0 {
		out.API.PerPVC = float64(counts.Total) / float64(out.Volumes)
	}
	return nil
}

// countLeftovers looks at what is there now.
func (r *run) countLeftovers() result.Leftovers {
	out := r.leftovers
	owned := map[string]bool{}
	var records []string
	r.board.view(func(rec *recording) {
		vs, vsc := rec.leftovers()
		out.VS, out.VSC = len(vs), len(vsc)
		out.Names = append(nonNil(vs), vsc...)
		for name := range rec.records {
			records = append(records, "freeze record "+name)
		}
		for _, c := range rec.contents {
			if c.deleted.IsZero() {
				owned[c.handle] = true
			}
		}
		for name, b := range rec.backups {
			if b.gone.IsZero() {
				r.addHandles(name, owned)
			}
		}
	})
	slices.Sort(records)
	out.FreezeRecords = len(records)
	out.Names = append(out.Names, records...)
	for name, d := range r.lab.drivers {
		for _, snapshot := range d.Snapshots() {
			if !owned[snapshot.ID] {
				out.DriverSnapshotsWithoutOwner++
				out.Names = append(out.Names, fmt.Sprintf("snapshot %s of %s at driver %s", snapshot.ID, snapshot.Volume, name))
			}
		}
	}
	out.Total = out.VS + out.VSC + out.FreezeRecords + out.DriverSnapshotsWithoutOwner
	return out
}

// addHandles adds the snapshot handles that a backup in the object store refers to.
func (r *run) addHandles(backup string, owned map[string]bool) {
	var contents []struct {
		Status struct {
			SnapshotHandle string `json:"snapshotHandle"`
		} `json:"status"`
	}
	if r.readJSON(backupKey(backup, "%s-csi-volumesnapshotcontents.json.gz"), &contents) == nil {
		for _, c := range contents {
			owned[c.Status.SnapshotHandle] = true
		}
	}
	var volumes []struct {
		CSI struct {
			SnapshotHandle string `json:"snapshotHandle"`
		} `json:"csiSnapshotInfo"`
	}
	if r.readJSON(backupKey(backup, "%s-volumeinfo.json.gz"), &volumes) == nil {
		for _, v := range volumes {
			owned[v.CSI.SnapshotHandle] = true
		}
	}
}

// backupKey is the place of a file of a backup in the object store.
func backupKey(backup, file string) string {
	return path.Join("backups", backup, fmt.Sprintf(file, backup))
}

// readArtifacts reads what a backup left in the object store. A backup that failed early left nothing.
func (r *run) readArtifacts(backup string) {
	a := &artifacts{}
	if content, err := r.readGzip(backupKey(backup, "%s.tar.gz")); err == nil {
		a.tarball = tarNames(content)
	}
	if content, err := r.readGzip(backupKey(backup, "%s-logs.gz")); err == nil {
		a.logErrors, a.logWarnings = logLines(content)
	}
	var outcome map[string]results.Result
	if r.readJSON(backupKey(backup, "%s-results.gz"), &outcome) == nil {
		a.resultErrors, a.resultWarnings = messages(outcome["errors"]), messages(outcome["warnings"])
	}
	r.artifacts[backup] = a
}

func (r *run) restoreErrors(restore string) []string {
	var outcome map[string]results.Result
	if r.readJSON(path.Join("restores", restore, fmt.Sprintf("restore-%s-results.gz", restore)), &outcome) != nil {
		return nil
	}
	return messages(outcome["errors"])
}

// messages writes Velero's three kinds of messages into one list.
func messages(r results.Result) []string {
	out := append(slices.Clone(r.Velero), r.Cluster...)
	for _, namespace := range r.Namespaces {
		out = append(out, namespace...)
	}
	slices.Sort(out)
	return out
}

func (r *run) readGzip(key string) ([]byte, error) {
	content, err := r.lab.store.Get(key)
	if err != nil {
		return nil, err
	}
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	return io.ReadAll(reader)
}

func (r *run) readJSON(key string, into any) error {
	content, err := r.readGzip(key)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

// tarNames lists the files in an archive, sorted; a broken archive gives what stands before the break.
func tarNames(content []byte) []string {
	var names []string
	archive := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := archive.Next()
		if err != nil {
			break
		}
		if header.Typeflag == tar.TypeReg {
			names = append(names, header.Name)
		}
	}
	slices.Sort(names)
	return names
}

// logLines picks the lines at level error and warning from a Velero log, in text or JSON format.
func logLines(content []byte) (failures, warnings []string) {
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.Contains(line, "level=error"), strings.Contains(line, `"level":"error"`):
			failures = append(failures, line)
		case strings.Contains(line, "level=warning"), strings.Contains(line, `"level":"warning"`):
			warnings = append(warnings, line)
		}
	}
	return failures, warnings
}

// isFreezeRecord says whether a ConfigMap in Velero's namespace is the note about the pods that a backup froze.
func isFreezeRecord(labels map[string]string) bool {
	_, byName := labels[velerov1.BackupNameLabel]
	_, byUID := labels[velerov1.BackupUIDLabel]
	return byName || byUID
}
